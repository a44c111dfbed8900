"""``quality_summary.json``: what the verdicts of many rollouts amount to, for the run and for each task."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ._digest import RolloutDigest, Verdict
from ._rows import TaskIndex, task_order

CONSISTENTLY_UNHEALTHY = "task_consistently_unhealthy"
NO_SUCCESSFUL_CALLS = "task_no_successful_model_calls"
TASK_CHECKS = (CONSISTENTLY_UNHEALTHY, NO_SUCCESSFUL_CALLS)


@attrs.frozen
class _Repeat:
    """One repeat of a task; records that claim the same repeat and do not agree make it unobserved."""

    verdict: Verdict
    calls_known: bool
    successful_calls: int


def _repeats(digests: Iterable[RolloutDigest]) -> list[_Repeat]:
    copies: defaultdict[Any, list[RolloutDigest]] = defaultdict(list)
    for digest in digests:
        copies[digest.rollout].append(digest)
    return [_repeat(group) for group in copies.values()]


def _repeat(copies: Sequence[RolloutDigest]) -> _Repeat:
    verdicts = {digest.verdict for digest in copies}
    return _Repeat(
        verdict=verdicts.pop() if len(verdicts) == 1 else Verdict.UNOBSERVED,
        calls_known=all(digest.calls_known for digest in copies),
        successful_calls=max(digest.successful_calls for digest in copies),
    )


def task_consistently_unhealthy(repeats: Sequence[_Repeat]) -> bool | None:
    """Every repeat that has a verdict is unhealthy; None with fewer than two such repeats."""
    verdicts = [repeat.verdict for repeat in repeats if repeat.verdict is not Verdict.UNOBSERVED]
    return None if len(verdicts) < 2 else all(verdict is Verdict.UNHEALTHY for verdict in verdicts)


def task_no_successful_model_calls(repeats: Sequence[_Repeat]) -> bool | None:
    """No call of the agent's own succeeded in any repeat; None unless the calls of all repeats are known."""
    if not all(repeat.calls_known for repeat in repeats):
        return None
    return not any(repeat.successful_calls for repeat in repeats)


_JUDGES = {CONSISTENTLY_UNHEALTHY: task_consistently_unhealthy, NO_SUCCESSFUL_CALLS: task_no_successful_model_calls}


def summarize_quality(
    digests: Sequence[RolloutDigest], check_ids: Sequence[str], ignored: frozenset[str]
) -> dict[str, Any]:
    """The content of ``quality_summary.json``; ``check_ids`` are all checks in their order."""
    coverage = _coverage(digests, check_ids, ignored)
    issues = Counter(finding.check for digest in digests for finding in digest.findings)
    tasks = _tasks(digests, coverage, issues, ignored)
    verdicts = Counter(digest.verdict for digest in digests)
    return {
        "run": {
            "ignored_checks": sorted(ignored),
            "artifacts": {
                "records": len(digests),
                "captures": sum(digest.captured for digest in digests),
                "coverage": coverage,
            },
            "verdicts": {str(verdict): verdicts[verdict] for verdict in Verdict},
            "issues": {check: issues[check] for check in check_ids},
            "stats": _statistics(digests),
        },
        "tasks": tasks,
    }


def _coverage(
    digests: Sequence[RolloutDigest], check_ids: Sequence[str], ignored: frozenset[str]
) -> dict[str, dict[str, int]]:
    unobserved: Counter[str] = Counter()
    for names, count in Counter(digest.unobserved for digest in digests).items():
        unobserved.update(dict.fromkeys(names, count))
    coverage = {}
    for check in check_ids:
        total = 0 if check in TASK_CHECKS else len(digests)
        hidden = total if check in ignored else 0
        blind = 0 if hidden else unobserved[check]
        coverage[check] = {"evaluated": total - hidden - blind, "unobserved": blind, "ignored": hidden}
    return coverage


def _tasks(
    digests: Sequence[RolloutDigest],
    coverage: dict[str, dict[str, int]],
    issues: Counter[str],
    ignored: frozenset[str],
) -> dict[str, Any]:
    """Judge each task; adds what it finds to ``coverage`` and ``issues``."""
    by_task: defaultdict[TaskIndex, list[RolloutDigest]] = defaultdict(list)
    for digest in digests:
        by_task[digest.task].append(digest)
    tasks = {}
    for task in sorted(by_task, key=task_order):
        repeats = _repeats(by_task[task])
        flags = []
        for check, judge in _JUDGES.items():
            flagged = judge(repeats)
            state = "ignored" if check in ignored else "unobserved" if flagged is None else "evaluated"
            coverage[check][state] += 1
            if flagged and check not in ignored:
                flags.append(check)
        issues.update(flags)
        verdicts = Counter(repeat.verdict for repeat in repeats)
        counts = {str(verdict): verdicts[verdict] for verdict in Verdict}
        tasks[str(task)] = {"repeats": len(repeats), **counts, "flags": flags}
    return tasks


def _statistics(digests: Sequence[RolloutDigest]) -> dict[str, Any]:
    statuses = Counter(status for digest in digests for status in digest.failed_statuses)
    sums = [sum(column) for column in zip(*(digest.tokens for digest in digests), strict=True)] or [0, 0, 0, 0]
    return {
        "model_call_errors": {
            "total": statuses.total(),
            "by_status": dict(sorted(statuses.items())),
            "rollouts_affected": sum(bool(digest.failed_statuses) for digest in digests),
            "ended_on_error": sum(digest.ended_on_error for digest in digests),
        },
        "duplicated_calls": {
            "replayed": sum(digest.replayed for digest in digests),
            "rollouts": sum(bool(digest.replayed) for digest in digests),
        },
        "tokens": dict(zip(("prompt", "completion", "capture_prompt", "capture_completion"), sums, strict=True)),
    }
