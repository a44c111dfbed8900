"""The health checks of one rollout. Each takes the row's `Evidence` and returns its findings, or None: not evaluable.

A check judges what it can see. What it needs of a trajectory or a capture it takes from there; where none was captured,
the checks that can judge the final response do so: an empty response has no agent turns, and one that was cut off is
a runaway generation. The checks over several records (duplicates, tasks) are in `_health`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ._evidence import CONTRADICTIONS, Call, Evidence
from ._response import LENGTH_LIMITS, Identity, response_has_content


@attrs.frozen
class Finding:
    """One thing wrong: the check that found it, what it found, and where in the record."""

    check: str
    detail: dict[str, Any]
    locator: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        located = {"locator": self.locator} if self.locator else {}
        return {"check": self.check, **located, "detail": self.detail}


Check = Callable[[Evidence], list[Finding] | None]


def rollout_missing_agent_turns(evidence: Evidence) -> list[Finding] | None:
    """The agent did nothing: no turn has content, a tool call or a model call, or the response is empty."""
    if not evidence.turns_observed and evidence.response.turns is None:
        return None
    if any(turn.active for turn in evidence.turns):
        return []
    source = "trajectory" if evidence.turns_observed else "response"
    return [Finding("rollout_missing_agent_turns", {"reason": "no agent turn with anything in it", "source": source})]


def agent_turn_hollow(evidence: Evidence) -> list[Finding] | None:
    """A turn holds neither content nor a tool call, whatever model calls it claims.

    Without a trajectory: also a response that ends in reasoning alone, with no answer to it.
    """
    if not evidence.turns_observed and evidence.response.turns is None:
        return None
    findings = [
        Finding("agent_turn_hollow", {"reason": "no message, no reasoning, no tool call"}, turn.locator)
        for turn in evidence.turns
        if not turn.has_content and not turn.has_tool_calls
    ]
    last = evidence.turns[-1] if evidence.turns else None
    if last is not None and last.reasoning_only and last.has_content:
        findings.append(Finding("agent_turn_hollow", {"reason": "reasoning without an answer"}, last.locator))
    return findings


def rollout_ended_on_failed_model_call(evidence: Evidence) -> list[Finding] | None:
    """The last call to a model failed, so that the reward says nothing about the model.

    Judged for each model by itself and in the order of time: a judge's call after the policy's last does not hide its
    failure, and a failure that was retried with success is none. Calls of one model that are not all timed and not
    all failed cannot be put in order and are not judged. Without captured calls, the response's own status and error.
    """
    if not evidence.calls_observed or not evidence.calls:
        return _response_failed(evidence)
    findings = []
    for model, chain in _chains(evidence.calls).items():
        last = _failed_end(chain)
        if last is not None:
            detail = {
                "model_ref": "/".join(model) if model else None,
                "status": last.status_code,
                "error_category": last.error_category,
                "observed_calls": len(chain),
                "successful_calls": sum(call.succeeded for call in chain),
            }
            findings.append(Finding("rollout_ended_on_failed_model_call", detail, last.locator))
    return findings


def _response_failed(evidence: Evidence) -> list[Finding] | None:
    if evidence.response.failed is None:
        return None
    if not evidence.response.failed:
        return []
    return [Finding("rollout_ended_on_failed_model_call", {"source": "response", "error": evidence.response.error})]


def _chains(calls: Sequence[Call]) -> dict[tuple[str, str] | None, list[Call]]:
    chains: defaultdict[tuple[str, str] | None, list[Call]] = defaultdict(list)
    for call in calls:
        chains[call.model].append(call)
    return chains


def _failed_end(chain: Sequence[Call]) -> Call | None:
    """The call with which one model's calls ended, when it certainly failed."""
    in_time = sorted(chain, key=lambda call: (call.started_at or 0.0, call.position))
    if all(call.failed for call in chain):
        return in_time[-1]
    if any(call.started_at is None for call in chain):
        return None
    return in_time[-1] if in_time[-1].failed else None


def ended_on_failure(calls: Sequence[Call]) -> bool:
    """Whether any model's calls ended with a failed one."""
    return any(_failed_end(chain) is not None for chain in _chains(calls).values())


def model_call_zero_completion_tokens(evidence: Evidence) -> list[Finding] | None:
    """A call of the agent's own came back with no completion tokens.

    Without captured calls: the response's usage has prompt tokens and no completion tokens.
    """
    name = "model_call_zero_completion_tokens"
    if _own(evidence):
        return [
            Finding(name, {"completion_tokens": 0}, call.locator)
            for call in evidence.own_calls
            if call.tokens.get("completion_tokens") == 0
        ]
    completion = evidence.usage.get("completion_tokens")
    # A provider that counts nothing reports zeros throughout; that is no evidence.
    if evidence.calls_observed or completion is None or not evidence.usage.get("prompt_tokens"):
        return None
    return [] if completion else [Finding(name, {"completion_tokens": 0, "source": "response"})]


def model_call_missing_token_counts(evidence: Evidence) -> list[Finding] | None:
    """A call of the agent's own was captured without its prompt or completion token count."""
    if not _own(evidence):
        return None
    missing = [
        (call, [name for name in ("prompt_tokens", "completion_tokens") if name not in call.tokens])
        for call in evidence.own_calls
    ]
    return [Finding("model_call_missing_token_counts", {"missing": m}, call.locator) for call, m in missing if m]


def _own(evidence: Evidence) -> bool:
    return evidence.calls_observed and bool(evidence.own_calls)


def trajectory_capture_mismatch(evidence: Evidence) -> list[Finding] | None:
    """What the trajectory claims and what was captured contradict each other.

    A claimed call that was not captured, one that was captured more than once, or a gap that the trajectory itself
    reports between the two.
    """
    if not evidence.calls_observed or not (evidence.claimed or evidence.contradictions):
        return None
    kinds: dict[tuple[str, str], dict[str, Any]] = {}
    for claim in evidence.missing:
        kinds["missing_captured_call", _short(claim)] = {}
    for claim, count in evidence.ambiguous:
        kinds["duplicated_captured_call", _short(claim)] = {"count": count}
    for gap in evidence.contradictions:
        code = str(gap["code"])
        where = str(gap.get("detail") or "unknown").rpartition(":")[2]
        extra = {"observation_gap": code, "invocation_id": gap.get("invocation_id")}
        kinds.setdefault((CONTRADICTIONS[code], where), extra)
    return [
        Finding("trajectory_capture_mismatch", {"kind": kind, **extra}, {"call_id": where})
        for (kind, where), extra in kinds.items()
    ]


def _short(claim: Identity) -> str:
    return claim[0] or claim[3]


def model_call_failed(evidence: Evidence) -> list[Finding] | None:
    """A call of the agent's own failed: an HTTP error, a failed response, or an error of its capture's classification.

    ``terminal`` says that no later call of the agent's was captured.
    """
    if not _own(evidence):
        return None
    complete = not evidence.missing and not evidence.ambiguous
    last = max(call.position for call in evidence.own_calls)
    return [
        Finding(
            "model_call_failed",
            {
                "status": call.status_code,
                "error_category": call.error_category,
                "terminal": complete and call.position == last,
            },
            call.locator,
        )
        for call in evidence.own_calls
        if call.failed
    ]


def rollout_token_count_mismatch(evidence: Evidence) -> list[Finding] | None:
    """The response's usage and the sum over the captured calls of its turns differ.

    Evaluable only where every turn's calls were captured, each with both counts, and the response has both.
    """
    said = [evidence.usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    calls = evidence.turn_calls
    if not evidence.calls_observed or not evidence.every_call_claimed_by_turns or None in said or not calls:
        return None
    prompts = [call.tokens.get("prompt_tokens") for call in calls]
    completions = [call.tokens.get("completion_tokens") for call in calls]
    if None in prompts or None in completions:
        return None
    captured = [sum(filter(None, prompts)), sum(filter(None, completions))]
    if said == captured:
        return []
    detail = {
        "transcript_prompt": said[0],
        "transcript_completion": said[1],
        "capture_prompt": captured[0],
        "capture_completion": captured[1],
    }
    return [Finding("rollout_token_count_mismatch", detail)]


def model_call_runaway_generation(evidence: Evidence) -> list[Finding] | None:
    """A call of the agent's own ran into its length limit and left no content.

    Without captured calls: the final response was cut off, with or without content. Not evaluable when a call that
    ran into its limit was captured without its response.
    """
    name = "model_call_runaway_generation"
    if not _own(evidence):
        cut_off = evidence.response.cut_off
        if evidence.calls_observed or not (cut_off or evidence.response.says_how_it_ended):
            return None
        return [Finding(name, {"finish_reason": cut_off, "source": "response"})] if cut_off else []
    limited = [call for call in evidence.own_calls if call.finish_reason in LENGTH_LIMITS]
    if any(call.response is None for call in limited):
        return None
    return [
        Finding(name, {"finish_reason": call.finish_reason}, call.locator)
        for call in limited
        if not response_has_content(call.response)
    ]


CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        rollout_missing_agent_turns,
        rollout_ended_on_failed_model_call,
        agent_turn_hollow,
        model_call_zero_completion_tokens,
        model_call_missing_token_counts,
        trajectory_capture_mismatch,
        model_call_failed,
        rollout_token_count_mismatch,
        model_call_runaway_generation,
    )
}
