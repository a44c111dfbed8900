"""One request and its response, as the app sees them: ``receive`` and ``send``."""

from __future__ import annotations

import enum
import types
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

import trio

from ._http1_grammar import BadRequest
from ._http1_head import RequestHead
from ._http1_response import CHUNKED, LENGTH, NO_BODY, UNTIL_CLOSE, ResponseHead
from ._wire import ClientGone

if TYPE_CHECKING:
    from ._connection import Connection
    from ._disconnect import Message, Scope

__all__ = ["COMPLETE", "LOST", "Exchange", "run_to_tail"]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_SMALL_BODY = 64 * 1024  # up to here a copy is cheaper than a second system call


class Phase(enum.IntEnum):
    """How far the response has come. Each phase is followed by a later one only."""

    AWAITED = 0  # the app has said nothing
    HELD = 1  # it gave the head, which is sent with the first of the body
    STREAMING = 2  # the head is on its way
    COMPLETE = 3  # the last byte has been handed to the socket
    LOST = 4  # the connection failed, or a limit was passed: nothing more is sent by the app


# Up to Python 3.11 looking a member up costs as much as a call, and a request has dozens of looks.
AWAITED, HELD, STREAMING, COMPLETE, LOST = Phase


class Exchange:
    """The connection's half of one ASGI call."""

    # Most requests leave most of these as they are.
    phase = AWAITED
    response: ResponseHead | None = None
    refusal: BadRequest | None = None  # why the rest of the body cannot be read
    begun = False  # the head of the response has gone to the socket
    keep_alive = False
    has_left = False  # the client, before the response was complete
    started = 0.0  # only measured for the access log
    _is_to_cancel = False  # the app asked to be cancelled when its client goes
    _framing = NO_BODY
    _left = 0  # of a response with a length
    _over: trio.Event | None = None  # made when someone waits for the end

    def __init__(self, connection: Connection, head: RequestHead, body: bytes) -> None:
        self.head = head
        self.scope: Scope = {}
        self._connection = connection
        self._body: bytes | None = body
        self._body_complete = connection.inbound.reader.body_complete
        self._expects_continue = head.expects_continue

    def __repr__(self) -> str:
        return f"{self.head.line.method} {self.head.line.target.decode()}"

    def _enter(self, phase: Phase) -> None:
        if phase <= self.phase:
            raise RuntimeError(f"a response that is {self.phase.name} cannot become {phase.name}")
        self.phase = phase
        if phase >= COMPLETE and self._over is not None:
            self._over.set()

    # ---- the client goes ----

    async def ask_to_cancel(self) -> None:
        """The scope extension: see `DISCONNECT_EXTENSION`."""
        self._is_to_cancel = True
        if self.has_left:
            self._connection.cancel()
        elif not self._body_complete and not self._expects_continue:
            body = await self._rest_of_body()
            if body is not None:
                self._body = (self._body or b"") + body
        if self.has_left:
            await trio.lowlevel.checkpoint_if_cancelled()

    def client_left(self) -> None:
        if self.phase >= COMPLETE or self.has_left:
            return
        self.has_left = True
        if self._is_to_cancel:
            self._connection.cancel()
        if self._over is not None:
            self._over.set()

    def lose(self, refusal: BadRequest | None = None) -> None:
        """The response cannot be completed by the app. Called for a failed socket and for a body past a limit."""
        if self.phase < COMPLETE:
            self.refusal = refusal
            self.client_left()
            self._enter(LOST)

    # ---- what the app calls ----

    async def receive(self) -> Message:
        """The body, in one message where it had arrived; then, when there is one, the end: ``http.disconnect``."""
        body, self._body = self._body, None
        if body or (body is not None and self._body_complete):
            return {"type": "http.request", "body": body, "more_body": not self._body_complete}
        if not self._body_complete and self.phase < COMPLETE:
            piece = await (self._rest_of_body() if self._is_to_cancel else self._body_piece())
            if piece is not None:
                return {"type": "http.request", "body": piece, "more_body": not self._body_complete}
        while not self.has_left and self.phase < COMPLETE:
            if self._over is None:
                self._over = trio.Event()
            await self._over.wait()
        if self._is_to_cancel:
            await trio.lowlevel.checkpoint_if_cancelled()
        return {"type": "http.disconnect"}

    async def _rest_of_body(self) -> bytes | None:
        pieces: list[bytes] = []
        while not self._body_complete:
            piece = await self._body_piece()
            if piece is None:
                return None
            pieces.append(piece)
        return b"".join(pieces)

    async def _body_piece(self) -> bytes | None:
        """More of the body; None when no more will come."""
        try:
            if self._expects_continue:
                self._expects_continue = False
                if self.phase < STREAMING:
                    await self._connection.wire.send_all(_CONTINUE)
            piece = await self._connection.inbound.body_piece()
        except BadRequest as refusal:
            self.lose(refusal)
        except ClientGone:
            self.lose()
        else:
            self._body_complete = self._connection.inbound.reader.body_complete
            return piece
        return None

    async def send(self, message: Message) -> None:
        """One message of the response. Up to the last it is a checkpoint; the last is sent without one if it fits.

        **Errors**: `ClientGone` (an `OSError`) once the connection is lost; `RuntimeError` for a message out of order.
        """
        kind = message["type"]
        phase = self.phase
        if kind == "http.response.body" and (phase is HELD or phase is STREAMING):
            more = message.get("more_body", False)
            wire = self._connection.wire
            try:
                data, rest = self._encode(message.get("body", b""), more)
                if wire.send(data) < len(data):
                    await wire.send_rest()
                if rest and wire.send(rest) < len(rest):
                    await wire.send_rest()
            except ClientGone:
                await self._lose_client()
                raise
            if more:
                await trio.lowlevel.checkpoint()
            elif self.phase is STREAMING:  # else it has become LOST while the socket was full
                self._complete()
                if self.started:
                    await self._connection.service.log_access(self.scope, self.response, self.started)
        elif kind == "http.response.start" and phase is AWAITED:
            heads = self._connection.service.response_heads
            self.response = heads.read(message["status"], message.get("headers", ()))
            self._enter(HELD)
        elif phase is LOST:
            raise ClientGone("the client is gone")
        else:
            raise RuntimeError(f"{kind} is out of order in a response that is {phase.name}")

    def _complete(self) -> None:
        self._enter(COMPLETE)
        if not self.keep_alive:
            self._connection.wire.end_output()

    async def _lose_client(self) -> None:
        self.lose()
        if self._is_to_cancel:  # the handler ends by being cancelled, not by an error
            await trio.lowlevel.checkpoint_if_cancelled()

    # ---- the response in bytes ----

    def _encode(self, body: bytes, more: bool) -> tuple[bytes, bytes]:
        """The next part of the response, as what to hand to the socket at once, and what behind it."""
        if not isinstance(body, bytes):
            body = _as_bytes(body)
        if self.phase is not HELD:
            return self._frame(body, more), b""
        head = self._begin(None if more else len(body))
        data = self._frame(body, more)
        self._enter(STREAMING)
        self.begun = True
        return (head + data, b"") if len(data) <= _SMALL_BODY else (head, data)

    def _begin(self, body_length: int | None) -> bytes:
        """Decide how the response is framed, and whether it is the connection's last."""
        response, request, connection = self.response, self.head, self._connection
        assert response is not None
        minor_version = request.line.minor_version
        framing = self._framing = response.framing(request.line.method, minor_version, body_length)
        self._left = response.content_length or 0
        if request.keep_alive and not response.close and framing is not UNTIL_CLOSE and connection.may_go_on():
            self.keep_alive = True
            line = b"" if minor_version else b"connection: keep-alive\r\n"
        else:
            line = b"connection: close\r\n"
        return response.encode(framing, line, connection.service.default_lines())

    def _frame(self, body: bytes, more: bool) -> bytes:
        framing = self._framing
        if framing is LENGTH:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the response body is not as long as its content-length says")
            return body
        if framing is CHUNKED:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk if more else chunk + b"0\r\n\r\n"
        return body if framing is UNTIL_CLOSE else b""

    @property
    def ends_with_connection(self) -> bool:
        """Whether closing the connection would look to the client like the end of a complete response."""
        return self.phase is not COMPLETE and self._framing is UNTIL_CLOSE


def _as_bytes(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(f"a body must be bytes, not {type(body).__name__}")


@types.coroutine
def run_to_tail(call: Awaitable[None], exchange: Exchange, on_tail: Callable[[], None]) -> Generator[Any, Any, None]:
    """Await ``call``; call ``on_tail`` at the first point where it waits although its response is complete.

    An app runs inside the task of its connection, which costs nothing but must not keep the connection from its next
    request: an app that goes on after its response (a background task) is noticed here, step by step.
    """
    steps: Any = call.__await__()
    noticed = False
    try:
        request = next(steps)
        while True:
            if exchange.phase is COMPLETE and not noticed:
                noticed = True
                on_tail()
            try:
                answer = yield request
            except BaseException as error:  # noqa: BLE001  whatever trio throws belongs to the app
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration:
        return
