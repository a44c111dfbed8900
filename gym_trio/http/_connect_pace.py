"""`ConnectPace`: how many connections to one origin may be in the making at once."""

from __future__ import annotations

import trio

__all__ = ["ConnectPace"]

_FIRST = 32
_FEWEST = 4


class ConnectPace:
    """Holds new connections back for as long as used ones come free quickly for those who wait.

    More connections are of no use to a server that answers at once: its requests would wait on its own side instead,
    and each connection costs both ends as much as a request. A server that takes its time gets all it can be given.

    Which of the two it is shows while a connection is made: how many of those who wait got a used one meanwhile. Are
    they at least half of how many may be in the making (`allowed`), half as many may be from then on; are they less
    than an eighth, twice as many, up to ``most``. So no rate has to be known, and no time: where this process is slow
    itself, connects and answers are late alike. A few are made at any rate, so that nobody waits for others alone; and
    whoever finds that nobody waits begins anew.

    All this is for servers on this machine. To connect to another takes the network's time, as long as its answers or
    longer, and nearly none of this process's: ``most`` are made at once.
    """

    __slots__ = ("_begun", "_first", "_is_far", "_most", "_reused", "allowed")

    def __init__(self, most: int) -> None:
        self._most = most
        self._first = min(_FIRST, most)
        self._is_far = False  # or not known: no connection has been made
        # The connects that have begun since `allowed` was set, with how many had got a used one by then. It is set when
        # the first of them ends, whichever that is: one that hangs holds up nothing.
        self._begun: dict[trio.CancelScope, int] = {}
        self._reused = 0
        self.allowed = self._first

    def connect_begins(self, permit: trio.CancelScope, waiting: int) -> None:
        """``waiting``: so many requests do, besides the one that connects."""
        if not waiting:
            self.allowed = self._first
        self._begun[permit] = self._reused

    def connect_ended(self, permit: trio.CancelScope, *, far: bool | None) -> None:
        """``far``: whether the server is on another machine; None where no connection came of it."""
        before = self._begun.pop(permit, None)
        if far is not None and far is not self._is_far:
            self._is_far = far
            self.allowed = self._first = self._most if far else min(_FIRST, self._most)
        if before is None or self._is_far:
            return
        self._begun.clear()
        reused = self._reused - before
        if reused >= self.allowed / 2:
            self.allowed = max(self.allowed // 2, min(_FEWEST, self._most))
        elif reused < self.allowed / 8:
            self.allowed = min(self.allowed * 2, self._most)

    def reused(self) -> None:
        """Somebody who waited got a used connection."""
        self._reused += 1
