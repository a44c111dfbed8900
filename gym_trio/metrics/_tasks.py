"""`TaskScores`: what a comparison keeps of each task of a run, about sixty bytes for millions of them."""

from __future__ import annotations

import heapq
import itertools
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from ._names import is_primary_metric
from ._numbers import as_number
from ._rollout_keys import RolloutKeys
from ._rows import ROLLOUT_INDEX, TaskIndex, finite, task_of
from ._table import NumberTable

Group = Mapping[str, Any]

_PART = 1 << 15  # so many numbers are sorted at once, so that there are never millions of float objects

_MEAN, _ENDS = "mean/reward", ("min/reward", "max/reward")


class TaskScores:
    """The rows of ``group_level_metrics`` by task: their estimates, and the rewards of their repeats.

    Of two rows for one task the later stands. **Errors**: `RowError` for a task index that is none.
    """

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._keys = RolloutKeys()
        self._numbers = NumberTable()
        self._rewards: array[float] = array("d")
        self._starts: array[int] = array("Q")
        self._counts: array[int] = array("I")
        self._is_kept: dict[str, bool] = {}
        self.most_expected: int | None = None  # the most rollouts that any task was to have
        for group in groups:
            self._add(group)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<TaskScores tasks={len(self)}>"

    def _add(self, group: Group) -> None:
        expected = group.get("expected_num_rollouts")
        if isinstance(expected, int):
            self.most_expected = max(self.most_expected or 0, expected)
        task = task_of(group)
        if task is None:
            return
        numbers = finite({name: value for name, value in group.items() if self._keeps(name)})
        start = len(self._rewards)
        self._rewards.extend(_rewards(group))
        at = self._keys.find(task, 0)
        if at is None:
            self._keys.add(task, 0)
            self._numbers.append(numbers)
            self._starts.append(start)
            self._counts.append(len(self._rewards) - start)
        else:
            self._numbers.replace(at, numbers)
            self._starts[at], self._counts[at] = start, len(self._rewards) - start

    def _keeps(self, name: str) -> bool:
        kept = self._is_kept.get(name)
        if kept is None:
            kept = self._is_kept[name] = name in _ENDS or is_primary_metric(name)
        return kept

    def task(self, at: int) -> TaskIndex:
        """The task at a position."""
        return self._keys.task(at)

    def value(self, name: str, at: int) -> float | None:
        """A task's estimate, None where it has none."""
        value = self._numbers.value(name, at)
        return None if value is None else float(value)

    def score(self, at: int) -> float | None:
        """A task's mean reward."""
        return self.value(_MEAN, at)

    def rewards(self, at: int) -> list[float] | None:
        """The rewards of a task's repeats in their order, None where they are not known."""
        start = self._starts[at]
        return list(self._rewards[start : start + self._counts[at]]) or None

    def is_binary(self, at: int) -> bool:
        """Whether a task's rewards are 0 and 1 only, as far as is known."""
        ends = [self.value(name, at) for name in _ENDS]
        return all(value in (0, 1) for value in ends) if None not in ends else self.score(at) in (0, 1, None)

    def common(self, other: TaskScores) -> CommonTasks:
        """The tasks of both, by task."""
        here, there = array("I"), array("I")
        for at in self._keys.in_order(range(len(self))):
            found = other._keys.find(self._keys.task(at), 0)
            if found is not None:
                here.append(at)
                there.append(found)
        return CommonTasks(self, other, here, there)


@attrs.frozen(eq=False)
class CommonTasks:
    """The tasks that two runs have, and where each of them is in both: eight bytes for a task."""

    baseline: TaskScores
    candidate: TaskScores
    in_baseline: array[int]
    in_candidate: array[int]

    def __len__(self) -> int:
        return len(self.in_baseline)

    def values(self, name: str, number: int) -> tuple[float, float] | None:
        """An estimate of the task of that number in both runs; None where one does not have it."""
        before = self.baseline.value(name, self.in_baseline[number])
        after = self.candidate.value(name, self.in_candidate[number])
        return None if before is None or after is None else (before, after)

    def scores(self, number: int) -> tuple[float, float] | None:
        """The mean rewards of the task of that number; None where a run has none."""
        return self.values(_MEAN, number)

    def is_binary(self, number: int) -> bool:
        """Whether the task of that number has rewards of 0 and 1 only, in both runs."""
        baseline, candidate = self.in_baseline[number], self.in_candidate[number]
        return self.baseline.is_binary(baseline) and self.candidate.is_binary(candidate)

    def differences(self, name: str) -> array[float]:
        """Candidate minus baseline, of each task that has the estimate in both.

        Sorted, so that the same tasks give the same resamples whatever order they have.
        """
        pairs = (self.values(name, number) for number in range(len(self)))
        found = (pair[1] - pair[0] for pair in pairs if pair is not None)
        parts = iter(lambda: array("d", sorted(itertools.islice(found, _PART))), array("d"))
        return array("d", heapq.merge(*parts))


def _rewards(group: Group) -> list[float]:
    infos = group.get("rollout_infos")
    if not isinstance(infos, list):
        return []
    ordered = sorted(infos, key=lambda info: info.get(ROLLOUT_INDEX, 0)) if len(infos) > 1 else infos
    return [number for info in ordered if (number := as_number(info.get("reward"))) is not None]
