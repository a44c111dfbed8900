"""One connection to an origin: a non-blocking socket, plain or TLS."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from collections.abc import Awaitable

import trio

from ..errors import LocalResourceError
from ._arrivals import Arrivals, Inlet
from ._sockets import reset_on_close

__all__ = ["LOCAL_ERRORS", "WOULD_BLOCK", "Connection"]

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
LOCAL_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class Connection(Inlet):
    """A connected socket. `close` needs no await, so a cancelled task can close it at once."""

    __slots__ = ("_arrivals", "closes_with_wait", "fd", "idle_until", "is_far", "is_tls", "sock")

    def __init__(self, sock: socket.socket, is_far: bool = False) -> None:
        super().__init__()
        self._arrivals: Arrivals | None = None  # that tell of its input; without them, trio's own wait does
        self.sock = sock
        self.fd = sock.fileno()  # -1 once closed, so that nobody waits on a number that is another socket's by then
        self.is_far = is_far  # the server is on another machine, as far as is known
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
