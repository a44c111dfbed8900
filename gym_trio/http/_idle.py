"""Connections that wait for their next request, and for how long they may."""

from __future__ import annotations

import trio

from ._wire import Wire

__all__ = ["IdleConnections"]

_LOOKS = 8  # in the time that a connection may wait


class IdleConnections:
    """Ends the wait of each connection that has been idle for ``longest_seconds``, at most an eighth of it later.

    One task looks after all connections, at fixed times. A request notes only which look was the last: two dictionary
    operations, and no clock is read.
    """

    def __init__(self, longest_seconds: float) -> None:
        self._seconds = longest_seconds / _LOOKS
        self._look = 0
        self._since: dict[Wire, int] = {}  # the look before it came; in that order

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, wire: Wire) -> bool:
        """Whether it may wait on."""
        return wire in self._since

    def add(self, wire: Wire) -> None:
        self._since[wire] = self._look

    def remove(self, wire: Wire) -> None:
        self._since.pop(wire, None)

    def end_all(self) -> None:
        while self._since:
            wire, _ = self._since.popitem()
            wire.stop_waiting()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(self._seconds)
            self._look += 1
            while self._since:
                wire = next(iter(self._since))
                if self._look - self._since[wire] <= _LOOKS:
                    break
                del self._since[wire]
                wire.stop_waiting()
