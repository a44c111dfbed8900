"""Listening sockets, and what becomes of the connections that they accept."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Iterable, Iterator

import trio
from hypercorn.config import Config, Sockets
from hypercorn.utils import parse_socket_addr, repr_socket_addr

from ..errors import UsageError
from ._connection import Address, Connection
from ._http1_response import plain_response
from ._hypercorn import HypercornSide
from ._service import Service
from ._sockets import set_options, tcp_options

__all__ = ["Admission", "accept_connections", "open_listeners", "shown_address"]

_log = logging.getLogger("gym_trio.http")

_ACCEPTS_IN_A_ROW = 64
_EVERY_ADDRESS = {"0.0.0.0", "::", "::ffff:0.0.0.0"}  # the last: every one of IPv4, by an IPv6 socket
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}  # more may come
_PAUSE_WHEN_EXHAUSTED_SECONDS = 0.1
# accept(2): the connection failed before it was accepted; the socket is well.
_THEIRS = {
    errno.ECONNABORTED,
    errno.EPROTO,
    errno.EPERM,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENOPROTOOPT,
    errno.ENONET,
}


@contextlib.contextmanager
def open_listeners(config: Config, given: Sockets | Iterable[socket.socket] | None) -> Iterator[Sockets]:
    """The sockets to listen on: those given, else those that the configuration binds. Leaving closes them."""
    if given is None:
        sockets = config.create_sockets()
    elif isinstance(given, Sockets):
        sockets = given
    else:
        sockets = Sockets([], list(given), [])
    streams = sockets.secure_sockets + sockets.insecure_sockets
    with contextlib.ExitStack() as closing:
        for sock in streams + sockets.quic_sockets:
            closing.callback(sock.close)
        if sockets.quic_sockets:
            raise UsageError("serve speaks no HTTP/3: take quic_bind out of the configuration")
        for sock in streams:
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                # What is accepted inherits these. The probes find a client whose machine died, in two minutes.
                set_options(sock, tcp_options(TCP_KEEPIDLE=60, TCP_KEEPINTVL=15, TCP_KEEPCNT=4))
        yield sockets


def shown_address(scheme: str, sock: socket.socket) -> str:
    return f"{scheme}://{repr_socket_addr(sock.family, sock.getsockname())}"


class Admission:
    """Starts a task in ``nursery`` for each accepted socket, up to the limit on connections.

    **Errors**: none leave a task. A fault of a connection's own is logged, and costs that connection alone.
    """

    def __init__(
        self, service: Service, hypercorn: HypercornSide, nursery: trio.Nursery, tls: ssl.SSLContext | None
    ) -> None:
        self._service = service
        self._hypercorn = hypercorn
        self._nursery = nursery
        self._tls = tls

    def admit(
        self, sock: socket.socket, client: Address | None = None, server: Address | None = None, *, secure: bool
    ) -> None:
        limit = self._service.limits.connections
        if limit is not None and len(self._service.connections) + self._hypercorn.connections >= limit:
            self._turn_away(sock, secure=secure)
        elif secure:
            self._nursery.start_soon(self._serve_tls, sock)
        elif self._service.arrivals is None:
            self._nursery.start_soon(self._go_on, sock, b"")
        else:
            try:
                connection = Connection(self._service, self._service.arrivals, sock, client, server)
            except OSError as error:
                _log.error("cannot serve a connection: %s", error)
                self._turn_away(sock, secure=secure)
            else:
                self.serve(connection)

    def _turn_away(self, sock: socket.socket, *, secure: bool) -> None:
        with sock, contextlib.suppress(OSError):
            if not secure:
                sock.send(plain_response(503, "too many connections", self._service.default_lines()))

    def serve(self, connection: Connection) -> None:
        self._nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: Connection) -> None:
        try:
            already_read = await connection.run()
        except Exception:  # noqa: BLE001
            _log.exception("%r failed", connection)
            return
        if already_read is not None:
            await self._go_on(connection.socket, already_read)

    async def _go_on(self, sock: socket.socket, already_read: bytes) -> None:
        try:
            await self._hypercorn.go_on(sock, already_read)
        except Exception:  # noqa: BLE001
            _log.exception("a connection that hypercorn serves failed")

    async def _serve_tls(self, sock: socket.socket) -> None:
        assert self._tls is not None
        try:
            await self._hypercorn.serve_tls(sock, self._tls)
        except Exception:  # noqa: BLE001
            _log.exception("a TLS connection failed")


async def accept_connections(listener: socket.socket, admission: Admission, secure: bool) -> None:
    """Accept until cancelled.

    **Errors**: `OSError` when the socket itself is of no use. A machine that has run out of file descriptors is waited
    for; a connection that failed before it was accepted is passed over.
    """
    family = listener.family
    own_address = _address_of_all(listener)
    while True:
        await trio.lowlevel.wait_readable(listener)
        for _ in range(_ACCEPTS_IN_A_ROW):
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    _log.error("cannot accept a connection: %s; trying again", error)
                    await trio.sleep(_PAUSE_WHEN_EXHAUSTED_SECONDS)
                    break
                if error.errno not in _THEIRS:
                    raise
            else:
                sock.setblocking(False)
                server = own_address or _address_of(sock)
                admission.admit(sock, parse_socket_addr(family, peer), server, secure=secure)


def _address_of_all(listener: socket.socket) -> Address | None:
    """The server's end of each connection; None where they differ, because it listens on every address."""
    address = _address_of(listener)
    return None if address is None or address[0] in _EVERY_ADDRESS else address


def _address_of(sock: socket.socket) -> Address | None:
    try:
        return parse_socket_addr(sock.family, sock.getsockname())
    except OSError:  # the client has gone already
        return None
