"""`Connection`: one client's plain HTTP/1.1 connection, and the app running in it."""

from __future__ import annotations

import contextvars
import enum
import socket
from urllib.parse import unquote

import trio
from hypercorn.utils import parse_socket_addr

from ._departures import Departures
from ._disconnect import DISCONNECT_EXTENSION, Scope
from ._exchange import Exchange, Phase, run_to_tail
from ._http1_parser import BadRequest, Protocol, RequestHead, RequestReader
from ._http1_response import plain_response
from ._service import Service
from ._wire import ClientGone, TooSlow, Wire

__all__ = ["Connection", "ConnectionState"]

_BODY_PIECE_BYTES = 256 * 1024


class ConnectionState(enum.IntEnum):
    """What the connection is about. `_STEPS` has the moves."""

    IDLE = 0  # no byte of a next request has arrived: shutdown closes it at once
    READING = 1  # a request is arriving
    HANDLING = 2  # the app runs
    CLOSING = 3  # no further request will be read
    HANDED_OVER = 4  # hypercorn has the socket


_STEPS = (
    (ConnectionState.READING, ConnectionState.CLOSING),
    (ConnectionState.HANDLING, ConnectionState.CLOSING, ConnectionState.HANDED_OVER),
    (ConnectionState.IDLE, ConnectionState.CLOSING),
    (ConnectionState.CLOSING,),
    (),
)


class Connection:
    """Reads requests, runs the app for each in the connection's own task, writes the responses.

    **Cancellation**: closes the socket at once. The server cancels only when the grace of a shutdown has passed.

    **Ownership**: owns its socket from the start and closes it, unless hypercorn takes it over.
    """

    def __init__(self, service: Service, departures: Departures, sock: socket.socket) -> None:
        self.socket = sock
        self.service = service
        self.reader = RequestReader(service.limits)
        self.wire = Wire(sock, service.limits)
        self.state = ConnectionState.IDLE
        self._departures = departures
        self._client, self._server = _addresses(sock)
        self._exchange: Exchange | None = None
        self._departed = False  # no more input will come
        self._requests = 0
        self._life = trio.CancelScope()  # of the task that serves the connection
        self._context = contextvars.copy_context()
        service.connections.add(self)
        departures.watch(sock, self._depart)

    def __repr__(self) -> str:
        return f"<Connection from {self._client}, {self.state.name}, {self._requests} requests>"

    def _enter(self, state: ConnectionState) -> None:
        if state not in _STEPS[self.state]:
            raise RuntimeError(f"a connection that is {self.state.name} cannot become {state.name}")
        self.state = state

    def _depart(self) -> None:
        self._departed = True
        if self._exchange is not None:
            self._exchange.client_left()

    def cancel(self) -> None:
        """Cancel the request at hand, and with it the connection."""
        self._life.cancel()

    # ---- the life of a connection ----

    async def run(self) -> bytes | None:
        """Serve requests until the connection is over, and close it.

        Bytes come back when hypercorn has to go on: those that it has to read before any from the socket.
        """
        life = self._life = trio.CancelScope()
        try:
            with life:
                return await self._serve(life)
            if self._exchange is not None:
                await self._end_unfinished(self._exchange)
        except BadRequest as refusal:
            await self._refuse(refusal.status, refusal.reason)
        except TooSlow:
            await self._refuse(408, "the request did not arrive in time")
        except ClientGone:
            pass
        finally:
            if life is self._life and self.state is not ConnectionState.HANDED_OVER:
                self._close()
        return None

    async def _serve(self, life: trio.CancelScope) -> bytes | None:
        while True:
            head = await self._next_head()
            if head is None:
                return None
            if head.protocol is not Protocol.HTTP1:
                return self._hand_over(head)
            exchange = Exchange(self, head, await self._buffered_body(head))
            await self._handle(exchange)
            if life is not self._life or not await self._go_on_after(exchange):
                return None

    def _close(self) -> None:
        self._enter(ConnectionState.CLOSING)
        self.service.connections.discard(self)
        self._departures.forget(self.socket)
        self.wire.close()

    def _hand_over(self, head: RequestHead) -> bytes:
        self._enter(ConnectionState.HANDED_OVER)
        self.service.connections.discard(self)
        self._departures.forget(self.socket)
        return head.raw + self.reader.take_all()

    # ---- the request ----

    async def _next_head(self) -> RequestHead | None:
        """None when there is none, because the client has gone, was idle for too long, or the server shuts down."""
        reader = self.reader
        head = reader.next_head() if reader.holds_bytes else None
        if head is not None:
            self._enter(ConnectionState.READING)
            await trio.lowlevel.checkpoint()  # so that a client that pipelines leaves others their turn
            return head
        if not reader.holds_bytes:
            data = await self._first_bytes()
            if not data:
                return None
            reader.feed(data)
        self._enter(ConnectionState.READING)
        head = reader.next_head()
        if head is None:
            deadline = trio.current_time() + self.service.limits.head_seconds
            while head is None:
                data = await self.wire.read_until(deadline)
                if not data:
                    return None
                reader.feed(data)
                head = reader.next_head()
        return head

    async def _first_bytes(self) -> bytes:
        """The beginning of the next request; ``b""`` when none comes in time."""
        if self.service.finishing:
            return b""
        idle = self.service.idle
        idle.add(self.wire)
        try:
            return await self.wire.read()
        except trio.ClosedResourceError:
            return b""
        finally:
            idle.remove(self.wire)

    async def _buffered_body(self, head: RequestHead) -> bytes:
        """All of a small body, the beginning of a large one; nothing yet if the client waits for a 100."""
        reader = self.reader
        self.wire.renew_allowances()
        body = reader.body()
        if reader.body_complete or head.expects_continue:
            return body
        pieces = [body]
        size = len(body)
        while not reader.body_complete and size < self.service.limits.buffered_body_bytes:
            pieces.append(await self.read_body_piece())
            size += len(pieces[-1])
        return b"".join(pieces)

    async def read_body_piece(self) -> bytes:
        """Wait for more of the body. Nothing may be decoded of what arrives.

        **Errors**: `BadRequest` (a malformed, too large or too slow body), `ClientGone`.
        """
        reader = self.reader
        piece = reader.body()
        while not piece and not reader.body_complete:
            try:
                data = await self.wire.read_body(_BODY_PIECE_BYTES)
            except TooSlow:
                raise BadRequest(408, "the body did not arrive in time") from None
            if not data:
                raise ClientGone("the client left before its request was complete")
            reader.feed(data)
            piece = reader.body()
        return piece

    def _scope(self, exchange: Exchange) -> Scope:
        head = exchange.head
        raw_path, _, query = head.target.partition(b"?")
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1" if head.minor_version else "1.0",
            "method": head.method,
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": self.service.config.root_path,
            "headers": head.headers,
            "client": self._client,
            "server": self._server,
            "state": self.service.state.copy(),
            "extensions": {DISCONNECT_EXTENSION: exchange.ask_to_cancel},
        }

    # ---- the response ----

    async def _handle(self, exchange: Exchange) -> None:
        """Run the app. Its errors end here, in the log."""
        self._enter(ConnectionState.HANDLING)
        self._requests += 1
        self.service.on_request()
        if self._departed:
            exchange.client_left()
        self._exchange = exchange
        if self.service.logs_access:
            exchange.started = trio.current_time()
        scope = exchange.scope = self._scope(exchange)
        try:
            call = self.service.app(scope, exchange.receive, exchange.send)
            await run_to_tail(call, exchange, self._move_on)
            if exchange.phase < Phase.COMPLETE and not exchange.has_left:
                await self.service.config.log.error("%s ended without a complete response", exchange)
        except Exception as error:  # noqa: BLE001  an app's error is the app's, not the server's
            await self._report(error, exchange)
        except BaseExceptionGroup as group:
            # Cancellation of this task, with errors that the app raised meanwhile.
            errors, others = group.split(Exception)
            if errors is not None:
                await self._report(errors, exchange)
            if others is not None:
                raise others from None
        finally:
            # What the app set in context variables is not the next request's. Takes effect when the task next waits.
            trio.lowlevel.current_task().context = self._context.copy()

    async def _report(self, error: Exception, exchange: Exchange) -> None:
        if exchange.phase is Phase.LOST and _comes_from_departure(error):
            return
        await self.service.config.log.error("%s failed", exchange, exc_info=error)

    def may_go_on(self) -> bool:
        """Whether another request can follow. Asked when the head of a response is sent."""
        return (
            not self.service.finishing
            and self.reader.body_complete
            and self._requests < self.service.settings.requests_per_connection
        )

    def _move_on(self) -> None:
        """The app goes on after its response: another task serves the connection from here."""
        exchange = self._exchange
        if exchange is not None and exchange.keep_alive:
            self._exchange = None
            self._life = trio.CancelScope()  # the other task's; it takes its own
            self._enter(ConnectionState.IDLE)
            self._context.copy().run(self.service.spawn, self)

    async def _go_on_after(self, exchange: Exchange) -> bool:
        """The app has ended: whether another request may follow."""
        if exchange.phase is not Phase.COMPLETE:
            await self._end_unfinished(exchange)
            return False
        self._exchange = None
        if exchange.keep_alive:
            self._enter(ConnectionState.IDLE)
            return True
        self._enter(ConnectionState.CLOSING)
        if self.reader.holds_bytes or not self.reader.body_complete:
            await self.wire.linger()
        return False

    async def _end_unfinished(self, exchange: Exchange) -> None:
        """The app has ended, or was cancelled because its client went, without a complete response."""
        self._exchange = None
        self._enter(ConnectionState.CLOSING)
        if self.service.logs_access:
            await self.service.log_access(exchange.scope, None, exchange.started)
        if exchange.ends_with_connection:
            self.wire.reset_on_close()
        elif exchange.refusal is not None and not exchange.begun:
            await self._refuse(exchange.refusal.status, exchange.refusal.reason)
        elif not exchange.begun and not exchange.has_left:
            await self._refuse(500, "Internal Server Error")

    async def _refuse(self, status: int, reason: str) -> None:
        """Answer without the app, and close."""
        self._enter(ConnectionState.CLOSING)
        response = plain_response(status, reason, self.service.default_lines())
        try:
            if self.wire.send(response) == len(response):
                await self.wire.linger()
        except ClientGone:
            pass


def _comes_from_departure(error: BaseException | None) -> bool:
    """Whether an app's error is what it made of `ClientGone`, or of ``http.disconnect`` in place of its body."""
    while error is not None:
        if isinstance(error, ClientGone):
            return True
        error = error.__cause__ or error.__context__
    return False


def _addresses(sock: socket.socket) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """The client's and the server's, as ASGI has them. A client may have gone already, and with it its address."""
    try:
        return (
            parse_socket_addr(sock.family, sock.getpeername()),
            parse_socket_addr(sock.family, sock.getsockname()),
        )
    except OSError:
        return None, None
