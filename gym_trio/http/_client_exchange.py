"""One request and its response over one connection."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

import trio

from ..errors import PeerDropped, TransportError, TransportTimeout, UsageError
from ._encode import Framed
from ._message import Request
from ._origin_connection import WOULD_BLOCK, Connection
from ._pool import OriginPool
from ._response_parser import ResponseParser

__all__ = ["Exchange", "NotSent", "Shared"]

_PIECE_BYTES = 64 * 1024  # what is handed to the kernel, or to TLS, at once
_EARLY_BYTES = 1024 * 1024  # of a streamed response, held while the request is still being written


class NotSent(Exception):
    """The connection broke before it took a byte: the request can go over another one."""


class Shared:
    """What the exchanges of one transport share: a buffer to receive into, and parsers that are free."""

    __slots__ = ("buffer", "max_head_bytes", "parsers", "write_seconds")

    def __init__(self, max_head_bytes: int, write_seconds: float) -> None:
        self.buffer = memoryview(bytearray(256 * 1024))
        self.parsers: list[ResponseParser] = []
        self.max_head_bytes = max_head_bytes
        self.write_seconds = write_seconds


class Exchange:
    """Writes one request and reads its response.

    **Cancellation**, **Errors**: what is raised here leaves the connection in use; its owner calls `close`.

    **Ownership**: holds the connection until `close` or `finish`.
    """

    __slots__ = ("_failure", "_max_body_bytes", "_shared", "_written", "connection", "parser", "pool", "request")

    def __init__(
        self, request: Request, pool: OriginPool, connection: Connection, shared: Shared, max_body_bytes: int | None
    ) -> None:
        self.request = request
        self.pool = pool
        self.connection: Connection | None = connection
        self.parser: ResponseParser | None = None  # taken when the first byte comes: waiting costs no parser
        self._shared = shared
        self._max_body_bytes = max_body_bytes  # None: the response is streamed
        self._written = False
        self._failure: TransportError | None = None

    def finish(self) -> None:
        """The response has been read whole: the connection goes back to the pool, or is closed. Idempotent."""
        connection, parser = self.connection, self.parser
        if connection is None or parser is None:
            return
        self.connection = None
        if parser.keep_alive and self._written and not parser.excess:
            self.pool.release(connection)
            if len(self._shared.parsers) < 64:
                self._shared.parsers.append(parser)
        else:
            self.pool.discard(connection)

    def close(self) -> None:
        """Close the connection at once. Idempotent."""
        connection = self.connection
        if connection is not None:
            self.connection = None
            self.pool.discard(connection)

    # Reading

    def read_nowait(self) -> bool:
        """Take in what has come; False when nothing has."""
        connection, shared = self._live(), self._shared
        try:
            count = connection.sock.recv_into(shared.buffer)
        except WOULD_BLOCK:
            return False
        except OSError as exc:
            raise PeerDropped(f"{self.request.origin}: the connection broke: {exc}") from exc
        parser = self.parser
        if parser is None:
            parser = self.parser = shared.parsers.pop() if shared.parsers else ResponseParser(shared.max_head_bytes)
            parser.begin(self.request.method == "HEAD", self._max_body_bytes)
        if count:
            parser.feed(shared.buffer[:count])
        else:
            parser.feed_eof()
        return True

    async def read_more(self) -> None:
        """Wait until more of the response has come."""
        connection = self._live()
        if connection.is_tls and self.read_nowait():  # TLS may hold what the kernel no longer does
            await trio.lowlevel.checkpoint()
            return
        try:
            await trio.lowlevel.wait_readable(connection.fd)
            while not self.read_nowait():
                await trio.lowlevel.wait_readable(connection.fd)
        except trio.ClosedResourceError:
            raise TransportError(f"{self.request.origin}: the transport was closed") from None

    async def read_head(self) -> None:
        while self.parser is None or not self.parser.head_complete:
            await self.read_more()

    async def next_chunk(self) -> bytes:
        """What has come of the body, at least one byte; empty at its end."""
        parser = self.parser
        assert parser is not None
        while not parser.chunks:
            if parser.complete:
                self.finish()
                return b""
            await self.read_more()
        chunk = b"".join(parser.chunks)
        parser.chunks.clear()
        return chunk

    def _live(self) -> Connection:
        connection = self.connection
        if connection is None or connection.fd < 0:
            raise TransportError(f"{self.request.origin}: the transport was closed")
        return connection

    # Writing

    async def write(self, framed: Framed) -> None:
        """Hand over the request. Returns when it is written, or before, when the server has answered already.

        **Errors**: `NotSent` when nothing was taken by a connection that had broken.
        """
        body = self.request.body
        if isinstance(body, bytes):
            first = framed.head + body[:_PIECE_BYTES]
            if framed.length is None:
                first = framed.head + _chunk(body) + (b"0\r\n\r\n" if body else b"")
                body = b""
        else:
            first = framed.head
        sent = self._send_first(first)
        if sent == len(first) and isinstance(body, bytes) and len(body) <= _PIECE_BYTES:
            self._written = True
            return
        await self._write_on(memoryview(first)[sent:], framed)

    def _send_first(self, data: bytes) -> int:
        try:
            return self._live().sock.send(data)
        except WOULD_BLOCK:
            return 0
        except OSError as exc:
            raise NotSent(f"{self.request.origin}: the connection broke before anything was sent: {exc}") from exc

    async def _write_on(self, rest: memoryview, framed: Framed) -> None:
        """Write what the kernel did not take at once, in this task, while a second one watches for an early answer."""
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                # What is raised in here is raised again outside, where no nursery wraps it into a group.
                nursery.start_soon(self._watch, nursery.cancel_scope)
                try:
                    if await self._write_rest(rest, framed):
                        self._written = True
                        nursery.cancel_scope.cancel()
                    # Otherwise the server closed; it may have answered before, which the watcher finds out.
                except BaseException as exc:  # noqa: BLE001
                    failure = exc
                    nursery.cancel_scope.cancel()
        except (BaseExceptionGroup, trio.Cancelled):
            if failure is None:
                raise
        answered = self.parser is not None and self.parser.head_complete
        if self._failure is not None:
            raise self._failure
        if failure is not None and not (answered and isinstance(failure, trio.Cancelled)):
            raise failure

    async def _watch(self, writing: trio.CancelScope) -> None:
        streamed = self._max_body_bytes is None
        try:
            while self.parser is None or not self.parser.complete:
                await self.read_more()
                if streamed and self.parser is not None and self.parser.head_complete:
                    if self.parser.status >= 400:
                        break
                    if sum(map(len, self.parser.chunks)) > _EARLY_BYTES:
                        return
        except TransportError as exc:
            self._failure = exc
        writing.cancel()

    async def _write_rest(self, rest: memoryview, framed: Framed) -> bool:
        """Whether all of it was taken; False when the server has closed."""
        body = self.request.body
        # One scope for the whole request: its deadline moves with each piece that is taken.
        with trio.CancelScope() as bound:
            if not await self._send_piece(rest, bound):
                return False
            if isinstance(body, bytes):
                if framed.length is None:
                    return True
                return await self._send_piece(memoryview(body)[_PIECE_BYTES:], bound)
            return await self._send_body(body, framed.length, bound)
        raise TransportTimeout(f"{self.request.origin}: nothing was taken for {self._shared.write_seconds:g} s")

    async def _send_piece(self, view: memoryview, bound: trio.CancelScope) -> bool:
        while view:
            connection = self._live()
            try:
                view = view[connection.sock.send(view[:_PIECE_BYTES]) :]
            except WOULD_BLOCK:
                bound.deadline = trio.current_time() + self._shared.write_seconds
                await trio.lowlevel.wait_writable(connection.fd)
                bound.deadline = float("inf")
            except OSError:
                return False
        return True

    async def _send_body(self, body: AsyncIterable[bytes], length: int | None, bound: trio.CancelScope) -> bool:
        source = aiter(body)
        try:
            left = length
            async for part in source:
                if left is not None:
                    left -= len(part)
                    if left < 0:
                        raise UsageError(f"the body is longer than its content-length of {length}")
                piece = memoryview(part if length is not None else _chunk(part))
                if not await self._send_piece(piece, bound):
                    return False
                await trio.lowlevel.checkpoint()
            if left:
                raise UsageError(f"the body is {left} bytes shorter than its content-length of {length}")
            return length is not None or await self._send_piece(memoryview(b"0\r\n\r\n"), bound)
        finally:
            close: Any = getattr(source, "aclose", None)
            if close is not None:
                await close()


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part) if part else b""
