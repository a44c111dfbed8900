"""`build_trajectory`: ``ng_trajectory``, what happened in a rollout, from captures and from what its agent reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._entry import JSON, Captured
from ._items import items_of_answer

__all__ = ["build_trajectory"]


def build_trajectory(
    result: Mapping[str, Any], captured: Captured, *, observations: Mapping[str, Any] | None = None
) -> JSON:
    """The trajectory of one rollout.

    ``result`` is its output row, ``captured`` its model calls. ``observations`` is what the agent reported
    (``ng_agent_observations``): of it ``tool_calls`` are used, records with ``call_id``, ``started_at`` (Unix time),
    ``duration_ms`` and ``status``.

    A turn is what one model call said. Where the response has the items of the captured calls, turns are those of the
    response and each claims its call; where it has none of them, as of an agent that only speaks HTTP to the model
    server, every captured call that answered is a turn, and the gap ``turns_inferred_from_model_calls`` says so.
    What is not known is a gap, never a guess.
    """
    calls = captured.calls
    gaps = list(captured.gaps)
    if not calls:
        gaps.append({"code": "model_calls_unavailable", "detail": "no model call of this rollout was captured"})
    output = (result.get("response") or {}).get("output") or []
    turns = _turns_of_response(output, calls, gaps)
    if turns is None:
        turns = [_turn(number, items_of_answer(call), call) for number, call in enumerate(filter(_answered, calls))]
        if turns:
            gaps.append({"code": "turns_inferred_from_model_calls", "detail": "the response has none of their items"})
        elif not output:
            gaps.append({"code": "turns_unavailable", "detail": "the response has no output"})
    tool_calls = _tool_calls(turns, output, observations or {}, gaps)
    return {
        "rollout_id": result.get("_ng_rollout_id"),
        "invocations": [_invocation(result, calls, turns)],
        "turns": turns,
        "model_calls": [_model_call(call) for call in calls],
        "tool_calls": tool_calls,
        "gaps": gaps,
    }


def _answered(call: Mapping[str, Any]) -> bool:
    return call.get("response") is not None


def _reference(call: Mapping[str, Any]) -> JSON:
    return {name: call.get(name) for name in ("model_call_id", "model_ref", "response_id")}


def _invocation(result: Mapping[str, Any], calls: Sequence[JSON], turns: Sequence[JSON]) -> JSON:
    """The one run of the agent. Its calls are those that its turns claim: a judge's are not among them."""
    claimed = [reference for turn in turns for reference in turn["model_calls"]]
    ends = [call["started_at"] + call["duration_ms"] / 1000 for call in calls]
    return {
        "invocation_id": result.get("_ng_rollout_id"),
        "agent_ref": result.get("agent_ref"),
        "started_at": min((call["started_at"] for call in calls), default=None),
        "ended_at": max(ends, default=None),
        "model_calls": claimed,
    }


def _model_call(call: Mapping[str, Any]) -> JSON:
    return {
        "model_call_id": call["model_call_id"],
        "started_at": call["started_at"],
        "duration_ms": call["duration_ms"],
        "first_byte_ms": call["first_byte_ms"],
        "response_metadata": {
            name: call.get(name)
            for name in (
                "model_ref",
                "response_id",
                "model",
                "api",
                "status_code",
                "response_status",
                "finish_reason",
                "error_category",
                "error",
                "streamed",
            )
        },
        "token_stats": {
            "prompt_tokens": call.get("tokens_in"),
            "completion_tokens": call.get("tokens_out"),
            "reasoning_tokens": call.get("tokens_reasoning"),
            "cached_tokens": call.get("cached_tokens"),
            "total_tokens": call.get("tokens_total"),
        },
        "attempts": call.get("attempts") or [],
        "response": call.get("response"),
    }


def _turn(number: int, items: Sequence[Mapping[str, Any]], call: Mapping[str, Any] | None) -> JSON:
    spoken = [item for item in items if item.get("type") != "reasoning"]
    thought = [item for item in items if item.get("type") == "reasoning"]
    return {
        "turn_no": number,
        "answer": spoken,
        "reasoning_content": thought or None,
        "model_calls": [] if call is None else [_reference(call)],
    }


def _keys_of(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, item[name]) for name in ("call_id", "id") if item.get(name)]


def _turns_of_response(output: Iterable[Any], calls: Sequence[JSON], gaps: list[JSON]) -> list[JSON] | None:
    """The turns in a response's output, or ``None`` when it has no item of any captured call."""
    owners = {key: call for call in calls for item in items_of_answer(call) for key in _keys_of(item)}
    groups: list[tuple[JSON | None, list[Mapping[str, Any]]]] = []
    between = True
    for item in output:
        if not isinstance(item, Mapping) or not _is_models(item):
            between = True
            continue
        owner = next((owners[key] for key in _keys_of(item) if key in owners), None)
        if between or groups[-1][0] is not owner:
            groups.append((owner, []))
        groups[-1][1].append(item)
        between = False
    if not any(owner is not None for owner, _ in groups):
        return None
    strangers = sum(owner is None for owner, _ in groups)
    if strangers:
        detail = f"{strangers} of {len(groups)} turns are of no captured call"
        gaps.append({"code": "turn_model_call_scope_incomplete", "detail": detail})
    return [_turn(number, items, owner) for number, (owner, items) in enumerate(groups)]


def _is_models(item: Mapping[str, Any]) -> bool:
    kind = str(item.get("type", "message"))
    return not kind.endswith("_output") and (kind != "message" or item.get("role") == "assistant")


def _tool_calls(
    turns: Sequence[JSON], output: Iterable[Any], observations: Mapping[str, Any], gaps: list[JSON]
) -> list[JSON]:
    """Every tool call of the turns, with its result, and with its own timing where the agent reported it."""
    reported = {
        seen["call_id"]: seen
        for seen in observations.get("tool_calls") or ()
        if isinstance(seen, Mapping) and seen.get("call_id")
    }
    results = {item["call_id"]: item.get("output") for item in output if _is_result(item)}
    made: list[JSON] = []
    untimed = 0
    for turn in turns:
        for item in turn["answer"]:
            if item.get("type") in ("function_call", "custom_tool_call"):
                seen = reported.get(item.get("call_id"), {})
                untimed += "started_at" not in seen
                made.append(
                    {
                        "call_id": item.get("call_id"),
                        "name": item.get("name"),
                        "arguments": item.get("arguments", item.get("input")),
                        "turn_no": turn["turn_no"],
                        "output": results.get(item.get("call_id")),
                        **{name: seen.get(name) for name in ("started_at", "duration_ms", "status")},
                    }
                )
    if untimed:
        detail = f"the agent reported no timing of {untimed} of {len(made)} tool calls"
        gaps.append({"code": "tool_call_timing_unavailable", "detail": detail})
    return made


def _is_result(item: Any) -> bool:
    return isinstance(item, Mapping) and str(item.get("type")).endswith("_output") and bool(item.get("call_id"))
