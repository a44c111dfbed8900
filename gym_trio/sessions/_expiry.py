"""What falls due when: a heap whose entries are checked against the truth when they come up."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Generic, Protocol, TypeVar


class Perishable(Protocol):
    def due_at(self, now: float) -> float: ...


Item = TypeVar("Item", bound=Perishable)


class Expiries(Generic[Item]):
    """Items by the time at which they fall due.

    An item's due time may move later at any moment without a word here (a session that is used): the entry is looked at
    when it comes up and put back. Only a time that moves earlier needs another `push`. Entries of items that are never
    due any more are swept when they are the majority, so the heap stays within a constant factor of what lives.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._order = itertools.count()
        self._sweep_at = 64

    @property
    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def push(self, item: Item, now: float) -> None:
        due = item.due_at(now)
        if due == math.inf:
            return
        heapq.heappush(self._heap, (due, next(self._order), item))
        if len(self._heap) > self._sweep_at:
            self._heap = [entry for entry in self._heap if entry[2].due_at(now) != math.inf]
            heapq.heapify(self._heap)
            self._sweep_at = 2 * len(self._heap) + 64

    def pop_due(self, now: float) -> list[Item]:
        """Take out everything that is due, each item once."""
        due: dict[int, Item] = {}
        while self._heap and self._heap[0][0] <= now:
            item = heapq.heappop(self._heap)[2]
            if item.due_at(now) <= now:
                due[id(item)] = item
            else:
                self.push(item, now)
        return list(due.values())

    def __len__(self) -> int:
        return len(self._heap)
