"""`SourceRows`: the rows of one agent as columns of numbers, ready to be described.

A million rows take eight bytes for each of their numbers, plus their identities. Payloads are kept only where an
author's hook asks for them.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ._passk import ScoreColumn
from ._rows import ROLLOUT_INDEX, TASK_INDEX, RowSummary, TaskIndex, strip_payload, task_order
from ._table import NumberTable

RolloutKey = tuple[TaskIndex, int]


@attrs.define
class SourceRows:
    """All rows of one `Source`. Positions are the order in which rollouts first came.

    Of two rows for one rollout the one of the later attempt stands; of the same attempt, the first.
    """

    keep_rows: bool = False
    numbers: NumberTable = attrs.field(factory=NumberTable)
    perf: NumberTable = attrs.field(factory=NumberTable)
    keys: list[RolloutKey] = attrs.field(factory=list)
    masked: bytearray = attrs.field(factory=bytearray)
    with_perf: bytearray = attrs.field(factory=bytearray)
    duplicates: int = 0
    _attempts: array[int] = attrs.field(factory=lambda: array("q"))
    _positions: dict[RolloutKey, int] = attrs.field(factory=dict)
    _next: dict[TaskIndex, int] = attrs.field(factory=dict)
    _kept: list[dict[str, Any]] = attrs.field(factory=list)

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: RolloutKey) -> bool:
        return key in self._positions

    def add(self, summary: RowSummary, row: Mapping[str, Any]) -> None:
        """Add one row; a row without a task belongs to task 0, one without a repeat is the task's next."""
        task = 0 if summary.task is None else summary.task
        rollout = self._next_rollout(task) if summary.rollout is None else summary.rollout
        key = (task, rollout)
        position = self._positions.get(key)
        if position is None:
            self._positions[key] = len(self.keys)
            self.keys.append(key)
            self._attempts.append(summary.attempt)
            self.masked.append(summary.masked)
            self.with_perf.append(summary.perf is not None)
            self.numbers.append(summary.numbers)
            self.perf.append(summary.perf or {})
            if self.keep_rows:
                self._kept.append(_indexed(row, key))
            return
        self.duplicates += 1
        if summary.attempt > self._attempts[position]:
            self._attempts[position] = summary.attempt
            self.masked[position] = summary.masked
            self.with_perf[position] = summary.perf is not None
            self.numbers.replace(position, summary.numbers)
            self.perf.replace(position, summary.perf or {})
            if self.keep_rows:
                self._kept[position] = _indexed(row, key)

    def _next_rollout(self, task: TaskIndex) -> int:
        rollout = self._next.get(task, 0)
        while (task, rollout) in self._positions:
            rollout += 1
        self._next[task] = rollout + 1
        return rollout

    def measured(self) -> list[int]:
        """The positions of the rows that are not masked, by task and then by repeat."""
        chosen = (position for position, masked in enumerate(self.masked) if not masked)
        return sorted(chosen, key=lambda position: (task_order(self.keys[position][0]), self.keys[position][1]))

    def by_task(self, positions: Iterable[int]) -> dict[TaskIndex, list[int]]:
        """Group positions by task, keeping their order."""
        return _grouped(positions, lambda position: self.keys[position][0])

    def by_rollout(self, positions: Iterable[int]) -> dict[int, list[int]]:
        """Group positions by repeat, in the order of the repeats."""
        groups = _grouped(positions, lambda position: self.keys[position][1])
        return {rollout: groups[rollout] for rollout in sorted(groups)}

    def scores(self, name: str, groups: Iterable[Sequence[int]]) -> ScoreColumn:
        """One column as scores of tasks."""
        return [[self.numbers.value(name, position) for position in group] for group in groups]

    def rows_by_task(self, groups: Iterable[Sequence[int]]) -> list[list[dict[str, Any]]]:
        """The kept rows, as hooks get them: copies of the top level, so that a hook cannot change ours."""
        return [[dict(self._kept[position]) for position in group] for group in groups]

    def masked_by_task(self) -> Counter[TaskIndex]:
        """How many rows of each task are masked."""
        return Counter(self.keys[position][0] for position, masked in enumerate(self.masked) if masked)

    def rollout_infos(self, group: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The numbers of each rollout of one task."""
        for position in group:
            task, rollout = self.keys[position]
            identity = {"rollout_id": f"{task}:{rollout}", TASK_INDEX: task, ROLLOUT_INDEX: rollout}
            yield identity | self.numbers.row(position)


def _indexed(row: Mapping[str, Any], key: RolloutKey) -> dict[str, Any]:
    return strip_payload(row) | {TASK_INDEX: key[0], ROLLOUT_INDEX: key[1]}


def _grouped(positions: Iterable[int], key: Callable[[int], Any]) -> dict[Any, list[int]]:
    groups: defaultdict[Any, list[int]] = defaultdict(list)
    for position in positions:
        groups[key(position)].append(position)
    return dict(groups)
