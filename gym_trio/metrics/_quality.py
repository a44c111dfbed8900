"""``quality_summary.json``: what the verdicts of many rollouts amount to, for the run and for each task."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ._digest import RolloutDigest, Verdict
from ._digests import Digests

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


def summarize_quality(digests: Digests, check_ids: Sequence[str], ignored: frozenset[str]) -> dict[str, Any]:
    """The content of ``quality_summary.json``; ``check_ids`` are all checks in their order.

    Of the entries of tasks those that are alike are one object.
    """
    shapes = digests.shapes()
    coverage = _coverage(shapes, len(digests), check_ids, ignored)
    issues: Counter[str] = Counter()
    verdicts: Counter[Verdict] = Counter()
    for shape, count in shapes:
        verdicts[shape.verdict] += count
        for finding in shape.findings:
            issues[finding.check] += count
    tasks = _tasks(digests, coverage, issues, ignored)
    return {
        "run": {
            "ignored_checks": sorted(ignored),
            "artifacts": {
                "records": len(digests),
                "captures": sum(count for shape, count in shapes if shape.captured),
                "coverage": coverage,
            },
            "verdicts": {str(verdict): verdicts[verdict] for verdict in Verdict},
            "issues": {check: issues[check] for check in check_ids},
            "stats": _statistics(shapes, digests.token_sums()),
        },
        "tasks": tasks,
    }


_Shapes = Sequence[tuple[RolloutDigest, int]]


def _coverage(
    shapes: _Shapes, records: int, check_ids: Sequence[str], ignored: frozenset[str]
) -> dict[str, dict[str, int]]:
    unobserved: Counter[str] = Counter()
    for shape, count in shapes:
        for name in shape.unobserved:
            unobserved[name] += count
    coverage = {}
    for check in check_ids:
        total = 0 if check in TASK_CHECKS else records
        hidden = total if check in ignored else 0
        blind = 0 if hidden else unobserved[check]
        coverage[check] = {"evaluated": total - hidden - blind, "unobserved": blind, "ignored": hidden}
    return coverage


def _tasks(
    digests: Digests,
    coverage: dict[str, dict[str, int]],
    issues: Counter[str],
    ignored: frozenset[str],
) -> dict[str, Any]:
    """Judge each task; adds what it finds to ``coverage`` and ``issues``."""
    tasks: dict[str, Any] = {}
    judged: dict[int, _Judged] = {}  # by the shape of their one record
    alike: dict[str, dict[str, Any]] = {}
    for task, places, shape in digests.by_task():
        found = None if shape is None else judged.get(shape)
        if found is None:
            found = _judge([digests[at] for at in places], ignored)
            if shape is not None:
                judged[shape] = found
        for check, state in found.states.items():
            coverage[check][state] += 1
        issues.update(found.entry["flags"])
        tasks[str(task)] = alike.setdefault(repr(found.entry), found.entry)
    return tasks


@attrs.frozen
class _Judged:
    """A task's entry, and how far each check could look at it."""

    entry: dict[str, Any]
    states: dict[str, str]


def _judge(digests: Sequence[RolloutDigest], ignored: frozenset[str]) -> _Judged:
    repeats = _repeats(digests)
    flags, states = [], {}
    for check, judge in _JUDGES.items():
        flagged = judge(repeats)
        states[check] = "ignored" if check in ignored else "unobserved" if flagged is None else "evaluated"
        if flagged and check not in ignored:
            flags.append(check)
    verdicts = Counter(repeat.verdict for repeat in repeats)
    counts = {str(verdict): verdicts[verdict] for verdict in Verdict}
    return _Judged({"repeats": len(repeats), **counts, "flags": flags}, states)


def _statistics(shapes: _Shapes, tokens: Sequence[int]) -> dict[str, Any]:
    statuses: Counter[str] = Counter()
    for shape, count in shapes:
        for status in shape.failed_statuses:
            statuses[status] += count
    return {
        "model_call_errors": {
            "total": statuses.total(),
            "by_status": dict(sorted(statuses.items())),
            "rollouts_affected": sum(count for shape, count in shapes if shape.failed_statuses),
            "ended_on_error": sum(count for shape, count in shapes if shape.ended_on_error),
        },
        "duplicated_calls": {
            "replayed": sum(count * shape.replayed for shape, count in shapes),
            "rollouts": sum(count for shape, count in shapes if shape.replayed),
        },
        "tokens": dict(zip(("prompt", "completion", "capture_prompt", "capture_completion"), tokens, strict=True)),
    }
