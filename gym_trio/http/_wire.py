"""`Wire`: a non-blocking socket whose every wait is bounded."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

import trio

from ._arrivals import Inlet
from ._limits import Allowance, ServeLimits
from ._sockets import reset_on_close

__all__ = ["ClientGone", "TooSlow", "Wire"]

_RECEIVE_BYTES = 64 * 1024
_NOTHING = memoryview(b"")


class ClientGone(ConnectionError):
    """The connection is lost. An app's ``send`` raises it; it is an `OSError`, as ASGI wants."""


class TooSlow(Exception):
    """The client did not send what it owes within a limit."""


class Wire(Inlet):
    """Reads and writes for one connection, with the allowances of the request at hand.

    **Cancellation**: a cancelled write may have sent a part; the wire is of no use then but to be closed.

    **Errors**: `ClientGone` from sending, whether the socket failed or the client did not read within the limits.

    **Ownership**: owns the socket; `close` is synchronous and idempotent.
    """

    __slots__ = (
        "_broken",
        "_limits",
        "_receiving",
        "_resets",
        "_rest",
        "_sending",
        "_socket",
        "_writing",
        "descriptor",
    )

    def __init__(self, sock: socket.socket, limits: ServeLimits, on_end: Callable[[], None]) -> None:
        super().__init__(on_end)
        self._socket = sock
        self.descriptor = sock.fileno()
        self._limits = limits
        self._writing = False  # a task is in `send_rest`; an app may have left it there
        self._broken = False  # something was not sent whole, so that nothing can follow it
        self._resets = False  # the client is to see an error
        self._rest = _NOTHING  # of what was not sent whole
        self._receiving: Allowance | None = None
        self._sending: Allowance | None = None

    def renew_allowances(self) -> None:
        """A new request begins."""
        self._receiving = self._sending = None

    def receive(self, size: int = _RECEIVE_BYTES) -> bytes | None:
        """The input that is there, None if there is none yet; ``b""`` at its end, and when the socket has failed."""
        self.before_read()
        try:
            data = self._socket.recv(size)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        if len(data) == size:
            self.after_full_read()
        return data

    async def read(self, size: int = _RECEIVE_BYTES) -> bytes:
        data = None
        while data is None:
            await self.wait_for_input()
            data = self.receive(size)
        return data

    async def read_until(self, deadline: float) -> bytes:
        """**Errors**: `TooSlow` after ``deadline``."""
        with trio.CancelScope(deadline=deadline):
            return await self.read()
        raise TooSlow

    async def read_body(self, size: int) -> bytes:
        """As `read`, on the allowance of the request's body. **Errors**: `TooSlow`."""
        if self._receiving is None:
            self._receiving = Allowance(self._limits)
        started = trio.current_time()
        with trio.CancelScope(deadline=started + self._receiving.seconds()):
            data = await self.read(size)
            self._receiving.spend(trio.current_time() - started, len(data))
            return data
        raise TooSlow

    def send(self, data: bytes) -> int:
        """Hand over as much as the kernel takes now. If that is not all, `send_rest` has to follow."""
        if self._broken:
            if self._writing:
                raise trio.BusyResourceError("another task is sending on this connection")
            raise ClientGone("an earlier part of the response was not sent")
        sent = self._hand_over(data)
        if sent < len(data):
            self._broken = True
            self._rest = memoryview(data)[sent:]
        return sent

    def _hand_over(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ClientGone("the client is gone") from error

    async def send_rest(self) -> None:
        """Wait until the kernel has taken what `send` left, as long as the request's allowance lasts."""
        if self._sending is None:
            self._sending = Allowance(self._limits)
        rest, self._rest = self._rest, _NOTHING
        self._writing = True
        try:
            while rest:
                started = trio.current_time()
                with trio.CancelScope(deadline=started + self._sending.seconds()) as wait:
                    await trio.lowlevel.wait_writable(self.descriptor)
                if wait.cancelled_caught:
                    raise ClientGone("the client does not read its response")
                sent = self._hand_over(rest)
                self._sending.spend(trio.current_time() - started, sent)
                rest = rest[sent:]
            self._broken = False
        finally:
            self._writing = False

    async def send_all(self, data: bytes) -> None:
        if self.send(data) < len(data):
            await self.send_rest()

    def end_output(self) -> None:
        """The client sees the end of what it is sent; what it sends can still be read."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def linger(self) -> None:
        """Read and drop what the client still sends, so that no reset overtakes the last response."""
        self.end_output()
        with trio.move_on_after(self._limits.linger_seconds):
            while await self.read():
                pass

    def reset_on_close(self) -> None:
        """Let the client see an error, not an end."""
        self._resets = True
        reset_on_close(self._socket)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self.on_end = None
            self.stop_waiting()
            if self._writing:
                trio.lowlevel.notify_closing(self._socket)
            if not self._resets:
                self.end_output()  # which reaches the client also where something that was forked here holds the socket
            self._socket.close()
