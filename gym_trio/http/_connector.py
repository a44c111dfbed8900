"""`Connector`: how connections to one origin are made."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl

import trio

from ..errors import ConnectFailed, Delivery, LocalResourceError, TransportError, TransportTimeout
from ._message import Origin
from ._origin_connection import LOCAL_ERRORS, Connection
from ._settings import TransportSettings
from ._sockets import set_options, tcp_options

__all__ = ["Connector"]


_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 0.32


class Connector:
    """Makes connections to ``origin``. What is the same for all of them is found out once."""

    def __init__(self, origin: Origin, settings: TransportSettings) -> None:
        self._origin = origin
        self._address = (origin.host, origin.port)
        self._family = _numeric_family(origin.host)
        self._is_near = False  # on this machine, as has shown when the kernel connected to it at once
        self._options = tcp_options(
            TCP_KEEPIDLE=settings.tcp_keepalive_idle_seconds,
            TCP_KEEPINTVL=settings.tcp_keepalive_interval_seconds,
            TCP_KEEPCNT=settings.tcp_keepalive_probes,
            # The probes are for a connection that is silent; this is the same bound where bytes are not taken.
            TCP_USER_TIMEOUT=settings.dead_peer_seconds * 1000,
        )

    async def connect(
        self, ssl_context: ssl.SSLContext | None, scope: trio.CancelScope, bound_seconds: float
    ) -> Connection:
        """Connect, and shake hands when ``ssl_context`` is given. What has to be waited for is inside ``scope``.

        ``scope`` ends ``bound_seconds`` from now.

        **Errors**: `ConnectFailed`, `TransportTimeout`, `LocalResourceError`; nothing has been sent.
        """
        origin = self._origin
        sock: socket.socket | None = None
        try:
            connected = False
            if self._family is not None:
                sock = _new_socket(self._family)
                connected = self._begin(sock) and bound_seconds > 0
            if sock is not None and connected and ssl_context is None:
                # The others have a turn all the same: a server is not sent all at once.
                await trio.lowlevel.checkpoint()
                _refuse_itself(sock)
            else:
                scope.deadline = trio.current_time() + bound_seconds
                with scope:
                    if sock is None:
                        sock = await _look_up_and_connect(origin)
                    elif not connected:
                        sock = await self._until_connected(sock)
                    _refuse_itself(sock)
                    if ssl_context is not None:
                        sock = await _shake_hands(sock, origin.host, ssl_context)
                if scope.cancelled_caught:
                    raise TransportTimeout(
                        f"{origin}: no connection within {bound_seconds:g} s", delivery=Delivery.NOT_SENT
                    )
            assert sock is not None  # the block has come to its end
            set_options(sock, self._options)
            connection, sock = Connection(sock, not self._is_near), None
            return connection
        except (OSError, UnicodeError) as exc:  # UnicodeError: a name that cannot be one
            # It may have failed at once. Whoever asks again and again must be cancelled, and leave turns to others.
            await trio.lowlevel.checkpoint()
            raise _connect_error(origin, exc) from exc
        finally:
            if sock is not None:
                sock.close()

    def _begin(self, sock: socket.socket) -> bool:
        """Whether it is connected already. **Errors**: `OSError`."""
        code = sock.connect_ex(self._address)
        if code == errno.EINPROGRESS:
            code = sock.connect_ex(self._address)  # which tells how it went, where it is over
        if code in (errno.EINPROGRESS, errno.EALREADY):
            return False
        if code not in (0, errno.EISCONN):
            raise OSError(code, os.strerror(code))
        # At once alone may be another machine's time too, where this thread had none in between.
        self._is_near = self._is_near or _is_of_this_machine(sock)
        return True

    async def _until_connected(self, sock: socket.socket) -> socket.socket:
        """``sock``, or the one that came of it, once it is connected. **Ownership**: it is closed if that fails.

        A server on this machine that is not connected to at once has its backlog full. The kernel would ask it again
        after a second; to begin anew is to ask as soon as there may be room.
        """
        seconds = _FIRST_WAIT_SECONDS
        try:
            while self._is_near and self._family is not None:
                with trio.move_on_after(seconds):
                    await _wait_connected(sock)
                    return sock
                seconds = min(2 * seconds, _LONGEST_WAIT_SECONDS)
                sock.close()
                sock = _new_socket(self._family)
                if self._begin(sock):
                    return sock
            await _wait_connected(sock)
            return sock
        except BaseException:
            sock.close()
            raise


def _numeric_family(host: str) -> socket.AddressFamily | None:
    """The family of an address; None for a name, which has to be looked up and may have several."""
    if "%" in host:
        return None
    try:
        return socket.AF_INET if ipaddress.ip_address(host).version == 4 else socket.AF_INET6
    except ValueError:
        return None


def _new_socket(family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


async def _wait_connected(sock: socket.socket) -> None:
    await trio.lowlevel.wait_writable(sock)
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


async def _look_up_and_connect(origin: Origin) -> socket.socket:
    stream = await trio.open_tcp_stream(origin.host, origin.port)
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    return sock


def _is_of_this_machine(sock: socket.socket) -> bool:
    """Whether the kernel has given ``sock`` an address that has no way out, or the one that it is connected to."""
    here, there = sock.getsockname()[0], sock.getpeername()[0]
    return bool(here == there or ipaddress.ip_address(here).is_loopback)


def _refuse_itself(sock: socket.socket) -> None:
    """The kernel can connect a socket to itself when nobody listens on a port that it may also give out."""
    if sock.getsockname() == sock.getpeername():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")


async def _shake_hands(sock: socket.socket, host: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    tls = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False, suppress_ragged_eofs=False)
    try:
        while True:
            try:
                tls.do_handshake()
                return tls
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(tls)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(tls)
    except BaseException:
        tls.close()
        raise


def _connect_error(origin: Origin, exc: OSError | UnicodeError) -> TransportError:
    reasons: tuple[BaseException, ...] = (exc,)
    if isinstance(exc.__cause__, BaseExceptionGroup):  # one for each address that was tried
        reasons = exc.__cause__.exceptions
    message = f"{origin}: {'; '.join(str(reason) for reason in reasons)}"
    if any(isinstance(reason, OSError) and reason.errno in LOCAL_ERRORS for reason in reasons):
        return LocalResourceError(message)
    return ConnectFailed(message)
