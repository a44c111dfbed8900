"""From an outcome to the line that is written of it: a result row, a failure row, or none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..config import redact, suggestion
from ..errors import FailureKind, RolloutFailure
from ..metrics import rollout_perf
from ..rollouts import Completed, Failed, Timing
from ._keys import ATTEMPT, ROLLOUT, TASK
from ._ledger import FAILURE_CLASS, TERMINAL

# What a result takes over from its row, so that it says by itself which rollout it is.
_IDENTITY = (
    TASK,
    ROLLOUT,
    ATTEMPT,
    "_ng_rollout_id",
    "_ng_task_id",
    "_ng_environment_server",
    "agent_ref",
    "task_source",
    "skills_ref",
)
_NO_LINE = ("_ng_no_persist", "_ng_dispatch_drained")
_TRY_AGAIN = frozenset({429, 502, 503, 504})
_LONGEST_TEXT = 2000

_CLASSES = {
    FailureKind.JUDGE_FAILED: "judge_failed",
    FailureKind.JUDGE_UNPARSEABLE: "judge_invalid",
    FailureKind.AGENT_TIMEOUT: "timeout_exceeded",
}
_WITHDRAWN = frozenset({FailureKind.CANCELLED, FailureKind.SHUTDOWN, FailureKind.KILL_SHAPED})


# Those that gym_trio and NeMo Gym give; an agent may give others.
_KNOWN_CLASSES = frozenset(
    {
        *_CLASSES.values(),
        "agent_request_failed",
        "agent_run_error",
        "environment_server_failed",
        "eval_missing",
        "reference_missing",
        "skipped",
        "transport_ineligible",
    }
)


def odd_classes(names: Iterable[str], seen: Collection[str] = ()) -> list[str]:
    """One sentence for each failure class that is to count as zero and that nobody gives, as far as is known."""
    known = _KNOWN_CLASSES | set(seen)
    return [
        f"count_failure_classes_as_zero names {name!r}, which no failure has{suggestion(name, known)}"
        for name in names
        if name not in known
    ]


def failure_class(failure: RolloutFailure) -> str:
    """The class of a failure, which tells whether the rollout ran.

    A gateway's status, or no status at all, says nothing about the rollout; any other means that it ran and broke.
    """
    named = _CLASSES.get(failure.kind)  # type: ignore[call-overload]  # a server's own kind is a plain text
    if named is not None:
        return str(named)
    if failure.status is None or failure.status in _TRY_AGAIN:
        return "agent_request_failed"
    return "agent_run_error"


def leaves_no_line(outcome: Completed | Failed) -> bool:
    """Whether the outcome is no outcome of its rollout: it was withdrawn, and a resumed run makes it again."""
    if isinstance(outcome, Failed):
        return outcome.failure.kind in _WITHDRAWN
    result = outcome.result
    return isinstance(result, Mapping) and (
        any(result.get(mark) for mark in _NO_LINE) or result.get(FAILURE_CLASS) in ("cancelled", "kill_shaped")
    )


def row_of(outcome: Completed | Failed, *, secrets: Collection[str] = ()) -> tuple[dict[str, Any], bool]:
    """The line for an outcome, and whether it is one of the results (else of the failures)."""
    if isinstance(outcome, Failed):
        return _failure_row(outcome.row, outcome.failure, outcome.timing, secrets), False
    if not isinstance(outcome.result, Mapping):
        failure = RolloutFailure(
            FailureKind.AGENT_RUN_ERROR, f"the result is no JSON object but {type(outcome.result).__name__}"
        )
        return _failure_row(outcome.row, failure, outcome.timing, secrets), False
    # Which attempt it is says the run, which counts them, and not the result.
    given = {name: value for name, value in outcome.result.items() if name != ATTEMPT}
    row = {**given, **identity_in(outcome.row)}
    if row.get(FAILURE_CLASS) is not None:
        row.setdefault("elapsed_seconds", outcome.timing.elapsed_seconds)
        return redact_failure(row, secrets), False
    perf = _perf(row, outcome.timing)
    if perf is not None:
        row["ng_perf"] = perf
    return row, True


def unwritable(outcome: Completed | Failed, error: ValueError) -> dict[str, Any]:
    """The failure row for a result that cannot be written."""
    failure = RolloutFailure(FailureKind.PERSISTENCE_FAILED, f"the result {error}", exception_type=type(error).__name__)
    return _failure_row(outcome.row, failure, outcome.timing, ())


def identity_in(row: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a row that say which rollout it is."""
    return {name: row[name] for name in _IDENTITY if name in row}


def _perf(row: Mapping[str, Any], timing: Timing) -> dict[str, Any] | None:
    """``ng_perf`` with how long the rollout waited and took; only for a result that has a response to speak of."""
    milliseconds = timing.elapsed_seconds * 1000
    given = row.get("ng_perf")
    perf = dict(given) if isinstance(given, Mapping) else rollout_perf(row)
    if perf is None:
        return None
    perf.setdefault("total_latency_ms", milliseconds)
    perf.setdefault("queue_ms", (timing.started_at - timing.pulled_at) * 1000)
    return perf


def _failure_row(
    row: Mapping[str, Any], failure: RolloutFailure, timing: Timing, secrets: Collection[str]
) -> dict[str, Any]:
    made = {
        **identity_in(row),
        FAILURE_CLASS: failure_class(failure),
        TERMINAL: failure.terminal,
        "_ng_failure_type": failure.exception_type or type(failure).__name__,
        "_ng_failure_message": failure.message[:_LONGEST_TEXT],
        "_ng_failure_http_status": failure.status,
        "_ng_failure_response_body": failure.body[:_LONGEST_TEXT] or None,
        "_ng_failure_stage": str(failure.stage),
        "failure_kind": str(failure.kind),
        "failure_reason": failure.message[:_LONGEST_TEXT],
        "delivery": str(failure.delivery),
        "elapsed_seconds": timing.elapsed_seconds,
    }
    for name, key in (("partial_response", "_ng_failure_partial_response"), ("judge_error", "_ng_failure_judge_error")):
        if failure.details.get(name) is not None:
            made[key] = failure.details[name]
    return redact_failure(made, secrets)


def redact_failure(row: dict[str, Any], secrets: Collection[str]) -> dict[str, Any]:
    """A failure row without keys in its texts: a provider's refusal may quote the key that it refused."""
    texts = {name: redact(value, secrets=secrets) for name, value in row.items() if name.startswith("_ng_failure_")}
    if isinstance(row.get("failure_reason"), str):
        texts["failure_reason"] = redact(row["failure_reason"], secrets=secrets)
    return {**row, **texts}
