"""Ports: bound before the server starts, and who holds one that is taken."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from ..errors import ServerStartError

BACKLOG = 4096
LISTENING = "0A"


def bind_port(server: str, host: str = "127.0.0.1", port: int = 0, *, key: str | None = None) -> socket.socket:
    """Return a listening socket for ``server``; port 0 takes a free one.

    Hand it over with ``pass_fds=[listener.fileno()]`` and close it afterwards; it may be handed to several servers.

    **Errors**: `ServerStartError` names the port, the configuration ``key`` it came from, and who holds it.
    **Ownership**: the caller's.
    """
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        raise ServerStartError(f"{_what(server, host, port, key)} is no address: 65535 is the highest", server=server)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as exc:
        raise ServerStartError(f"{_what(server, host, port, key)} is no address: {exc}", server=server) from exc
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as exc:
        listener.close()
        raise ServerStartError(_problem(server, host, port, key, exc), server=server) from exc
    return listener


def check_port_free(server: str, host: str, port: int, *, key: str | None = None) -> None:
    """Raise the error of `bind_port` when nobody could listen there now. The port may be taken a moment later."""
    bind_port(server, host, port, key=key).close()


def find_port_holder(port: int) -> str | None:
    """Name a process that listens on a TCP port, as ``name (pid n)``, where /proc and this user's rights tell."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return None
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if any(os.readlink(f"/proc/{pid}/fd/{fd}") in sockets for fd in os.listdir(f"/proc/{pid}/fd")):
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                    return f"{file.read().strip()} (pid {pid})"
    return None


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as file:
            for fields in (line.split() for line in file.readlines()[1:]):
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found


def _what(server: str, host: str, port: int, key: str | None) -> str:
    return f"{server}: port {port} on {host}{f' (key {key})' if key else ''}"


def _problem(server: str, host: str, port: int, key: str | None, exc: OSError) -> str:
    what = _what(server, host, port, key)
    if exc.errno == errno.EADDRINUSE:
        holder = find_port_holder(port)
        return f"{what} is in use{f' by {holder}' if holder else ''}"
    return f"{what} cannot be used: {exc}"
