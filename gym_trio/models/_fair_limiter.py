"""`FairLimiter`: how many calls, and how many a minute, one endpoint gets; rollouts take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

__all__ = ["FairLimiter", "LimiterStatistics"]

# Where there is a rate, this many seconds' worth of it may start at once.
BURST_SECONDS = 1.0


@attrs.frozen
class LimiterStatistics:
    """One moment: calls in flight, calls waiting, and how much longer the endpoint wants to be left alone."""

    in_flight: int
    waiting: int
    paused_seconds: float


@attrs.define(eq=False)
class _Waiter:
    """One call in the queue. ``admitted`` is set together with ``event``: from then on it holds a slot."""

    event: trio.Event
    admitted: bool = False


class FairLimiter:
    """Admits calls to one endpoint.

    Waiting calls are admitted in turns: one of each rollout, then the next of each, however many a rollout has queued.
    `pause` holds everybody back, for an endpoint that has asked for it. Decisions are made without a checkpoint.

    `pace` must run for as long as the limiter is used: it admits what only the clock held back.
    """

    def __init__(self, max_concurrent: int | None = None, requests_per_minute: float | None = None) -> None:
        self._max_concurrent = max_concurrent
        self._interval = 60 / requests_per_minute if requests_per_minute else 0.0
        self._in_flight = 0
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._due = 0.0  # when the next call is due under the rate
        self._paused_until = 0.0
        self._bell = trio.Event()  # rung when the pacer has something to look at

    def statistics(self) -> LimiterStatistics:
        waiting = sum(map(len, self._waiting.values()))
        return LimiterStatistics(self._in_flight, waiting, max(0.0, self._paused_until - trio.current_time()))

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def pause(self, seconds: float) -> None:
        """Admit nobody for ``seconds``. A pause never shortens one that holds already."""
        self._paused_until = max(self._paused_until, trio.current_time() + seconds)
        self._bell.set()

    @asynccontextmanager
    async def slot(self, rollout: str) -> AsyncIterator[None]:
        """A slot for the length of the block.

        **Cancellation**: a cancelled wait leaves the queue and takes nothing with it.
        """
        if self._waiting or self._opens_at() > trio.current_time() or not self._has_room():
            await self._wait(rollout)
        else:
            self._take()
        try:
            yield
        finally:
            self._release()

    async def _wait(self, rollout: str) -> None:
        waiter = _Waiter(trio.Event())
        queue = self._waiting.setdefault(rollout, deque())
        queue.append(waiter)
        self._bell.set()
        try:
            await waiter.event.wait()
        except BaseException:
            if waiter.admitted:
                self._release()
            else:
                queue.remove(waiter)
                if not queue:
                    del self._waiting[rollout]
            raise

    def _has_room(self) -> bool:
        return self._max_concurrent is None or self._in_flight < self._max_concurrent

    def _opens_at(self) -> float:
        return max(self._paused_until, self._due - BURST_SECONDS if self._interval < BURST_SECONDS else self._due)

    def _take(self) -> None:
        self._in_flight += 1
        if self._interval:
            self._due = max(self._due, trio.current_time()) + self._interval

    def _release(self) -> None:
        self._in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        """Admit whoever may start now."""
        now = trio.current_time()
        while self._waiting and self._has_room() and self._opens_at() <= now:
            rollout, queue = next(iter(self._waiting.items()))
            waiter = queue.popleft()
            if queue:
                self._waiting.move_to_end(rollout)
            else:
                del self._waiting[rollout]
            self._take()
            waiter.admitted = True
            waiter.event.set()
        if self._waiting and self._has_room():
            self._bell.set()

    async def pace(self) -> None:
        """Admit what a pause or the rate held back when its time comes. Runs until cancelled."""
        while True:
            self._bell = trio.Event()
            self._admit()
            if self._waiting and self._has_room():
                await trio.sleep_until(self._opens_at())
            else:
                await self._bell.wait()
