"""What both ends ask of a TCP socket."""

from __future__ import annotations

import contextlib
import socket
import struct

__all__ = ["reset_on_close", "set_tcp_options"]

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time


def set_tcp_options(sock: socket.socket, **options: int) -> None:
    """Send at once, probe a silent peer, and ``options`` of TCP by name, as far as this platform has them."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reset_on_close(sock: socket.socket) -> None:
    """Let the peer see an error at once, not an end, and let no port be kept for what may still be under way."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
