"""Tasks whose outcome differs between two runs."""

from __future__ import annotations

import heapq
from array import array

import attrs

from ._rows import TaskIndex
from ._tasks import CommonTasks

PASS_THRESHOLD = 0.5
SHOWN_EACH_WAY = 10
_PASS_TO_FAIL, _FAIL_TO_PASS, _CHANGED, _SAME = "pass_to_fail", "fail_to_pass", "changed", "same"


@attrs.frozen
class TaskFlip:
    """One task: its mean reward in both runs, and the rewards of its repeats."""

    task_index: TaskIndex
    baseline_score: float
    candidate_score: float
    delta: float
    direction: str
    baseline_rewards: list[float] | None
    candidate_rewards: list[float] | None


@attrs.frozen
class FlipSummary:
    """The tasks of both runs, joined by index, and which of them flipped.

    ``mode`` is ``binary`` where all rewards are 0 or 1, ``continuous`` where not, and ``unavailable`` with a ``reason``
    where the runs have no task to compare. A task passes when its mean reward is above 0.5 and fails below; one that
    stands exactly there in either run is ``tied``. ``changed_count`` counts every task whose mean differs. ``flips``
    lists at most ``SHOWN_EACH_WAY`` of each direction, the largest first; in continuous mode also tasks that changed
    without flipping.
    """

    mode: str
    reason: str | None = None
    field: str = "reward"
    common_task_count: int = 0
    baseline_only_task_count: int = 0
    candidate_only_task_count: int = 0
    pass_to_fail_count: int | None = None
    fail_to_pass_count: int | None = None
    tied_count: int | None = None
    unchanged_count: int | None = None
    changed_count: int | None = None
    net: int | None = None
    flips: tuple[TaskFlip, ...] = ()


def flip_summary(common: CommonTasks, shown: int = SHOWN_EACH_WAY) -> FlipSummary:
    """Compare the tasks that both runs have."""
    baseline, candidate = common.baseline, common.candidate
    summary = FlipSummary(
        mode="unavailable",
        common_task_count=len(common),
        baseline_only_task_count=len(baseline) - len(common),
        candidate_only_task_count=len(candidate) - len(common),
    )
    if not len(baseline) or not len(candidate):
        return attrs.evolve(summary, reason="a run has no metrics of single tasks")
    if not len(common):
        return attrs.evolve(summary, reason="the runs have no task in common")
    ways, tied = _ways(common)
    if not any(ways.values()):
        return attrs.evolve(summary, reason="no task in common has a reward in both runs")
    binary = all(common.is_binary(number) for number in range(len(common)))
    listed = [_PASS_TO_FAIL, _FAIL_TO_PASS] if binary else [_PASS_TO_FAIL, _FAIL_TO_PASS, _CHANGED]
    counts = {way: len(numbers) for way, numbers in ways.items()}
    to_fail, to_pass = counts[_PASS_TO_FAIL], counts[_FAIL_TO_PASS]
    changed = to_fail + to_pass + counts[_CHANGED]
    everything = changed + counts[_SAME]
    return attrs.evolve(
        summary,
        mode="binary" if binary else "continuous",
        pass_to_fail_count=to_fail,
        fail_to_pass_count=to_pass,
        tied_count=tied,
        unchanged_count=everything - to_fail - to_pass - tied if binary else everything - changed,
        changed_count=changed,
        net=to_pass - to_fail,
        flips=tuple(flip for way in listed for flip in _largest(common, way, ways[way], shown)),
    )


def _ways(common: CommonTasks) -> tuple[dict[str, array[int]], int]:
    """The tasks with a reward in both runs, by where they went; and how many stand at the threshold."""
    ways: dict[str, array[int]] = {way: array("I") for way in (_PASS_TO_FAIL, _FAIL_TO_PASS, _CHANGED, _SAME)}
    tied = 0
    for number in range(len(common)):
        scores = common.scores(number)
        if scores is not None:
            ways[_way(*scores)].append(number)
            tied += PASS_THRESHOLD in scores
    return ways, tied


def _way(before: float, after: float) -> str:
    if before > PASS_THRESHOLD > after:
        return _PASS_TO_FAIL
    if before < PASS_THRESHOLD < after:
        return _FAIL_TO_PASS
    return _SAME if before == after else _CHANGED


def _largest(common: CommonTasks, way: str, numbers: array[int], shown: int) -> list[TaskFlip]:
    def order(number: int) -> float:
        before, after = common.scores(number) or (0.0, 0.0)
        return -abs(after - before)

    # Stable: tasks that moved equally far stay in the order of their indices.
    return [_flip(common, number, way) for number in heapq.nsmallest(shown, numbers, key=order)]


def _flip(common: CommonTasks, number: int, way: str) -> TaskFlip:
    before, after = common.scores(number) or (0.0, 0.0)
    baseline, candidate = common.in_baseline[number], common.in_candidate[number]
    return TaskFlip(
        common.baseline.task(baseline),
        before,
        after,
        after - before,
        way,
        common.baseline.rewards(baseline),
        common.candidate.rewards(candidate),
    )
