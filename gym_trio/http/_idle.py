"""Connections that wait for their next request, and for how long they may."""

from __future__ import annotations

import trio

from ._wire import Wire

__all__ = ["IdleConnections"]


class IdleConnections:
    """Ends the wait of each connection that has been idle for ``longest_seconds``.

    All may wait equally long, so the one that came first is due first: a request costs two dictionary operations, and
    one task watches over all connections.
    """

    def __init__(self, longest_seconds: float) -> None:
        self._longest_seconds = longest_seconds
        self._due: dict[Wire, float] = {}  # in the order of their times

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, wire: Wire) -> bool:
        """Whether it may wait on."""
        return wire in self._due

    def add(self, wire: Wire) -> None:
        self._due[wire] = trio.current_time() + self._longest_seconds

    def remove(self, wire: Wire) -> None:
        self._due.pop(wire, None)

    def end_all(self) -> None:
        while self._due:
            wire, _ = self._due.popitem()
            wire.stop_waiting()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            now = trio.current_time()
            wake_time = now + self._longest_seconds  # none that is added meanwhile is due before
            while self._due:
                wire = next(iter(self._due))
                if self._due[wire] > now:
                    wake_time = self._due[wire]
                    break
                del self._due[wire]
                wire.stop_waiting()
            await trio.sleep_until(wake_time)
