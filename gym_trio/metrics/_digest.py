"""`RolloutDigest`: what the health of a run keeps of one record."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ._checks import Finding, ended_on_failure
from ._evidence import Call, Evidence
from ._rows import ROLLOUT_INDEX, TASK_INDEX, TaskIndex


class Verdict(enum.StrEnum):
    """What the checks say about one rollout."""

    HEALTHY = "healthy"  # every check was evaluable and found nothing
    UNHEALTHY = "unhealthy"  # a check found something
    UNOBSERVED = "unobserved"  # nothing was found, and not everything could be looked at


@attrs.frozen
class RolloutDigest:
    """What is kept of one record."""

    task: TaskIndex
    rollout: int | str
    stage: Any
    rollout_id: str
    findings: tuple[Finding, ...]
    unobserved: tuple[str, ...]
    captured: bool = False
    calls_known: bool = False
    successful_calls: int = 0
    failed_statuses: tuple[str, ...] = ()
    ended_on_error: bool = False
    replayed: int = 0
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def verdict(self) -> Verdict:
        if self.findings:
            return Verdict.UNHEALTHY
        return Verdict.UNOBSERVED if self.unobserved else Verdict.HEALTHY

    def to_json(self) -> dict[str, Any]:
        """The record's line of ``rollout_verdicts.jsonl``."""
        line = {
            TASK_INDEX: self.task,
            ROLLOUT_INDEX: self.rollout,
            "rollout_id": self.rollout_id,
            "verdict": str(self.verdict),
            "findings": [finding.to_json() for finding in self.findings],
            "unobserved": list(self.unobserved),
        }
        return line if self.stage is None else {**line, "stage_index": self.stage}


def digest_of(
    row: Mapping[str, Any],
    evidence: Evidence,
    task: TaskIndex,
    rollout: int,
    findings: tuple[Finding, ...],
    unobserved: tuple[str, ...],
) -> RolloutDigest:
    """The digest of a judged record."""
    trajectory = row.get("ng_trajectory")
    named = row.get("_ng_rollout_id") or (trajectory.get("rollout_id") if isinstance(trajectory, Mapping) else None)
    claimed = evidence.claimed
    own = evidence.turn_calls if claimed else evidence.own_calls
    usage = evidence.usage
    return RolloutDigest(
        task=task,
        rollout=rollout,
        stage=row.get("stage_index"),
        rollout_id=str(named or f"{task}-{rollout}"),
        findings=findings,
        unobserved=unobserved,
        captured=bool(evidence.calls),
        calls_known=evidence.calls_observed and (evidence.every_call_claimed_by_turns if claimed else bool(own)),
        successful_calls=sum(call.succeeded for call in own),
        failed_statuses=tuple(str(call.status_code or "unknown") for call in evidence.calls if call.failed),
        ended_on_error=ended_on_failure(evidence.calls),
        replayed=_replayed(evidence.calls),
        tokens=(
            usage.get("prompt_tokens", 0),
            usage.get("completion_tokens", 0),
            sum(call.tokens.get("prompt_tokens", 0) for call in evidence.calls),
            sum(call.tokens.get("completion_tokens", 0) for call in evidence.calls),
        ),
    )


def _replayed(calls: Sequence[Call]) -> int:
    """How many captured calls repeat the identity of another."""
    identities = Counter(
        call.call_id or (call.model, call.response_id) for call in calls if call.call_id or call.response_id
    )
    return sum(count - 1 for count in identities.values())
