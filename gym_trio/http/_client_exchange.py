"""One request and its response over one connection."""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Awaitable
from typing import Any

import trio

from ..errors import ConnectFailed, LocalResourceError, PeerDropped, TransportError, TransportTimeout, UsageError
from ._encode import Framed
from ._message import Request
from ._origin_connection import LOCAL_ERRORS, WOULD_BLOCK, Connection
from ._pool import OriginPool
from ._response_parser import ResponseParser
from ._settings import Bounds

__all__ = ["ClientExchange", "NotSent", "Shared"]

_PIECE_BYTES = 64 * 1024  # what is handed to the kernel, or to TLS, at once
_EARLY_BYTES = 1024 * 1024  # of a streamed response, held while the request is still being written
_PARSERS_KEPT = 64


class NotSent(Exception):
    """The connection broke before it took a byte: the request can go over another one. ``error`` is what to raise."""

    def __init__(self, error: TransportError) -> None:
        super().__init__(error)
        self.error = error


class Shared:
    """What the exchanges of one transport share: a buffer to receive into, and parsers that are free."""

    __slots__ = ("buffer", "max_head_bytes", "parsers")

    def __init__(self, max_head_bytes: int) -> None:
        self.buffer = memoryview(bytearray(256 * 1024))
        self.parsers: list[ResponseParser] = []
        self.max_head_bytes = max_head_bytes


class ClientExchange:
    """Writes one request and reads its response.

    **Cancellation**, **Errors**: what is raised here leaves the connection in use; its owner calls `close`.

    **Ownership**: holds the connection until `close` or `give_back`.
    """

    __slots__ = (
        "_bounds",
        "_failure",
        "_max_body_bytes",
        "_pool",
        "_shared",
        "_written",
        "connection",
        "parser",
        "request",
    )

    def __init__(
        self,
        request: Request,
        pool: OriginPool,
        connection: Connection,
        shared: Shared,
        max_body_bytes: int | None,
        bounds: Bounds,
    ) -> None:
        self.request = request
        self.connection: Connection | None = connection  # None once it has been given back or closed
        self.parser: ResponseParser | None = None  # taken when the first byte comes: waiting costs no parser
        self._pool = pool
        self._shared = shared
        self._max_body_bytes = max_body_bytes  # None: the response is streamed
        self._bounds = bounds
        self._written = False
        self._failure: TransportError | None = None

    def give_back(self) -> None:
        """Nothing was sent: the connection is as good as before."""
        connection, self.connection = self.connection, None
        if connection is not None:
            self._pool.release(connection)

    def close(self) -> None:
        """End it: a connection whose response is complete goes back to the pool, any other is closed. Idempotent."""
        connection, parser = self.connection, self.parser
        if connection is None:
            return
        self.connection = self.parser = None
        connection.closes_with_wait = False
        if parser is None or not parser.complete:
            self._pool.discard(connection, waited_for=self._max_body_bytes is None, resets=True)
            return
        if parser.is_clean and len(self._shared.parsers) < _PARSERS_KEPT:
            self._shared.parsers.append(parser)
        if parser.keep_alive and self._written and not parser.excess:
            self._pool.release(connection)
        else:
            self._pool.discard(connection)

    # Reading

    @property
    def head_complete(self) -> bool:
        return self.parser is not None and self.parser.head_complete

    @property
    def complete(self) -> bool:
        return self.parser is not None and self.parser.complete

    def read_nowait(self) -> bool:
        """Take in what has come; False when nothing has."""
        connection, shared = self._live(), self._shared
        try:
            count = connection.receive_into(shared.buffer)
        except WOULD_BLOCK:
            return False
        except OSError as exc:
            raise PeerDropped(f"{self.request.origin}: the connection broke: {exc}") from exc
        parser = self.parser
        if parser is None:
            parser = self.parser = shared.parsers.pop() if shared.parsers else ResponseParser(shared.max_head_bytes)
            parser.begin(self.request.origin, self.request.method == "HEAD", self._max_body_bytes)
        if count:
            parser.feed(shared.buffer[:count])
        else:
            parser.feed_eof()
        return True

    def end_with_wait(self) -> None:
        """From here on a wait that is cancelled is the end of the exchange: its connection is closed in that moment."""
        if self.connection is not None:
            self.connection.closes_with_wait = True

    def wait_for_input(self) -> Awaitable[object]:
        """Until more may have come.

        **Errors**: `trio.ClosedResourceError`, for which `closed_error` is to be raised.
        """
        connection = self._live()
        if connection.is_tls and self.read_nowait():  # TLS may hold what the kernel no longer does
            return trio.lowlevel.checkpoint()  # noqa: ASYNC105  by the caller
        return connection.wait_for_input()

    async def read_more(self) -> None:
        """Wait for more of the response and take it in. It may be a false alarm."""
        try:
            await self.wait_for_input()
        except trio.ClosedResourceError:
            raise self.closed_error() from None
        self.read_nowait()

    async def next_chunk(self) -> bytes:
        """What has come of the body, at least one byte; empty at its end."""
        parser = self.parser
        if parser is None:
            raise self.closed_error()
        while not parser.chunks:
            if parser.complete:
                return b""
            await self.read_more()
        chunk = b"".join(parser.chunks)
        parser.chunks.clear()
        return chunk

    def _live(self) -> Connection:
        connection = self.connection
        if connection is None or connection.fd < 0:
            raise self.closed_error()
        return connection

    def closed_error(self) -> TransportError:
        return TransportError(f"{self.request.origin}: the connection has been closed on this side")

    # Writing

    async def write(self, framed: Framed) -> None:
        """Hand over the request. Returns when it is written, or before that, when the server has answered.

        **Errors**: `NotSent` when a connection that had broken took nothing.
        """
        body = self.request.body
        if isinstance(body, bytes):
            if framed.length is None:
                body = _chunk(body) + b"0\r\n\r\n"
            room = max(0, _PIECE_BYTES - len(framed.head))
            first, rest = framed.head + body[:room], memoryview(body)[room:]
            sent = self._send_first(first)
            if sent == len(first) and not rest:
                self._written = True
                return
            await self._write_on(memoryview(first)[sent:], rest, framed.length)
        else:
            sent = self._send_first(framed.head)
            await self._write_on(memoryview(framed.head)[sent:], body, framed.length)

    def _send_first(self, data: bytes) -> int:
        connection = self._live()
        try:
            # The slice is what `_send_piece` would send: TLS wants a write that had to wait repeated as it was.
            return connection.sock.send(memoryview(data)[:_PIECE_BYTES])
        except WOULD_BLOCK:
            return 0
        except OSError as exc:
            what = f"{self.request.origin}: the connection broke while the request was sent: {exc}"
            if connection.is_tls:  # which may have handed over a part of it before
                raise PeerDropped(what) from exc
            raise NotSent(LocalResourceError(what) if exc.errno in LOCAL_ERRORS else ConnectFailed(what)) from exc

    async def _write_on(self, first: memoryview, rest: memoryview | AsyncIterable[bytes], length: int | None) -> None:
        """Write what the kernel did not take at once, in this task, while a second one watches for an early answer."""
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                # What is raised in here is raised again outside, where no nursery wraps it into a group.
                nursery.start_soon(self._watch, nursery.cancel_scope)
                try:
                    if await self._write_rest(first, rest, length):
                        self._written = True
                        nursery.cancel_scope.cancel()
                    # Otherwise the server has closed; it may have answered before, which the watcher finds out.
                except BaseException as exc:  # noqa: BLE001
                    failure = exc
                    nursery.cancel_scope.cancel()
        except* trio.Cancelled:  # the watcher's, by a cancellation from outside, which is raised again below
            pass
        if self._failure is not None:
            raise self._failure
        if failure is not None and not (self.head_complete and isinstance(failure, trio.Cancelled)):
            raise failure
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _watch(self, writing: trio.CancelScope) -> None:
        """Read what comes while the request is being written; end the writing when there is no more use in it."""
        try:
            while not self.complete:
                await self.read_more()
                if self._max_body_bytes is None and self.parser is not None and self.parser.head_complete:
                    if self.parser.status >= 400:
                        break
                    if sum(map(len, self.parser.chunks)) > _EARLY_BYTES:
                        return
        except TransportError as exc:
            self._failure = exc
        writing.cancel()

    async def _write_rest(self, first: memoryview, rest: memoryview | AsyncIterable[bytes], length: int | None) -> bool:
        """Whether all of it was taken; False when the server has closed."""
        # One scope for the whole request: its deadline moves with each piece that is taken.
        with trio.CancelScope() as bound:
            if not await self._send_piece(first, bound):
                return False
            if isinstance(rest, memoryview):
                return await self._send_piece(rest, bound)
            return await self._send_parts(rest, length, bound)
        raise TransportTimeout(f"{self.request.origin}: nothing was taken for {self._bounds.write:g} s")

    async def _send_piece(self, view: memoryview, bound: trio.CancelScope) -> bool:
        while view:
            connection = self._live()
            try:
                view = view[connection.sock.send(view[:_PIECE_BYTES]) :]
            except WOULD_BLOCK:
                bound.deadline = trio.current_time() + self._bounds.write
                try:
                    await trio.lowlevel.wait_writable(connection.fd)
                except trio.ClosedResourceError:
                    raise self.closed_error() from None
                bound.deadline = math.inf
            except OSError:
                return False
        return True

    async def _send_parts(self, parts: AsyncIterable[bytes], length: int | None, bound: trio.CancelScope) -> bool:
        source = aiter(parts)
        left = length
        try:
            async for part in source:
                if left is not None:
                    left -= len(part)
                    if left < 0:
                        raise UsageError(f"the body is longer than its content-length of {length}")
                if not await self._send_piece(memoryview(part if left is not None else _chunk(part)), bound):
                    return False
                await trio.lowlevel.checkpoint()
            if left:
                raise UsageError(f"the body is {left} bytes shorter than its content-length of {length}")
            return left is not None or await self._send_piece(memoryview(b"0\r\n\r\n"), bound)
        finally:
            close: Any = getattr(source, "aclose", None)
            if close is not None:
                await close()


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part) if part else b""
