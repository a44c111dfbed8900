"""`MemoryTransport`: requests to an ASGI app in this process, without sockets."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
import trio

from ..errors import Delivery, PeerDropped, ProtocolError, TransportError
from ._disconnect import DISCONNECT_EXTENSION, App, Message, Scope
from ._message import HeaderPairs, Request, Response, StreamedResponse

__all__ = ["MemoryTransport"]

_log = logging.getLogger(__name__)

_KNOWN_PATHS = 1024  # targets whose split form is kept


class MemoryTransport:
    """Calls ``app`` as a server would: a request is one call, in the sender's own task.

    What a client of a socket would see is seen here. An app that fails before its response has begun gives a 500; one
    that fails later, or whose body is not as long as it said, gives `PeerDropped`. ``state`` is the lifespan's state.

    **Cancellation**: each call has at least one checkpoint. A cancelled sender's handler is cancelled with it, and its
    cleanup has ended when the cancellation arrives. ``receive`` waits once the body is read and then gives
    ``http.disconnect`` when the response is complete or its reader has left.

    **Errors**: as a socket's, see `Transport`. What the app raised is logged, as a server would.
    """

    def __init__(
        self, app: App, *, state: dict[str, Any] | None = None, max_body_bytes: int = 64 * 1024 * 1024
    ) -> None:
        self._app = app
        self._state = state
        self._max_body_bytes = max_body_bytes
        self._paths: dict[bytes, tuple[str, bytes, bytes]] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"MemoryTransport({self._app!r})"

    async def send(self, request: Request) -> Response:
        self._check_open()
        await trio.lowlevel.checkpoint()
        call = _Call(request, self._max_body_bytes)
        await call.run(self._app, self._scope(request, _never))
        return call.response()

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedResponse]:
        self._check_open()
        await trio.lowlevel.checkpoint()
        call = _StreamedCall(request, self._max_body_bytes)
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:
            # What is raised in here is raised again outside, where no nursery wraps it into a group.
            try:
                nursery.start_soon(call.run, self._app, self._scope(request, _never))
                await call.begun.wait()
                call.check_begun()
                yield call
            except BaseException as exc:  # noqa: BLE001  raised again below
                failure = exc
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        self._closed = True
        await trio.lowlevel.checkpoint()

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError("the transport is closed", delivery=Delivery.NOT_SENT)

    def _scope(self, request: Request, subscribe: Callable[[Callable[[], None]], None]) -> Scope:
        split = self._paths.get(request.target)
        if split is None:
            if len(self._paths) >= _KNOWN_PATHS:
                self._paths.clear()
            split = self._paths[request.target] = _split_target(request.target)
        path, raw_path, query = split
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.origin.scheme,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": _headers(request),
            "client": ("127.0.0.1", 0),
            "server": (request.origin.host, request.origin.port),
            "extensions": {DISCONNECT_EXTENSION: subscribe},
        }
        if self._state is not None:
            scope["state"] = self._state.copy()
        return scope


def _never(callback: Callable[[], None]) -> None:
    """The caller's task is the handler's: it cannot go without the handler being cancelled too."""


def _split_target(target: bytes) -> tuple[str, bytes, bytes]:
    raw_path, _, query = target.partition(b"?")
    return unquote_to_bytes(raw_path).decode("utf-8", "replace"), raw_path, query


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    headers = [(name.lower(), value) for name, value in request.headers]
    names = {name for name, _ in headers}
    if b"host" not in names:
        headers.insert(0, (b"host", request.origin.authority))
    if not isinstance(request.body, bytes):
        if b"content-length" not in names:
            headers.append((b"transfer-encoding", b"chunked"))
    elif b"content-length" not in names and (request.body or request.method not in ("GET", "HEAD", "OPTIONS")):
        headers.append((b"content-length", b"%d" % len(request.body)))
    return headers


class _Call:
    """One request, the app's side of it: what it receives, and what it has sent."""

    def __init__(self, request: Request, max_body_bytes: int) -> None:
        self.status = 0  # 0 until the response has begun
        self.raw_headers: HeaderPairs = ()
        self.complete = False
        self._request = request
        self._max_body_bytes = max_body_bytes
        self._chunks: list[bytes] = []
        self._size = 0
        self._body_taken = False
        self._source: AsyncIterator[bytes] | None = None
        self._over: trio.Event | None = None  # made when the app waits for the end of the exchange
        self._too_large = False

    async def run(self, app: App, scope: Scope) -> None:
        if self._request.on_sent is not None:
            self._request.on_sent()
        try:
            await app(scope, self.receive, self.send)
        except Exception:  # noqa: BLE001  whatever the app raises is an answer to its client
            _log.exception("%s %s failed", scope["method"], scope["path"])
        if not self.status:
            self._fail_early()
        self.end()

    def _fail_early(self) -> None:
        self.status = 500
        self.raw_headers = ((b"content-length", b"0"), (b"connection", b"close"))
        self.complete = True

    def end(self) -> None:
        if self._over is not None:
            self._over.set()

    def response(self) -> Response:
        self.check_complete()
        return Response(self.status, self.raw_headers, b"".join(self._chunks))

    def check_complete(self) -> None:
        if self._too_large:
            raise ProtocolError(f"the response is larger than {self._max_body_bytes} bytes")
        if not self.complete:
            raise PeerDropped("the app ended before its response was complete")

    async def receive(self) -> Message:
        if not self._body_taken:
            body = self._request.body
            if isinstance(body, bytes):
                self._body_taken = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await self._receive_part(body)
        if not self.complete:
            if self._over is None:
                self._over = trio.Event()
            await self._over.wait()
        else:
            await trio.lowlevel.checkpoint()
        return {"type": "http.disconnect"}

    async def _receive_part(self, body: Any) -> Message:
        await trio.lowlevel.checkpoint()
        if self._source is None:
            self._source = aiter(body)
        try:
            part = bytes(await anext(self._source))
        except StopAsyncIteration:
            self._body_taken = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start" and not self.status:
            self.begin(message)
        elif kind == "http.response.body" and self.status and not self.complete:
            await self.add(_real_bytes(message.get("body", b"")), bool(message.get("more_body", False)))
        else:
            raise RuntimeError(f"unexpected ASGI message {kind!r}")

    def begin(self, message: Message) -> None:
        self.raw_headers = tuple((bytes(n).lower(), bytes(v)) for n, v in message.get("headers", ()))
        self.status = message["status"]

    async def add(self, chunk: bytes, more: bool) -> None:
        self._size += len(chunk)
        if self._size > self._max_body_bytes:
            self._too_large = True
            raise RuntimeError("the response is too large")
        self._chunks.append(chunk)
        if more:
            await trio.lowlevel.checkpoint()
        else:
            self.complete = True
            self.end()


def _real_bytes(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(f"a body must be bytes, not {type(body).__name__}")


class _StreamedCall(_Call):
    """A call whose response is read while the app still writes it: one chunk is handed over at a time."""

    def __init__(self, request: Request, max_body_bytes: int) -> None:
        super().__init__(request, max_body_bytes)
        self.begun = trio.Event()
        self._writer, self._reader = trio.open_memory_channel[bytes](0)

    @property
    def headers(self) -> httpx.Headers:
        return httpx.Headers(list(self.raw_headers))

    def begin(self, message: Message) -> None:
        super().begin(message)
        self.begun.set()

    def end(self) -> None:
        super().end()
        self.begun.set()
        self._writer.close()

    def check_begun(self) -> None:
        pass

    async def add(self, chunk: bytes, more: bool) -> None:
        if chunk:
            await self._writer.send(chunk)
        if not more:
            self.complete = True
            self.end()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._reader.receive()
        except trio.EndOfChannel:
            self.check_complete()
            raise StopAsyncIteration from None
