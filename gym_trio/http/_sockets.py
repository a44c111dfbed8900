"""What both ends ask of a TCP socket."""

from __future__ import annotations

import contextlib
import socket
import struct

__all__ = ["reset_on_close", "set_options", "tcp_options"]

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time


def tcp_options(**options: int) -> tuple[tuple[int, int, int], ...]:
    """For `set_options`: send at once, probe a silent peer, and ``options`` of TCP that this platform has, by name."""
    return (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *(
            (socket.IPPROTO_TCP, getattr(socket, name), value)
            for name, value in options.items()
            if hasattr(socket, name)
        ),
    )


def set_options(sock: socket.socket, options: tuple[tuple[int, int, int], ...]) -> None:
    """**Errors**: `OSError`."""
    for level, option, value in options:
        sock.setsockopt(level, option, value)


def reset_on_close(sock: socket.socket) -> None:
    """Let the peer see an error at once, not an end, and let no port be kept for what may still be under way."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
