"""`HealthChecker`: verdicts of rollouts, findings about tasks, and the summary of a run.

Rows go in one at a time and leave a small digest each; duplicates and tasks are judged at the end. A rollout with any
finding is unhealthy; else, with any check that was not evaluable, unobserved; else healthy. Health never changes a
score or an exit code.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ..errors import RowError, UsageError
from ._checks import CHECKS, Check, Finding
from ._digest import RolloutDigest, Verdict, digest_of
from ._digests import Digests
from ._evidence import Evidence, gather
from ._quality import TASK_CHECKS, summarize_quality
from ._rows import rollout_of, task_of

CHECK_EXECUTION_ERROR = "check_execution_error"
RECORD_UNREADABLE = "record_unreadable"
DUPLICATE_IDENTITY = "rollout_duplicate_identity"

_RECORD_CHECKS = (CHECK_EXECUTION_ERROR, RECORD_UNREADABLE, DUPLICATE_IDENTITY)
CHECK_IDS: tuple[str, ...] = (*_RECORD_CHECKS, *CHECKS, *TASK_CHECKS)

logger = logging.getLogger(__name__)


@attrs.frozen
class HealthReport:
    """``summary`` is ``quality_summary.json``; `verdicts` yields the lines of ``rollout_verdicts.jsonl`` in order."""

    summary: dict[str, Any]
    rollouts: Sequence[RolloutDigest]

    def verdicts(self) -> Iterator[dict[str, Any]]:
        return (digest.to_json() for digest in self.rollouts)

    @property
    def line(self) -> str:
        """One sentence for a person."""
        counts = self.summary["run"]["verdicts"]
        ignored = self.summary["run"]["ignored_checks"]
        note = f" (ignored: {', '.join(ignored)})" if ignored else ""
        parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
        return f"health of {len(self.rollouts)} rollouts: {parts}{note}"


def normalize_ignored(checks: str | Iterable[str] | None) -> frozenset[str]:
    """Check ids from a text or several, each with one id or more with commas between.

    **Errors**: `UsageError` names an id that does not exist.
    """
    texts = [checks] if isinstance(checks, str) else (checks or ())
    ignored = frozenset(name.strip() for text in texts for name in text.split(",") if name.strip())
    unknown = sorted(ignored - set(CHECK_IDS))
    if unknown:
        raise UsageError(f"no such health check: {', '.join(unknown)}; there are {', '.join(CHECK_IDS)}")
    return ignored


class HealthChecker:
    """Takes the records of a run one by one; `finish` judges the whole.

    ``checks`` are the checks of single rollouts by id; one that raises leaves a ``check_execution_error`` and nothing
    else. **Errors**: `UsageError` for an unknown id in ``ignored``.
    """

    def __init__(self, *, ignored: str | Iterable[str] | None = None, checks: Mapping[str, Check] = CHECKS) -> None:
        self._ignored = normalize_ignored(ignored)
        self._checks = {name: check for name, check in checks.items() if name not in self._ignored}
        self._digests = Digests()
        # Equal tuples are shared: a million rollouts without a trajectory have one list of unobserved checks.
        self._unobserved: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"<HealthChecker records={len(self._digests)}>"

    def add(self, row: Any, *, source_file: str = "", line: int | None = None, source_index: int = 0) -> RolloutDigest:
        """Judge one output row. What is no object, or has an index that is none, is an unreadable record."""
        if not isinstance(row, Mapping):
            return self.add_unreadable(source_file, line, f"not an object but {type(row).__name__}", source_index)
        try:
            task, rollout = task_of(row), rollout_of(row)
        except RowError as exc:
            return self.add_unreadable(source_file, line, str(exc), source_index)
        task = len(self._digests) if task is None else task
        evidence = gather(row)
        findings, unobserved = self._judge(evidence)
        unobserved = self._unobserved.setdefault(unobserved, unobserved)
        digest = digest_of(row, evidence, task, rollout or 0, tuple(findings), unobserved)
        self._digests.append(digest)
        return digest

    def add_unreadable(self, source_file: str, line: int | None, error: str, source_index: int = 0) -> RolloutDigest:
        """Record a line that is no JSON object, under a pseudo task of its own."""
        task = f"__unreadable_record__:input-{source_index}:line-{line}"
        finding = Finding(
            RECORD_UNREADABLE,
            {"reason": "the record cannot be read", "error": error},
            {"source_file": source_file, "line": line},
        )
        unobserved = tuple(
            name for name in (*_RECORD_CHECKS, *self._checks) if name not in {*self._ignored, RECORD_UNREADABLE}
        )
        findings = () if RECORD_UNREADABLE in self._ignored else (finding,)
        digest = RolloutDigest(task, 0, None, f"{task}-0", findings, unobserved)
        self._digests.append(digest)
        return digest

    def _judge(self, evidence: Evidence) -> tuple[list[Finding], tuple[str, ...]]:
        findings: list[Finding] = []
        unobserved = []
        if evidence.trajectory_error and RECORD_UNREADABLE not in self._ignored:
            detail = {"reason": "the trajectory cannot be read", "error": evidence.trajectory_error}
            findings.append(Finding(RECORD_UNREADABLE, detail))
        for name, check in self._checks.items():
            try:
                found = check(evidence)
            except Exception as exc:
                logger.warning("health check %s raised", name, exc_info=True)
                found = None
                if CHECK_EXECUTION_ERROR not in self._ignored:
                    detail = {"check": name, "error": f"{type(exc).__name__}: {exc}"[:500]}
                    findings.append(Finding(CHECK_EXECUTION_ERROR, detail))
            if found is None:
                unobserved.append(name)
            else:
                findings += found
        return findings, tuple(unobserved)

    def finish(self) -> HealthReport:
        """Judge duplicates and tasks, and sum up. Records added later are judged by the next `finish`."""
        digests = self._digests.in_order(None if DUPLICATE_IDENTITY in self._ignored else _duplicate)
        return HealthReport(summarize_quality(digests, CHECK_IDS, self._ignored), digests)


def check_health(rows: Iterable[Any], *, ignored: str | Iterable[str] | None = None) -> HealthReport:
    """`HealthChecker` over rows that are all at hand."""
    checker = HealthChecker(ignored=ignored)
    for row in rows:
        checker.add(row)
    return checker.finish()


def _duplicate(count: int) -> Finding:
    return Finding(DUPLICATE_IDENTITY, {"duplicate_count": count})
