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
    when nobody waits any more, it begins anew.

    All this is for servers on this machine. To connect to another takes the network's time and nearly none of this
    process's: ``most`` are made at once.
    """

    __slots__ = ("_most", "_reused", "_watched", "allowed")

    def __init__(self, most: int) -> None:
        self._most = most
        self._watched: trio.CancelScope | None = None  # the connect at whose end `allowed` is set
        self._reused = 0  # while it has been under way
        self.allowed = min(_FIRST, most)

    def connect_begins(self, permit: trio.CancelScope) -> None:
        if self._watched is None:
            self._watched = permit
            self._reused = 0

    def connect_ended(self, permit: trio.CancelScope, waiting: int, *, far: bool = False) -> None:
        """Well or not. ``waiting``: so many requests do; ``far``: it took the network's time."""
        if far:
            self.allowed = self._most
        elif not waiting:
            self.allowed = min(_FIRST, self._most)
        elif permit is self._watched:
            if self._reused >= self.allowed / 2:
                self.allowed = max(self.allowed // 2, min(_FEWEST, self._most))
            elif self._reused < self.allowed / 8:
                self.allowed = min(self.allowed * 2, self._most)
        if permit is self._watched:
            self._watched = None

    def reused(self) -> None:
        """Somebody who waited got a used connection."""
        self._reused += 1
