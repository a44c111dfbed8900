"""One connection to an origin: a non-blocking socket, plain or TLS, and how it is made."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Awaitable

import trio

from ..errors import ConnectFailed, Delivery, LocalResourceError, TransportError, TransportTimeout
from ._arrivals import Arrivals, Inlet
from ._message import Origin
from ._settings import TransportSettings
from ._sockets import reset_on_close, set_tcp_options

__all__ = ["LOCAL_ERRORS", "WOULD_BLOCK", "Connection", "connect"]

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
LOCAL_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class Connection(Inlet):
    """A connected socket. `close` needs no await, so a cancelled task can close it at once."""

    __slots__ = ("_arrivals", "closes_with_wait", "fd", "idle_until", "is_tls", "sock")

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._arrivals: Arrivals | None = None  # that tell of its input; without them, trio's own wait does
        self.sock = sock
        self.fd = sock.fileno()  # -1 once closed, so that nobody waits on a number that is another socket's by then
        self.is_tls = isinstance(sock, ssl.SSLSocket)
        self.idle_until = 0.0
        self.closes_with_wait = False  # a wait that is cancelled is the end of the exchange

    def seems_alive(self) -> bool:
        """Whether an unused connection can be used: the server has neither closed it nor sent anything."""
        try:
            self.sock.recv(1)
        except WOULD_BLOCK:
            return True
        except OSError:
            return False
        return False

    def watch(self, arrivals: Arrivals) -> None:
        """Wait for input through ``arrivals`` from now on. Not over TLS, which holds back input of its own.

        **Errors**: `LocalResourceError` when the kernel takes no more; the connection is closed.
        """
        if not self.is_tls:
            try:
                arrivals.watch(self.fd, self)
            except OSError as exc:
                self.close(waited_for=False)
                raise LocalResourceError(f"no more sockets can be waited for: {exc}") from exc
            self._arrivals = arrivals

    def wait_for_input(self) -> Awaitable[object]:
        if self._arrivals is None:
            return trio.lowlevel.wait_readable(self.fd)  # noqa: ASYNC105  by the caller
        return super().wait_for_input()

    def __call__(self, raise_cancel: object) -> trio.lowlevel.Abort:
        """The wait is cancelled.

        trio calls this for each task of a scope in the moment in which the scope is cancelled, before it resumes one of
        them: that many servers learn of it at once, and act while the tasks here unwind.
        """
        abort = super().__call__(raise_cancel)
        if self.closes_with_wait:
            self.close(waited_for=False, resets=True)
        return abort

    def receive_into(self, buffer: memoryview) -> int:
        """How many bytes came; 0 at the end of the input. **Errors**: one of `WOULD_BLOCK`; `OSError`."""
        self.before_read()
        count = self.sock.recv_into(buffer)
        if count == len(buffer):
            self.after_full_read()
        return count

    def close(self, *, waited_for: bool = True, resets: bool = False) -> None:
        """Idempotent. Whoever waits for the socket gets `trio.ClosedResourceError`; ``waited_for``: somebody may.

        ``resets``: an exchange is cut off. Its port is free at once: thousands may be cut off together.
        """
        if self.fd >= 0:
            if self._arrivals is not None:
                self._arrivals.forget(self.fd)
            if waited_for:
                self.stop_waiting()
                trio.lowlevel.notify_closing(self.fd)
            self.fd = -1
            if resets:
                reset_on_close(self.sock)
            # To close is not enough for the server to learn of it where something that was forked here holds it too.
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)
            self.sock.close()


async def connect(
    origin: Origin,
    settings: TransportSettings,
    ssl_context: ssl.SSLContext | None,
    scope: trio.CancelScope,
    bound_seconds: float,
) -> Connection:
    """Connect, and shake hands when ``ssl_context`` is given, inside ``scope``, which ends after the bound.

    **Errors**: `ConnectFailed`, `TransportTimeout`, `LocalResourceError`; nothing has been sent.
    """
    sock: socket.socket | None = None
    try:
        scope.deadline = trio.current_time() + bound_seconds
        with scope:
            sock = await _open_socket(origin)
            set_tcp_options(
                sock,
                TCP_KEEPIDLE=settings.tcp_keepalive_idle_seconds,
                TCP_KEEPINTVL=settings.tcp_keepalive_interval_seconds,
                TCP_KEEPCNT=settings.tcp_keepalive_probes,
                # The probes are for a connection that is silent; this is the same bound where bytes are not taken.
                TCP_USER_TIMEOUT=settings.dead_peer_seconds * 1000,
            )
            if ssl_context is not None:
                sock = await _shake_hands(sock, origin.host, ssl_context)
            connection, sock = Connection(sock), None
            return connection
    except (OSError, UnicodeError) as exc:  # UnicodeError: a name that cannot be one
        raise _connect_error(origin, exc) from exc
    finally:
        if sock is not None:
            sock.close()
    raise TransportTimeout(f"{origin}: no connection within {bound_seconds:g} s", delivery=Delivery.NOT_SENT)


async def _open_socket(origin: Origin) -> socket.socket:
    family = _numeric_family(origin.host)
    if family is None:
        stream = await trio.open_tcp_stream(origin.host, origin.port)
        sock = socket.socket(fileno=stream.socket.detach())
    else:
        sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if family is not None:
            await _connect_socket(sock, (origin.host, origin.port))
        if sock.getsockname() == sock.getpeername():
            # The kernel can connect a socket to itself when nobody listens on a port that it may also give out.
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
    except BaseException:
        sock.close()
        raise
    return sock


def _numeric_family(host: str) -> socket.AddressFamily | None:
    """The family of an address; None for a name, which has to be looked up and may have several."""
    if "%" in host:
        return None
    try:
        return socket.AF_INET if ipaddress.ip_address(host).version == 4 else socket.AF_INET6
    except ValueError:
        return None


async def _connect_socket(sock: socket.socket, address: tuple[str, int]) -> None:
    try:
        sock.connect(address)
    except BlockingIOError:
        await trio.lowlevel.wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code)) from None


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
