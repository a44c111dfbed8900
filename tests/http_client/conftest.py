"""What the client's tests share: a peer that says exactly what a test wants, and cancellation at a chosen step."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from gym_trio import http


class Incoming:
    """One connection, as the peer sees it."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.number = 0  # which connection it is, from 1
        self._buffer = b""

    async def _more(self) -> bool:
        try:
            data = await self.stream.receive_some()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        self._buffer += data
        return bool(data)

    async def head(self) -> bytes:
        """A request's head; empty at the end of input."""
        while b"\r\n\r\n" not in self._buffer:
            if not await self._more():
                return b""
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return head

    async def request(self) -> tuple[bytes, bytes]:
        """A request's head and its body with any chunk framing left in; both empty at the end of input."""
        head = await self.head()
        lower = head.lower()
        if b"content-length: " in lower:
            length = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
            return head, await self.exactly(length)
        if b"transfer-encoding: chunked" in lower:
            return head, await self.until(b"0\r\n\r\n")
        return head, b""

    async def exactly(self, length: int) -> bytes:
        while len(self._buffer) < length:
            if not await self._more():
                raise EOFError
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return body

    async def until(self, end: bytes) -> bytes:
        while not self._buffer.endswith(end):
            if not await self._more():
                raise EOFError
        body, self._buffer = self._buffer, b""
        return body

    async def answer(self, body: bytes = b"", head: bytes = b"HTTP/1.1 200 OK") -> None:
        await self.stream.send_all(head + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    async def reset(self) -> None:
        """Close so that the other side gets a reset."""
        stream = self.stream
        assert isinstance(stream, trio.SocketStream)
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await stream.aclose()


Handler = Callable[[Incoming], Awaitable[None]]


@attrs.define
class Peer:
    """A server under a test's control."""

    origin: http.Origin
    connections: int = 0
    open: int = 0
    heads: list[bytes] = attrs.Factory(list)

    @property
    def url(self) -> str:
        return str(self.origin)

    def request(self, method: str = "POST", target: bytes = b"/", **fields: object) -> http.Request:
        return http.Request(method, self.origin, target, **fields)


@asynccontextmanager
async def _open_peer(
    handler: Handler, *, ssl_context: ssl.SSLContext | None = None, host: str = "127.0.0.1", name: str | None = None
) -> AsyncIterator[Peer]:
    peer: Peer

    async def serve(stream: trio.SocketStream) -> None:
        incoming = Incoming(trio.SSLStream(stream, ssl_context, server_side=True) if ssl_context else stream)
        peer.connections += 1
        peer.open += 1
        incoming.number = peer.connections
        try:
            await handler(incoming)
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            peer.open -= 1
            await trio.aclose_forcefully(stream)

    listeners = await trio.open_tcp_listeners(0, host=host, backlog=4096)
    port = listeners[0].socket.getsockname()[1]
    peer = Peer(http.Origin("https" if ssl_context else "http", name or host, port))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        try:
            yield peer
        finally:
            nursery.cancel_scope.cancel()


@pytest.fixture
def open_peer():
    """``async with open_peer(handler) as peer``: a server whose every byte the handler decides."""
    return _open_peer


async def _echo(incoming: Incoming) -> None:
    while True:
        head, body = await incoming.request()
        if not head:
            return
        await incoming.answer(body)


@pytest.fixture
def echo() -> Handler:
    """A handler that answers each request with its body, on connections that are kept."""
    return _echo


@pytest.fixture
def deaf() -> Iterator[http.Origin]:
    """Where nobody answers a handshake: the backlog is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield http.Origin("http", *listener.getsockname())


@pytest.fixture
def refusing() -> Iterator[http.Origin]:
    """Where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield http.Origin("http", *bound.getsockname())


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers whose seed is printed when the test fails."""
    seed = random.SystemRandom().randrange(2**32)
    request.node.add_report_section("call", "seed", str(seed))
    return random.Random(seed)


async def _settled(condition: Callable[[], bool]) -> None:
    """Return once the other side of a socket has seen what we did; the bound only ends a failing test."""
    with trio.fail_after(10):
        while not condition():
            await trio.lowlevel.checkpoint()


@pytest.fixture
def settled():
    return _settled
