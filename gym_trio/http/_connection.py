"""`Connection`: one client's plain HTTP/1.1 connection, and the app running in it."""

from __future__ import annotations

import enum
import socket

import trio

from ._arrivals import Arrivals
from ._disconnect import DISCONNECT_EXTENSION, Scope
from ._exchange import COMPLETE, LOST, Exchange, run_to_tail
from ._http1_grammar import BadRequest
from ._http1_head import HTTP1, RequestHead
from ._http1_response import plain_response
from ._inbound import Inbound
from ._service import Service
from ._wire import ClientGone, Wire

__all__ = ["Address", "Connection", "ConnectionState"]

Address = tuple[str, int]


class ConnectionState(enum.IntEnum):
    """What the connection is about. `_STEPS` has the moves."""

    READING = 0  # the next request is awaited, or arriving
    HANDLING = 1  # the app runs
    CLOSING = 2  # no further request will be read
    HANDED_OVER = 3  # hypercorn has the socket


_READING, _HANDLING, _CLOSING, _HANDED_OVER = ConnectionState
_STEPS = ((_HANDLING, _CLOSING, _HANDED_OVER), (_READING, _CLOSING), (_CLOSING,), ())


class Connection:
    """Reads requests, runs the app for each in the connection's own task, writes the responses.

    **Cancellation**: closes the socket at once. The server cancels only when the grace of a shutdown has passed.

    **Errors**: `OSError` from the constructor when the kernel takes no more sockets to watch; the socket is as it was.

    **Ownership**: owns its socket from the start and closes it, unless hypercorn takes it over.

    ``client`` and ``server`` are the two ends as ASGI has them, None where they have no such address.
    """

    def __init__(
        self,
        service: Service,
        arrivals: Arrivals,
        sock: socket.socket,
        client: Address | None = None,
        server: Address | None = None,
    ) -> None:
        self.socket = sock
        self.service = service
        self.wire = Wire(sock, service.limits, self._depart)
        self.inbound = Inbound(service, self.wire)
        self.state = _READING
        self._arrivals = arrivals
        self._client = client
        self._server = server
        self._exchange: Exchange | None = None
        self._requests = 0
        self._life = trio.CancelScope()  # of the task that serves the connection
        arrivals.watch(self.wire.descriptor, self.wire)
        service.connections.add(self)

    def __repr__(self) -> str:
        return f"<Connection from {self._client}, {self.state.name}, {self._requests} requests>"

    def _enter(self, state: ConnectionState) -> None:
        if state not in _STEPS[self.state]:
            raise RuntimeError(f"a connection that is {self.state.name} cannot become {state.name}")
        self.state = state

    def _depart(self) -> None:
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
        life = self._life
        try:
            with life:
                return await self._serve(life)
            if self._exchange is not None:
                await self._end_unfinished(self._exchange)
        except BadRequest as refusal:
            await self._refuse(refusal.status, refusal.reason)
        except ClientGone:
            pass
        finally:
            if life is self._life and self.state is not _HANDED_OVER:
                self._close()
        return None

    async def _serve(self, life: trio.CancelScope) -> bytes | None:
        while True:
            head = await self.inbound.next_head()
            if head is None:
                return None
            if head.protocol is not HTTP1:
                return self._hand_over(head)
            body = self.inbound.arrived_body()
            if not (self.inbound.reader.body_complete or head.expects_continue):
                body = await self.inbound.buffered_body(body)
            exchange = Exchange(self, head, body)
            await self._handle(exchange)
            if life is not self._life or not await self._go_on_after(exchange):
                return None

    def _close(self) -> None:
        self._enter(_CLOSING)
        self.service.connections.discard(self)
        self._arrivals.forget(self.wire.descriptor)
        if self._exchange is not None and self._exchange.ends_with_connection:
            self.wire.reset_on_close()
        self.wire.close()

    def _hand_over(self, head: RequestHead) -> bytes:
        self._enter(_HANDED_OVER)
        self.service.connections.discard(self)
        self._arrivals.forget(self.wire.descriptor)
        return head.raw + self.inbound.reader.take_all()

    # ---- the app ----

    def _scope(self, exchange: Exchange) -> Scope:
        head = exchange.head
        line = head.line
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1" if line.minor_version else "1.0",
            "method": line.method,
            "scheme": "http",
            "path": line.path,
            "raw_path": line.raw_path,
            "query_string": line.query,
            "root_path": self.service.config.root_path,
            "headers": head.headers,
            "client": self._client,
            "server": self._server,
            "state": self.service.state.copy(),
            "extensions": {DISCONNECT_EXTENSION: exchange.ask_to_cancel},
        }

    async def _handle(self, exchange: Exchange) -> None:
        """Run the app. Its errors end here, in the log."""
        self._enter(_HANDLING)
        self._requests += 1
        if self.service.on_request is not None:
            self.service.on_request()
        if self.wire.has_ended:
            exchange.client_left()
        self._exchange = exchange
        if self.service.logs_access:
            exchange.started = trio.current_time()
        scope = exchange.scope = self._scope(exchange)
        try:
            call = self.service.app(scope, exchange.receive, exchange.send)
            await run_to_tail(call, exchange, self._move_on)
            if exchange.phase < COMPLETE and not exchange.has_left:
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
            trio.lowlevel.current_task().context = self.service.context.copy()

    async def _report(self, error: Exception, exchange: Exchange) -> None:
        if exchange.phase is LOST and (exchange.refusal is not None or _comes_from_departure(error)):
            return  # the connection's fault, and what the app made of it
        await self.service.config.log.error("%s failed", exchange, exc_info=error)

    def may_go_on(self) -> bool:
        """Whether another request can follow. Asked when the head of a response is sent."""
        return (
            not self.service.finishing
            and self.inbound.reader.body_complete
            and self._requests < self.service.settings.requests_per_connection
        )

    def _move_on(self) -> None:
        """The app goes on after its response: another task serves the connection from here."""
        exchange = self._exchange
        if exchange is not None and exchange.keep_alive:
            self._exchange = None
            self._life = trio.CancelScope()  # the other task's
            self._enter(_READING)
            self.service.context.copy().run(self.service.spawn, self)

    async def _go_on_after(self, exchange: Exchange) -> bool:
        """The app has ended: whether another request may follow."""
        if exchange.phase is not COMPLETE:
            await self._end_unfinished(exchange)
            return False
        self._exchange = None
        if exchange.keep_alive:
            self._enter(_READING)
            return True
        self._enter(_CLOSING)
        if self.inbound.reader.holds_bytes or not self.inbound.reader.body_complete:
            await self.wire.linger()
        return False

    async def _end_unfinished(self, exchange: Exchange) -> None:
        """The app has ended, or was cancelled because its client went, without a complete response."""
        self._exchange = None
        self._enter(_CLOSING)
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
        self._enter(_CLOSING)
        response = plain_response(status, reason, self.service.default_lines())
        try:
            if self.wire.send(response) == len(response):
                await self.wire.linger()
        except ClientGone:
            pass


def _comes_from_departure(error: BaseException | None) -> bool:
    """Whether an app's error is, or was raised because of, what ``send`` raised."""
    while error is not None:
        if isinstance(error, ClientGone):
            return True
        error = error.__cause__ or error.__context__
    return False
