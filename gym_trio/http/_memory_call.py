"""One request to an app in memory: its ``receive`` and ``send``, and the response that comes of them."""

from __future__ import annotations

import enum
import logging
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
import trio

from ..errors import Delivery, PeerDropped, ProtocolError, TransportError
from ..remember import remember
from ._direct import Answer
from ._disconnect import App, Message, Scope
from ._http1_grammar import TOKEN_BYTES
from ._message import HeaderPairs, Request, Response

__all__ = ["KnownPairs", "MemoryCall", "StreamedCall", "in_messages", "path_of", "plain_response"]

KnownPairs = dict[tuple[bytes, bytes], tuple[bytes, bytes]]  # response headers that were found fit, and their form

_log = logging.getLogger(__name__)

_SERVERS_OWN = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"content-length"})
_LF, _CR, _NUL = b"\n\r\0"  # numbers: to look for bytes in bytes costs as much as five calls
_MOST_KNOWN_PAIRS = 512
_LONGEST_KNOWN_PAIR = 64
_FAILED_BODY = b"Internal Server Error\n"
_FAILED_HEADERS: HeaderPairs = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", b"%d" % len(_FAILED_BODY)),
    (b"connection", b"close"),
)


class _Phase(enum.IntEnum):
    """How far the response has come. Each phase is followed by a later one only."""

    AWAITED = 0  # the app has said nothing
    HELD = 1  # it gave the head, which counts once the first of the body is there
    BEGUN = 2  # the head and some of the body are there
    COMPLETE = 3  # all of it
    REFUSED = 4  # it broke a limit of the client, who has gone


_AWAITED, _HELD, _BEGUN, _COMPLETE, _REFUSED = _Phase  # looking a member up costs as much as a call


class MemoryCall:
    """One call of the app, whose response is collected."""

    __slots__ = (
        "_bodiless",
        "_body_taken",
        "_chunks",
        "_declared",
        "_known_pairs",
        "_max_body_bytes",
        "_over",
        "_phase",
        "_request",
        "_size",
        "_source",
        "_source_failure",
        "_writer",
        "raw_headers",
        "status",
    )

    def __init__(self, request: Request, max_body_bytes: int | None, known_pairs: KnownPairs) -> None:
        self.status = 0
        self._known_pairs = known_pairs
        self.raw_headers: HeaderPairs = ()
        self._phase = _AWAITED
        self._request = request
        self._max_body_bytes = max_body_bytes
        self._chunks: list[bytes] = []
        self._size = 0
        self._declared: int | None = None  # the response's content-length
        self._bodiless = request.method == "HEAD"
        self._body_taken = False
        self._source: AsyncIterator[bytes] | None = None  # of an asynchronous request body
        self._source_failure: BaseException | None = None
        self._over: trio.Event | None = None  # made when the app waits for the end of the exchange
        self._writer: trio.MemorySendChannel[bytes] | None = None  # None: the response is collected

    # The sender's side

    async def run(self, app: App, scope: Scope) -> None:
        """Call the app; it has ended when this returns."""
        try:
            await app(scope, self.receive, self.send)
        except Exception:  # noqa: BLE001  whatever the app raises is an answer to its client
            if self._source_failure is None and self._phase is not _REFUSED:
                _log.exception("%s %s failed", scope["method"], scope["path"])
        finally:
            if self._source is not None:
                await _close(self._source)
        if self._phase < _BEGUN:
            self._answer_failure()

    def _answer_failure(self) -> None:
        self.status, self.raw_headers = 500, _FAILED_HEADERS
        self._chunks = [] if self._bodiless else [_FAILED_BODY]
        self._enter(_COMPLETE)

    @property
    def app_is_done(self) -> bool:
        """The app has said that its response is complete."""
        return self._phase is _COMPLETE

    def response(self) -> Response:
        if self._phase is not _COMPLETE or self._source_failure is not None:
            self.check_complete()
        return Response(self.status, self.raw_headers, b"".join(self._chunks))

    def check_complete(self) -> None:
        """**Errors**: what a client would have seen of a response that did not come whole."""
        if self._source_failure is not None:
            raise self._source_failure
        if self._phase is _REFUSED:
            limit = self._max_body_bytes
            raise ProtocolError(f"{self._request.origin}: the response's body is larger than {limit} bytes")
        if self._phase is _COMPLETE:
            return
        # A client goes by what the head says: it may have seen all of the response before the app has said so.
        if self._phase < _BEGUN or not (self._bodiless or self._size == self._declared):
            raise PeerDropped(f"{self._request.origin}: the app ended before its response was complete")

    def _enter(self, phase: _Phase) -> None:
        if phase <= self._phase:
            raise RuntimeError(f"a response that is {self._phase.name} cannot become {phase.name}")
        self._phase = phase
        if self._over is not None and phase >= _COMPLETE:
            self._over.set()

    # The app's side

    async def receive(self) -> Message:
        if not self._body_taken:
            body = self._request.body
            if isinstance(body, bytes):
                self._body_taken = True
                self._request.handed_over()
                return {"type": "http.request", "body": body, "more_body": False}
            part = await self._next_part(body)
            if self._source_failure is None:
                return {"type": "http.request", "body": part, "more_body": not self._body_taken}
        elif self._phase >= _COMPLETE:
            await trio.lowlevel.checkpoint()
        else:
            if self._over is None:
                self._over = trio.Event()
            await self._over.wait()
        return {"type": "http.disconnect"}

    async def _next_part(self, body: AsyncIterable[bytes]) -> bytes:
        await trio.lowlevel.checkpoint()
        if self._source is None:
            self._source = aiter(body)
        try:
            return bytes(await anext(self._source))
        except StopAsyncIteration:
            self._body_taken = True
        except Exception as exc:  # noqa: BLE001  the sender's own error, raised to the sender when the app has ended
            self._body_taken = True
            self._source_failure = exc
        return b""

    async def send(self, message: Message) -> None:
        """One message of the response. Up to the last it is a checkpoint."""
        kind, phase = message["type"], self._phase
        if kind == "http.response.body" and (phase is _HELD or phase is _BEGUN):
            body = message.get("body", b"")
            if not isinstance(body, bytes):
                body = _as_bytes(body)
            more = message.get("more_body", False)
            self._admit(len(body), more)
            if phase is _HELD:
                self._enter(_BEGUN)
            if body and not self._bodiless:
                if self._writer is None:
                    self._chunks.append(body)
                else:
                    await self._writer.send(body)
            if more:
                await trio.lowlevel.checkpoint()
            else:
                self._enter(_COMPLETE)
        elif kind == "http.response.start" and phase is _AWAITED:
            self._read_head(message["status"], message.get("headers", ()))
            self._enter(_HELD)
        else:
            raise self._objection(kind)

    def _objection(self, kind: str) -> Exception:
        if self._phase is _REFUSED:
            return ConnectionResetError("the client has gone")
        return RuntimeError(f"{kind} is out of order in a response that is {self._phase.name}")

    def _read_head(self, status: Any, headers: Any) -> None:
        if not isinstance(status, int) or not 200 <= status <= 999:
            raise ValueError(f"{status!r} is not the status of a final response")
        known = self._known_pairs
        pairs = []
        for name, value in headers:
            pair = known.get((name, value)) or _fit(known, name, value)
            if pair[0] not in _SERVERS_OWN:
                pairs.append(pair)
            elif pair[0] == b"content-length":
                if not pair[1].isdigit() or self._declared not in (None, int(pair[1])):
                    raise ValueError(f"content-length: {pair[1]!r}")
                self._declared = int(pair[1])
        self.status, self.raw_headers = int(status), tuple(pairs)

    def _admit(self, added: int, more: bool) -> None:
        """Take ``added`` bytes of body into account. With the first of them the head counts, and says the length."""
        begins = self._phase is _HELD
        if begins:
            if self._declared is None and not more:
                self._declared = added
            if self.status in (204, 304):
                self._bodiless = True
                if self.status == 204 or not self._declared:
                    self._declared = None
        declared = self._declared
        if not self._bodiless:
            size = self._size + added
            if self._max_body_bytes is not None and size > self._max_body_bytes:
                self._enter(_REFUSED)
                raise ConnectionResetError("the client has gone")
            if size != declared and declared is not None and (size > declared or not more):
                raise RuntimeError("the response body is not as long as its content-length says")
            self._size = size
        if begins and declared is not None:
            self.raw_headers += ((b"content-length", b"%d" % declared),)


def _fit(known: KnownPairs, name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A header as a client would see it. **Errors**: `ValueError` or `TypeError` for what cannot be sent."""
    line = b"".join((name, value))  # which refuses what is not bytes
    if _LF in line or _CR in line or _NUL in line or not name or name.translate(None, TOKEN_BYTES):
        raise ValueError(f"the response header {name!r} cannot be sent")
    pair = name.lower(), value.strip(b" \t")
    if len(line) <= _LONGEST_KNOWN_PAIR:
        remember(known, (name, value), pair, _MOST_KNOWN_PAIRS)
    return pair


def path_of(target: bytes) -> str:
    """The path as apps get it: decoded, and without the query."""
    path = target.partition(b"?")[0]
    return (unquote_to_bytes(path) if b"%" in path else path).decode("utf-8", "replace")


def plain_response(answer: Answer, max_body_bytes: int, known: KnownPairs) -> Response | None:
    """What nearly every answer comes to; None for one that has to go the way of messages, where all rules are."""
    status, headers, body = answer
    if type(status) is not int or status != 200 or len(body) > max_body_bytes:
        return None
    raw_headers = []
    try:
        for pair in headers:
            fit = known.get(pair) or _fit(known, *pair)
            if fit[0] in _SERVERS_OWN:
                return None
            raw_headers.append(fit)
    except (TypeError, ValueError):
        return None
    return Response(200, (*raw_headers, (b"content-length", b"%d" % len(body))), body)


async def in_messages(
    found: Answer | Exception, request: Request, max_body_bytes: int, known_pairs: KnownPairs
) -> Response:
    """The response to ``request`` of an app that sends the answer ``found``, or raises it."""

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        if isinstance(found, Exception):
            raise found
        status, headers, content = found
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    call = MemoryCall(request, max_body_bytes, known_pairs)
    await call.run(app, {"method": request.method, "path": path_of(request.target)})
    return call.response()


class StreamedCall(MemoryCall):
    """A call whose response is read while the app writes it: one chunk is handed over at a time."""

    _writer: trio.MemorySendChannel[bytes]

    def __init__(self, request: Request, known_pairs: KnownPairs) -> None:
        super().__init__(request, None, known_pairs)
        self.begun = trio.Event()
        self._writer, self._reader = trio.open_memory_channel[bytes](0)
        self._left = False

    @property
    def headers(self) -> httpx.Headers:
        return httpx.Headers(list(self.raw_headers))

    def check_begun(self) -> None:
        if self._phase < _BEGUN:
            self.check_complete()

    def leave(self) -> None:
        """The reader has left its block."""
        self._left = True
        self._reader.close()

    async def run(self, app: App, scope: Scope) -> None:
        try:
            await super().run(app, scope)
            for chunk in self._chunks:  # the answer to a failed app
                await self._writer.send(chunk)
        finally:
            self.begun.set()
            self._writer.close()

    def _enter(self, phase: _Phase) -> None:
        super()._enter(phase)
        if phase >= _BEGUN:
            self.begun.set()
        if phase is _COMPLETE and not self._chunks:
            self._writer.close()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._left:
            raise TransportError("the response's block has been left", delivery=Delivery.POSSIBLY_DELIVERED)
        try:
            return await self._reader.receive()
        except trio.EndOfChannel:
            self.check_complete()
            raise StopAsyncIteration from None


def _as_bytes(body: Any) -> bytes:
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(f"a body must be bytes, not {type(body).__name__}")


async def _close(source: AsyncIterator[bytes]) -> None:
    close: Any = getattr(source, "aclose", None)
    if close is not None:
        await close()
