"""Tasks that wait, first come first served, where waking one costs one resumption."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")


class _Place(Generic[T]):
    """One task's place in a line. What it is given lies here, because trio's own hand-over keeps a reference to it."""

    __slots__ = ("given", "task")
    given: T

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task = task


class Line(Generic[T]):
    """A first-in first-out line of tasks, each of which is given one thing.

    A task that is cancelled leaves the line from anywhere in constant time, and takes nothing with it. One that has
    been given something is no longer in the line: it returns with it, even if it is cancelled in the same tick.
    """

    __slots__ = ("_places",)

    def __init__(self) -> None:
        # Ordered, and not a plain dict: taking the first of those is linear in what was taken before.
        self._places: OrderedDict[_Place[T], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    async def wait(self) -> T:
        """Wait for `give`. A checkpoint."""
        place: _Place[T] = _Place(trio.lowlevel.current_task())
        self._places[place] = None

        def leave(_: Any) -> trio.lowlevel.Abort:
            del self._places[place]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)
        return place.given

    def give(self, thing: T) -> None:
        """Give ``thing`` to the task that has waited longest; there must be one."""
        place, _ = self._places.popitem(last=False)
        place.given = thing
        trio.lowlevel.reschedule(place.task)

    def give_all(self, thing: T) -> None:
        """Give ``thing`` to every task in the line."""
        while self._places:
            self.give(thing)
