"""Learning that a client has gone, without reading what it sent."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator

import trio

__all__ = ["Departures", "open_departures"]


class Departures:
    """Watches all connections of a server for the end of their input.

    One epoll set that asks for ``EPOLLRDHUP`` alone, edge-triggered, inside trio's own: a request costs nothing, a
    client that goes costs one wake-up, which it shares with all that went at the same time, and bytes that nobody has
    read yet hide nothing.

    **Ownership**: sockets and the set are the caller's: `forget` a socket before closing it. One that has been told of
    is forgotten already: what is asked for once is not asked for again, and the kernel drops it with the socket.
    """

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, sock: socket.socket, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, from `run`, when no more input will come from ``sock``."""
        self._callbacks[sock.fileno()] = callback
        self._epoll.register(sock, select.EPOLLRDHUP | select.EPOLLET | select.EPOLLONESHOT)

    def forget(self, sock: socket.socket) -> None:
        if self._callbacks.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock)

    async def run(self) -> None:
        """Call back until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll)
            # No checkpoint until the last callback, so that each descriptor is still the one that was registered.
            for descriptor, _ in self._epoll.poll(0, max(1, len(self._callbacks))):
                callback = self._callbacks.pop(descriptor, None)
                if callback is not None:
                    callback()


@contextlib.contextmanager
def open_departures() -> Iterator[Departures | None]:
    """None where there is no epoll: only Linux reports the end of input apart from the input."""
    if not hasattr(select, "EPOLLRDHUP"):
        yield None
        return
    with select.epoll() as epoll:
        yield Departures(epoll)
