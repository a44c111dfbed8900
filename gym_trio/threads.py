"""`Threads`: where plain functions run that may hang, apart from the threads that all the others share."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

__all__ = ["Threads"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Threads:
    """Up to ``most`` threads at once, in each run of trio.

    A call that hangs keeps its place here until it ends, whoever has given it up. So it takes none of the process's
    shared threads, in which names are looked up and files are written.
    """

    def __init__(self, most: int = 100) -> None:
        self._most = most
        # By run, for a call that outlives its run never gives its place back.
        self._limiters: weakref.WeakKeyDictionary[trio.lowlevel.TrioToken, trio.CapacityLimiter] = (
            weakref.WeakKeyDictionary()
        )

    async def run(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """What ``call`` returns.

        **Cancellation**: leaves the call to itself.

        **Errors**: what it raises.
        """
        token = trio.lowlevel.current_trio_token()
        limiter = self._limiters.get(token)
        if limiter is None:
            limiter = self._limiters[token] = trio.CapacityLimiter(self._most)
        return await trio.to_thread.run_sync(call, *arguments, abandon_on_cancel=True, limiter=limiter)
