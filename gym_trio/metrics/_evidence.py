"""What a saved rollout says about how it went, in one form whatever recorded it.

Three witnesses, in the order of what they know: ``ng_trajectory`` (turns, model calls, and which turn made which call),
``ng_model_call_capture`` (model calls alone), and ``response`` (what the agent handed back). A fact that no witness
gives is absent, never guessed; a gap that a witness admits to (``gaps[].code``) makes the facts it concerns absent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ._response import (
    FAILED_STATUSES,
    Identity,
    ResponseFacts,
    Turn,
    counts,
    has_content,
    has_tool_calls,
    mappings,
    response_facts,
)

_CALLS_HIDDEN = frozenset(
    {
        "model_calls_unavailable",
        "model_call_capture_incomplete",
        "model_call_capture_records_unreadable",
        "model_call_capture_unreadable",
    }
)
# Gaps that say that a turn's claim and the capture contradict each other.
CONTRADICTIONS = {
    "model_call_reference_unmatched": "missing_captured_call",
    "model_call_reference_ambiguous": "duplicated_captured_call",
    "model_call_reference_conflict": "conflicting_call_ownership",
}


@attrs.frozen
class Call:
    """One model call. ``tokens`` holds what was reported of prompt, completion, reasoning, cached and total tokens."""

    position: int
    call_id: str | None
    response_id: str | None
    model: tuple[str, str] | None
    started_at: float | None
    status_code: int | None
    failed: bool
    finish_reason: str | None
    error_category: str | None
    tokens: dict[str, int]
    response: Any

    @property
    def succeeded(self) -> bool:
        return not self.failed and (self.status_code is None or 200 <= self.status_code < 400)

    @property
    def locator(self) -> dict[str, Any]:
        return {"call_id": self.call_id or self.response_id or str(self.position)}


@attrs.frozen
class Evidence:
    """Everything the checks look at.

    ``own_calls`` are the calls that turns or invocations claim and the capture has exactly once; where nothing claims
    any, all of them. ``missing`` and ``ambiguous`` are claims that the capture has not at all, or more than once.
    """

    response: ResponseFacts
    trajectory: bool = False
    trajectory_error: str | None = None
    turns: tuple[Turn, ...] = ()
    turns_observed: bool = False
    calls: tuple[Call, ...] = ()
    calls_observed: bool = False
    own_calls: tuple[Call, ...] = ()
    turn_calls: tuple[Call, ...] = ()
    claimed: bool = False
    every_call_claimed_by_turns: bool = False
    missing: tuple[Identity, ...] = ()
    ambiguous: tuple[tuple[Identity, int], ...] = ()
    contradictions: tuple[Mapping[str, Any], ...] = ()
    tool_calls: int = 0

    @property
    def usage(self) -> dict[str, int]:
        return self.response.usage


def gather(row: Mapping[str, Any]) -> Evidence:
    """Read the three witnesses of one output row; a witness that is not in its form gives nothing."""
    response = response_facts(row)
    own = Evidence(response=response, turns=response.turns or (), tool_calls=response.tool_calls)
    raw = row.get("ng_trajectory")
    if raw is not None:
        error = _malformed(raw)
        if error:
            return attrs.evolve(own, trajectory_error=error)
        if "trajectory_projection_failed" not in _gap_codes(raw):
            return _from_trajectory(raw, own)
    capture = row.get("ng_model_call_capture")
    if isinstance(capture, Mapping) and (calls := list(map(_captured_call, *_numbered(capture.get("calls"))))):
        observed = not _gap_codes(capture) & _CALLS_HIDDEN
        return attrs.evolve(own, calls=tuple(calls), own_calls=tuple(calls), calls_observed=observed)
    return own


def _malformed(raw: Any) -> str | None:
    if not isinstance(raw, Mapping):
        return f"not an object but {type(raw).__name__}"
    for name in ("turns", "model_calls", "invocations", "tool_calls", "gaps"):
        part = raw.get(name)
        if part is not None and not (isinstance(part, list) and all(isinstance(item, Mapping) for item in part)):
            return f"{name} is not a list of objects"
    return None


def _from_trajectory(raw: Mapping[str, Any], own: Evidence) -> Evidence:
    codes = _gap_codes(raw)
    calls = tuple(map(_trajectory_call, *_numbered(raw.get("model_calls"))))
    observed = not codes & _CALLS_HIDDEN
    turn_claims = _claims(raw.get("turns"))
    claims = tuple(dict.fromkeys((*turn_claims, *_claims(raw.get("invocations")))))
    found = _matches(calls, claims)
    bound = _in_order(found, claims)
    turns_observed = "turns_unavailable" not in codes
    contradictions = [gap for gap in mappings(raw.get("gaps")) if str(gap.get("code")) in CONTRADICTIONS]
    return attrs.evolve(
        own,
        trajectory=True,
        turns=tuple(map(_turn, *_numbered(raw.get("turns")))) if turns_observed else own.turns,
        turns_observed=turns_observed,
        calls=calls,
        calls_observed=observed and bool(calls or claims or contradictions),
        own_calls=bound if claims else calls,
        turn_calls=_in_order(found, turn_claims),
        claimed=bool(claims),
        every_call_claimed_by_turns=bool(turn_claims)
        and "turn_model_call_scope_incomplete" not in codes
        and all(len(found[claim]) == 1 for claim in turn_claims),
        missing=tuple(claim for claim in claims if not found[claim]),
        ambiguous=tuple((claim, len(found[claim])) for claim in claims if len(found[claim]) > 1),
        contradictions=tuple(contradictions),
        tool_calls=len(mappings(raw.get("tool_calls"))) or own.tool_calls,
    )


def _matches(calls: Sequence[Call], claims: Sequence[Identity]) -> dict[Identity, list[Call]]:
    """The captured calls that each claim can mean: by call id where it has one, else by model and response id."""
    by_id: defaultdict[str | None, list[Call]] = defaultdict(list)
    by_response: defaultdict[tuple[str, ...], list[Call]] = defaultdict(list)
    for call in calls:
        by_id[call.call_id].append(call)
        if call.model and call.response_id:
            by_response[*call.model, call.response_id].append(call)
    found = {}
    for claim in claims:
        call_id, kind, name, response_id = claim
        if call_id:
            found[claim] = [
                call
                for call in by_id[call_id]
                if (not name or call.model == (kind, name)) and (not response_id or call.response_id == response_id)
            ]
        else:
            found[claim] = by_response[kind, name, response_id]
    return found


def _in_order(found: Mapping[Identity, Sequence[Call]], claims: Iterable[Identity]) -> tuple[Call, ...]:
    """The calls that exactly one claim can mean, each once, in the order of the capture."""
    bound = {found[claim][0].position: found[claim][0] for claim in claims if len(found[claim]) == 1}
    return tuple(bound[position] for position in sorted(bound))


def _gap_codes(raw: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(str(gap.get("code")) for gap in mappings(raw.get("gaps")))


def _numbered(value: Any) -> tuple[list[Mapping[str, Any]], range]:
    items = mappings(value)
    return items, range(len(items))


def _claims(items: Any) -> tuple[Identity, ...]:
    """The model calls that turns or invocations say are theirs, each once: (call id, type, name, response id)."""
    claims = [_identity(ref) for item in mappings(items) for ref in mappings(item.get("model_calls"))]
    return tuple(dict.fromkeys(claim for claim in claims if claim[0] or (claim[2] and claim[3])))


def _identity(ref: Mapping[str, Any]) -> Identity:
    model = _model(ref.get("model_ref")) or ("", "")
    return (str(ref.get("model_call_id") or ""), *model, str(ref.get("response_id") or ""))


def _model(ref: Any) -> tuple[str, str] | None:
    if not isinstance(ref, Mapping):
        return None
    return str(ref.get("type") or ""), str(ref.get("name") or "")


def _turn(turn: Mapping[str, Any], position: int) -> Turn:
    answer = turn.get("answer")
    return Turn(
        locator={"turn": turn.get("turn_no", position)},
        has_content=has_content(answer) or has_content(turn.get("reasoning_content")),
        has_tool_calls=has_tool_calls(answer),
        claims=_claims([turn]),
    )


def _trajectory_call(raw: Mapping[str, Any], position: int) -> Call:
    metadata = raw.get("response_metadata")
    stats = raw.get("token_stats")
    return _call(
        raw,
        metadata if isinstance(metadata, Mapping) else {},
        counts(stats if isinstance(stats, Mapping) else {}),
        position,
    )


def _captured_call(raw: Mapping[str, Any], position: int) -> Call:
    tokens = {
        "prompt_tokens": raw.get("tokens_in"),
        "completion_tokens": raw.get("tokens_out"),
        "reasoning_tokens": raw.get("tokens_reasoning"),
        "cached_tokens": raw.get("cached_tokens"),
        "total_tokens": raw.get("tokens_total"),
    }
    return _call(raw, raw, counts(tokens), position)


def _call(raw: Mapping[str, Any], metadata: Mapping[str, Any], tokens: dict[str, int], position: int) -> Call:
    response = raw.get("response")
    status = metadata.get("status_code")
    code = status if isinstance(status, int) else None
    outcome = metadata.get("response_status") or (response.get("status") if isinstance(response, Mapping) else None)
    category = metadata.get("error_category")
    started = raw.get("started_at")
    return Call(
        position=position,
        call_id=_text(raw.get("model_call_id")),
        response_id=_text(metadata.get("response_id")),
        model=_model(metadata.get("model_ref")),
        started_at=started if isinstance(started, int | float) else None,
        status_code=code,
        failed=(code is not None and code >= 400) or bool(category) or outcome in FAILED_STATUSES,
        finish_reason=_text(metadata.get("finish_reason")),
        error_category=_text(category),
        tokens=tokens,
        response=response,
    )


def _text(value: Any) -> str | None:
    return str(value) if value else None
