"""The one task that acts on what falls due: sessions past their time to live, receipts past their window."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic

import trio

from ._expiry import Expiries
from ._records import Session, State


class Reaper(Generic[State]):
    """Calls ``act`` with each session that falls due; sleeps until the next one."""

    def __init__(self, act: Callable[[Session[State]], None]) -> None:
        self._act = act
        self._expiries: Expiries[Session[State]] = Expiries()
        self._sleeps_until = -math.inf
        self._sooner = trio.Event()

    def watch(self, session: Session[State], now: float) -> None:
        """``session`` has a due time, or an earlier one than before."""
        self._expiries.push(session, now)
        if self._expiries.next_at < self._sleeps_until:
            self._sooner.set()

    async def run(self) -> None:
        """**Cancellation**: the only way it ends."""
        while True:
            for session in self._expiries.pop_due(trio.current_time()):
                self._act(session)
            self._sooner = trio.Event()
            self._sleeps_until = self._expiries.next_at
            with trio.move_on_at(self._sleeps_until):
                await self._sooner.wait()
