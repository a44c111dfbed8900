"""What the response of a rollout, or of one model call, says: its content, its turns, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

# Tuples, since what is looked up in them comes from records and need not be hashable.
LENGTH_LIMITS = ("length", "max_output_tokens", "max_tokens")
FAILED_STATUSES = ("failed", "error", "cancelled")
# The parts of an item that hold what a model said, in any of the dialects.
_CONTENT_KEYS = (
    "text",
    "content",
    "output_text",
    "answer",
    "refusal",
    "encrypted_content",
    "reasoning",
    "reasoning_content",
    "summary",
)
_TOOL_CALL_TYPES = frozenset({"function_call", "tool_call", "tool_use", "mcp_list_tools", "mcp_approval_request"})
# (call id, model type, model name, response id); what is not known is empty.
Identity = tuple[str, ...]


@attrs.frozen
class Turn:
    """One turn of the agent: where it is, what there is in it, and the calls it claims."""

    locator: dict[str, Any]
    has_content: bool
    has_tool_calls: bool
    claims: tuple[Identity, ...] = ()
    reasoning_only: bool = False

    @property
    def active(self) -> bool:
        return self.has_content or self.has_tool_calls or bool(self.claims)


@attrs.frozen
class ResponseFacts:
    """What the final response says. ``None`` in place of a fact means that it does not say."""

    turns: tuple[Turn, ...] | None
    tool_calls: int
    failed: bool | None
    error: str | None
    cut_off: str | None
    says_how_it_ended: bool
    usage: dict[str, int]


def has_content(value: Any) -> bool:
    """Whether anything in ``value`` (a string, an item, a list of them) is more than blank."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, list | tuple):
        return any(map(has_content, value))
    if isinstance(value, Mapping):
        return any(has_content(value.get(key)) for key in _CONTENT_KEYS)
    return False


def has_tool_calls(value: Any) -> bool:
    """Whether ``value`` is, holds, or lists a call of a tool."""
    if isinstance(value, list | tuple):
        return any(map(has_tool_calls, value))
    if not isinstance(value, Mapping):
        return False
    return bool(value.get("tool_calls")) or _is_tool_call(value)


def _is_tool_call(item: Mapping[str, Any]) -> bool:
    kind = item.get("type")
    return isinstance(kind, str) and (kind in _TOOL_CALL_TYPES or kind.endswith("_call"))


def response_has_content(response: Any) -> bool:
    """Whether a model's response, in the Responses, Chat Completions or Messages form, says anything at all."""
    if not isinstance(response, Mapping):
        return False
    said = [response.get("output_text"), response.get("content"), response.get("output")]
    for choice in mappings(response.get("choices")):
        message = choice.get("message")
        said += [choice.get("text"), message.get("content") if isinstance(message, Mapping) else None]
    return any(map(has_content, said)) or has_tool_calls([response.get("output"), response.get("content")])


def mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def counts(values: Mapping[str, Any]) -> dict[str, int]:
    """The entries that are counts: ints, not bools, not negative."""
    return {name: value for name, value in values.items() if type(value) is int and value >= 0}


def response_facts(row: Mapping[str, Any]) -> ResponseFacts:
    if "response" not in row:
        return ResponseFacts(None, 0, None, None, None, False, {})
    response = row["response"]
    if not isinstance(response, Mapping) or not response:
        # Handed back, and nothing in it: that is no turn at all, and no way to tell how it ended.
        return ResponseFacts((), 0, None, None, None, False, {})
    output = response.get("output")
    items = mappings(output)
    status, error = response.get("status"), response.get("error")
    turns = _turns_of(items) if isinstance(output, list) else _other_form(response)
    return ResponseFacts(
        turns=turns,
        tool_calls=sum(map(_is_tool_call, items)),
        failed=bool(error) or status in FAILED_STATUSES if {"status", "error"} & response.keys() else None,
        error=str(error)[:200] if error else None,
        cut_off=_cut_off(response, items),
        says_how_it_ended=status is not None or "incomplete_details" in response or "finish_reason" in response,
        usage=_usage(response.get("usage")),
    )


def _turns_of(items: Sequence[Mapping[str, Any]]) -> tuple[Turn, ...]:
    """One turn for each stretch of the model's own items; tool outputs and messages of others lie between."""
    stretches: list[tuple[int, list[Mapping[str, Any]]]] = []
    inside = False
    for place, item in enumerate(items):
        own = not str(item.get("type")).endswith("_output") and item.get("role") in (None, "assistant")
        if own and not inside:
            stretches.append((place, []))
        if own:
            stretches[-1][1].append(item)
        inside = own
    return tuple(
        Turn(
            {"output_item": at},
            has_content(found),
            has_tool_calls(found),
            reasoning_only=all(item.get("type") == "reasoning" for item in found),
        )
        for at, found in stretches
    )


def _other_form(response: Mapping[str, Any]) -> tuple[Turn, ...] | None:
    """A response that is not in the Responses form, or a thin one that says nothing about its output."""
    if not {"output", "output_text", "content", "choices"} & response.keys():
        return None
    if not response_has_content(response):
        return ()
    return (Turn({"output_item": 0}, True, has_tool_calls(response.get("content"))),)


def _cut_off(response: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> str | None:
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    if reason or response.get("status") == "incomplete":
        return str(reason or "incomplete")
    if items and items[-1].get("status") == "incomplete":
        return "incomplete"
    finish = response.get("finish_reason")
    return str(finish) if finish in LENGTH_LIMITS else None


def _usage(usage: Any) -> dict[str, int]:
    """The usage of a response under the names of ``token_stats``."""
    if not isinstance(usage, Mapping):
        return {}
    found = {
        "prompt_tokens": usage.get("input_tokens", usage.get("prompt_tokens")),
        "completion_tokens": usage.get("output_tokens", usage.get("completion_tokens")),
        "total_tokens": usage.get("total_tokens"),
    }
    for part, name, key in (
        ("input", "cached_tokens", "cached_tokens"),
        ("output", "reasoning_tokens", "reasoning_tokens"),
    ):
        details = usage.get(f"{part}_tokens_details")
        found[name] = details.get(key) if isinstance(details, Mapping) else None
    return counts(found)
