"""Tasks whose outcome differs between two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ._numbers import as_number
from ._rows import ROLLOUT_INDEX, TASK_INDEX, TaskIndex, task_order

PASS_THRESHOLD = 0.5
SHOWN_EACH_WAY = 10
_PASS_TO_FAIL, _FAIL_TO_PASS, _CHANGED = "pass_to_fail", "fail_to_pass", "changed"

Group = Mapping[str, Any]


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


def groups_by_task(groups: Sequence[Group]) -> dict[TaskIndex, Group]:
    """The rows of ``group_level_metrics`` by task."""
    return {group[TASK_INDEX]: group for group in groups if TASK_INDEX in group}


def flip_summary(
    baseline: Mapping[TaskIndex, Group], candidate: Mapping[TaskIndex, Group], shown: int = SHOWN_EACH_WAY
) -> FlipSummary:
    """Compare the tasks that both runs have."""
    common = sorted(baseline.keys() & candidate.keys(), key=task_order)
    summary = FlipSummary(
        mode="unavailable",
        common_task_count=len(common),
        baseline_only_task_count=len(baseline.keys() - candidate.keys()),
        candidate_only_task_count=len(candidate.keys() - baseline.keys()),
    )
    if not baseline or not candidate:
        return attrs.evolve(summary, reason="a run has no metrics of single tasks")
    if not common:
        return attrs.evolve(summary, reason="the runs have no task in common")
    pairs = [(task, baseline[task], candidate[task]) for task in common]
    flips = [flip for pair in pairs if (flip := _flip(*pair)) is not None]
    if not flips:
        return attrs.evolve(summary, reason="no task in common has a reward in both runs")
    binary = all(_is_binary(group) for _, *groups in pairs for group in groups)
    return _counted(attrs.evolve(summary, mode="binary" if binary else "continuous"), flips, shown)


def _flip(task: TaskIndex, baseline: Group, candidate: Group) -> TaskFlip | None:
    before, after = as_number(baseline.get("mean/reward")), as_number(candidate.get("mean/reward"))
    if before is None or after is None:
        return None
    direction = _CHANGED
    if before > PASS_THRESHOLD > after:
        direction = _PASS_TO_FAIL
    elif before < PASS_THRESHOLD < after:
        direction = _FAIL_TO_PASS
    return TaskFlip(task, before, after, after - before, direction, _rewards(baseline), _rewards(candidate))


def _counted(summary: FlipSummary, flips: Sequence[TaskFlip], shown: int) -> FlipSummary:
    ways = [_PASS_TO_FAIL, _FAIL_TO_PASS]
    to_fail, to_pass = ([flip for flip in flips if flip.direction == way] for way in ways)
    tied = sum(PASS_THRESHOLD in (flip.baseline_score, flip.candidate_score) for flip in flips)
    changed = [flip for flip in flips if flip.delta]
    listed = [to_fail, to_pass]
    if summary.mode == "continuous":
        listed.append([flip for flip in changed if flip.direction == _CHANGED])
        unchanged = len(flips) - len(changed)
    else:
        unchanged = len(flips) - len(to_fail) - len(to_pass) - tied
    return attrs.evolve(
        summary,
        pass_to_fail_count=len(to_fail),
        fail_to_pass_count=len(to_pass),
        tied_count=tied,
        unchanged_count=unchanged,
        changed_count=len(changed),
        net=len(to_pass) - len(to_fail),
        # Stable: tasks that moved equally far stay in the order of their indices.
        flips=tuple(flip for way in listed for flip in sorted(way, key=lambda flip: -abs(flip.delta))[:shown]),
    )


def _rewards(group: Group) -> list[float] | None:
    infos = group.get("rollout_infos")
    if not isinstance(infos, list):
        return None
    ordered = sorted(infos, key=lambda info: info.get(ROLLOUT_INDEX, 0))
    rewards = [number for info in ordered if (number := as_number(info.get("reward"))) is not None]
    return rewards or None


def _is_binary(group: Group) -> bool:
    ends = [group.get("min/reward"), group.get("max/reward")]
    return all(value in (0, 1) for value in ends) if None not in ends else group.get("mean/reward") in (0, 1, None)
