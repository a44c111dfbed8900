"""`RolloutKeys`: millions of (task, rollout) pairs in about thirty bytes each, found by value and by position.

A dict from pairs to positions takes ten times as much. Here a pair is two numbers in columns, and a hash table of
positions with open addressing says where a pair stands.
"""

from __future__ import annotations

import heapq
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from ._rows import TaskIndex, task_order

RolloutKey = tuple[TaskIndex, int]

_FEWEST_SLOTS = 16
_EMPTY = -1
# Indices from 0 up to here stand for themselves; names, and all other numbers, have a negative code each.
_PLAIN = 1 << 62
_RUN = 1 << 15  # so many positions are sorted at once, so that there are never millions of sort keys


class Codes:
    """Indices as numbers of 64 bits."""

    def __init__(self) -> None:
        self._codes: dict[TaskIndex, int] = {}
        self._values: list[TaskIndex] = []

    def __len__(self) -> int:
        return len(self._values)

    def encode(self, value: TaskIndex) -> int:
        """The code of an index."""
        if not isinstance(value, str) and 0 <= value < _PLAIN:
            return value
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = -1 - len(self._values)
            self._values.append(value)
        return code

    def decode(self, code: int) -> Any:
        """The index of a code."""
        return code if code >= 0 else self._values[-1 - code]


class RolloutKeys:
    """Pairs in the order in which they were added, each once."""

    def __init__(self) -> None:
        self._codes = Codes()
        self._tasks: array[int] = array("q")
        self._rollouts: array[int] = array("q")
        self._slots: array[int] = array("i", [_EMPTY]) * _FEWEST_SLOTS

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, position: int) -> RolloutKey:
        return self.task(position), self.rollout(position)

    def __iter__(self) -> Iterator[RolloutKey]:
        return map(self.__getitem__, range(len(self)))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and self.find(*key) is not None

    def task(self, position: int) -> TaskIndex:
        """The task of the pair at ``position``."""
        return self._codes.decode(self._tasks[position])  # type: ignore[no-any-return]

    def rollout(self, position: int) -> int:
        """The repeat of the pair at ``position``."""
        return self._codes.decode(self._rollouts[position])  # type: ignore[no-any-return]

    def find(self, task: TaskIndex, rollout: int) -> int | None:
        """The position of a pair, None where it was never added."""
        position = self._slots[self._slot(self._codes.encode(task), self._codes.encode(rollout))]
        return None if position == _EMPTY else position

    def add(self, task: TaskIndex, rollout: int) -> int:
        """Add a pair that is not there; returns its position."""
        position = len(self._tasks)
        task, rollout = self._codes.encode(task), self._codes.encode(rollout)
        self._tasks.append(task)
        self._rollouts.append(rollout)
        self._slots[self._slot(task, rollout)] = position
        if 3 * len(self._tasks) > 2 * len(self._slots):
            self._grow()
        return position

    def _slot(self, task: int, rollout: int) -> int:
        """The slot that holds the pair, or the free one where it belongs."""
        slots, tasks, rollouts = self._slots, self._tasks, self._rollouts
        mask = len(slots) - 1
        at = hash((task, rollout)) & mask
        while (position := slots[at]) != _EMPTY and (tasks[position] != task or rollouts[position] != rollout):
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        slots = array("i", [_EMPTY]) * (2 * len(self._slots))
        mask = len(slots) - 1
        for position, key in enumerate(zip(self._tasks, self._rollouts, strict=True)):
            at = hash(key) & mask
            while slots[at] != _EMPTY:
                at = (at + 1) & mask
            slots[at] = position
        self._slots = slots

    def in_order(self, positions: Iterable[int]) -> array[int]:
        """The positions by task, numbers before names, and then by repeat."""
        key = self._plain_key if not self._codes else self._coded_key
        pending = iter(positions)
        runs = iter(lambda: array("I", sorted(itertools.islice(pending, _RUN), key=key)), array("I"))
        return array("I", heapq.merge(*runs, key=key))

    def _plain_key(self, position: int) -> Any:
        return self._tasks[position], self._rollouts[position]

    def _coded_key(self, position: int) -> Any:
        return task_order(self.task(position)), self.rollout(position)

    def by_task(self, ordered: array[int]) -> TaskGroups:
        """Positions as `in_order` gives them, those of each task together."""
        starts = array("I")
        previous: int | None = None
        for at, position in enumerate(ordered):
            task = self._tasks[position]
            if task != previous:
                starts.append(at)
                previous = task
        return TaskGroups(ordered, starts)

    def by_rollout(self, positions: Iterable[int]) -> dict[int, array[int]]:
        """The positions of each repeat in the order of the repeats, those of one repeat in the order given."""
        groups: dict[int, array[int]] = {}
        for position in positions:
            code = self._rollouts[position]
            group = groups.get(code)
            if group is None:
                group = groups[code] = array("I")
            group.append(position)
        decode: Callable[[int], int] = self._codes.decode
        return {decode(code): groups[code] for code in sorted(groups, key=decode)}

    def repeats(self) -> int:
        """How many different repeats there are."""
        return len(set(self._rollouts))


class TaskGroups(Sequence["array[int]"]):
    """Positions, those of each task together: four bytes for each position and each task. Groups are made as asked."""

    def __init__(self, positions: array[int], starts: array[int]) -> None:
        self.positions = positions
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[array[int]]:
        ends = itertools.chain(itertools.islice(self._starts, 1, None), (len(self.positions),))
        for start, end in zip(self._starts, ends, strict=False):  # without a task there is no start for the last end
            yield self.positions[start:end]

    @overload
    def __getitem__(self, at: int) -> array[int]: ...
    @overload
    def __getitem__(self, at: slice) -> list[array[int]]: ...
    def __getitem__(self, at: int | slice) -> array[int] | list[array[int]]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        start = self._starts[at]
        end = at % len(self) + 1
        return self.positions[start : self._starts[end] if end < len(self) else len(self.positions)]
