"""`SourceRows`: the rows of one agent as columns of numbers, ready to be described.

A million rows take four or eight bytes for each of their numbers, and about thirty for their identity. Payloads are
kept only where an author's hook asks for them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from ._passk import ScoreColumn
from ._rollout_keys import RolloutKey, RolloutKeys, TaskGroups
from ._rows import ROLLOUT_INDEX, TASK_INDEX, RowSummary, TaskIndex, strip_payload
from ._table import NumberTable

# A task's next repeat is looked for from here on; up to here it is found as fast by asking for each.
_FEW = 8


@attrs.define
class SourceRows:
    """All rows of one `Source`. Positions are the order in which rollouts first came.

    Of two rows for one rollout the one of the later attempt stands; of the same attempt, the first.
    """

    keep_rows: bool = False
    numbers: NumberTable = attrs.field(factory=NumberTable)
    perf: NumberTable = attrs.field(factory=NumberTable)
    keys: RolloutKeys = attrs.field(factory=RolloutKeys)
    masked: bytearray = attrs.field(factory=bytearray)
    with_perf: bytearray = attrs.field(factory=bytearray)
    duplicates: int = 0
    _attempts: dict[int, int] = attrs.field(factory=dict)  # position → attempt, where it is not the first
    _next: dict[TaskIndex, int] = attrs.field(factory=dict)
    _kept: list[dict[str, Any]] = attrs.field(factory=list)

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: RolloutKey) -> bool:
        return key in self.keys

    def add(self, summary: RowSummary, row: Mapping[str, Any]) -> None:
        """Add one row; a row without a task belongs to task 0, one without a repeat is the task's next."""
        task = 0 if summary.task is None else summary.task
        rollout = self._next_rollout(task) if summary.rollout is None else summary.rollout
        position = self.keys.find(task, rollout)
        if position is None:
            position = self.keys.add(task, rollout)
            self.masked.append(summary.masked)
            self.with_perf.append(summary.perf is not None)
            self.numbers.append(summary.numbers)
            self.perf.append(summary.perf or {})
            if self.keep_rows:
                self._kept.append(_indexed(row, (task, rollout)))
            if summary.attempt:
                self._attempts[position] = summary.attempt
            return
        self.duplicates += 1
        if summary.attempt > self._attempts.get(position, 0):
            self._attempts[position] = summary.attempt
            self.masked[position] = summary.masked
            self.with_perf[position] = summary.perf is not None
            self.numbers.replace(position, summary.numbers)
            self.perf.replace(position, summary.perf or {})
            if self.keep_rows:
                self._kept[position] = _indexed(row, (task, rollout))

    def _next_rollout(self, task: TaskIndex) -> int:
        rollout = self._next.get(task, 0)
        while self.keys.find(task, rollout) is not None:
            rollout += 1
        if rollout >= _FEW:
            self._next[task] = rollout + 1
        return rollout

    def measured(self) -> array[int]:
        """The positions of the rows that are not masked, by task and then by repeat."""
        return self.keys.in_order(position for position, masked in enumerate(self.masked) if not masked)

    def by_task(self, ordered: array[int]) -> TaskGroups:
        """Positions in the order of `measured`, those of each task together."""
        return self.keys.by_task(ordered)

    def task_of(self, group: Sequence[int]) -> TaskIndex:
        """The task of a group of positions."""
        return self.keys.task(group[0])

    def tasks(self) -> int:
        """How many tasks there are, masked ones too."""
        return len(self.keys.by_task(self.keys.in_order(range(len(self)))))

    def scores(self, name: str, groups: Sequence[Sequence[int]]) -> ScoreColumn:
        """One column as scores of tasks, made anew each time that it is gone through."""
        return _Scores(self.numbers, name, groups)

    def rows_by_task(self, groups: Sequence[Sequence[int]]) -> list[list[dict[str, Any]]]:
        """The kept rows, as hooks get them: copies of the top level, so that a hook cannot change ours."""
        return [[dict(self._kept[position]) for position in group] for group in groups]

    def masked_by_task(self) -> Counter[TaskIndex]:
        """How many rows of each task are masked."""
        return Counter(self.keys.task(position) for position, masked in enumerate(self.masked) if masked)

    def rollout_infos(self, group: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The numbers of each rollout of one task."""
        for position in group:
            task, rollout = self.keys[position]
            identity = {"rollout_id": f"{task}:{rollout}", TASK_INDEX: task, ROLLOUT_INDEX: rollout}
            yield identity | self.numbers.row(position)


@attrs.frozen
class _Scores:
    _numbers: NumberTable
    _name: str
    _groups: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[list[float | None]]:
        for group in self._groups:
            yield self._numbers.cells(self._name, group)


def _indexed(row: Mapping[str, Any], key: RolloutKey) -> dict[str, Any]:
    return strip_payload(row) | {TASK_INDEX: key[0], ROLLOUT_INDEX: key[1]}
