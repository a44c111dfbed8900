"""`SocketTransport`: HTTP/1.1 over TCP and TLS, with a pool per origin."""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import httpx
import trio

from ..errors import ConnectFailed, Delivery, LocalResourceError, TransportError, TransportTimeout, UsageError
from ._arrivals import Arrivals, open_arrivals
from ._client_exchange import ClientExchange, NotSent, Shared
from ._connector import Connector
from ._encode import Framed, KnownHeaders, encode_head
from ._httpx import HttpxInterface
from ._message import HeaderPairs, Origin, Request, Response, StreamedResponse
from ._origin_connection import Connection
from ._pool import OriginPool, PoolTimeout, closed_error
from ._retry import Attempts
from ._settings import Bounds, TransportSettings

__all__ = ["PoolStatistics", "SocketTransport", "open_socket_transport"]

_log = logging.getLogger(__name__)

# So that each finds what was touched for it still in a cache. A server wakes all there are: if both ends go on in small
# steps, each is woken for little.
_WOKEN_AT_ONCE = 128


@attrs.frozen
class PoolStatistics:
    """A snapshot of a transport's connections, all origins together."""

    open: int
    """Connected sockets, idle or in use."""
    idle: int
    """Of those, the ones that no request uses."""
    connecting: int
    """Being made."""
    waiting: int
    """Requests that wait for a connection, or for the permission to make one."""


class SocketTransport(HttpxInterface):
    """A `Transport` over sockets, and an `httpx.AsyncBaseTransport`.

    Finding or freeing a connection takes constant time, however many requests are in flight or wait. Connections are
    used again last in, first out; where ``settings`` limit them, requests wait first in, first out.

    **Cancellation**: the request's connection is reset at once, without waiting, and its place is free. A request that
    was cancelled before it was sent is not sent.

    **Errors**: as `Transport`. What failed before a byte was handed over is tried again within
    ``settings.connect_retry``, and the first such failure of an origin is logged; what may have been delivered is
    never sent again.

    **Ownership**: the sockets are the transport's. `open_socket_transport` closes them with its block, and before that
    those that nobody uses any more; whoever makes a transport in another way calls `aclose`.
    """

    def __init__(self, settings: TransportSettings | None = None, arrivals: Arrivals | None = None) -> None:
        self._settings = settings or TransportSettings()
        self._bounds = Bounds(connect=self._settings.connect_seconds, write=self._settings.write_seconds)
        self._pools: dict[Origin, OriginPool] = {}
        self._connectors: dict[Origin, Connector] = {}  # of those that have a pool
        self._shared = Shared(self._settings.max_head_bytes)
        self._ssl_context = self._settings.ssl_context
        self._known_headers = KnownHeaders()
        self._arrivals = arrivals  # that somebody runs; without them each request waits in trio's own way
        self._closed = False

    def __repr__(self) -> str:
        return f"SocketTransport({self.statistics()})"

    def statistics(self) -> PoolStatistics:
        pools = self._pools.values()
        return PoolStatistics(
            open=sum(len(pool.connections) for pool in pools),
            idle=sum(pool.idle for pool in pools),
            connecting=sum(pool.connecting for pool in pools),
            waiting=sum(pool.waiting for pool in pools),
        )

    async def send(self, request: Request) -> Response:
        exchange = await self._begin(request, self._settings.max_body_bytes, self._bounds)
        try:
            parser = exchange.parser
            exchange.end_with_wait()
            while parser is None or not parser.complete:
                # What `read_more` does; a coroutine of its own would weigh on each of the thousands that wait here.
                await exchange.wait_for_input()
                exchange.read_nowait()
                parser = exchange.parser
            return Response(parser.status, parser.raw_headers, b"".join(parser.chunks))
        except trio.ClosedResourceError:
            raise exchange.closed_error() from None
        finally:
            exchange.close()

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedResponse]:
        exchange = await self._begin(request, None, self._bounds)
        try:
            while not exchange.head_complete:
                await exchange.read_more()
            yield _Streamed(exchange)
        finally:
            exchange.close()

    async def aclose(self) -> None:
        """Close every connection. Requests in flight end with a `TransportError`."""
        self._closed = True
        for pool in self._pools.values():
            pool.close()
        await trio.lowlevel.checkpoint()

    async def _begin(self, request: Request, max_body_bytes: int | None, bounds: Bounds) -> ClientExchange:
        """An exchange whose request has been written. The caller closes it."""
        framed = encode_head(request, self._known_headers.of(request))
        pool = self._pools.get(request.origin) or self._new_pool(request.origin)
        on_sent = request.on_sent
        attempts: Attempts | None = None
        while True:
            connection = pool.take_idle()
            reused = connection is not None
            try:
                if connection is None:
                    connection = await self._connection(pool, request.origin, bounds)
                exchange = ClientExchange(request, pool, connection, self._shared, max_body_bytes, bounds)
                await self._write(exchange, framed, on_sent)
                request.handed_over()
                return exchange
            except NotSent as exc:
                on_sent = None  # it has been told
                if reused:
                    continue
                error = exc.error
            except (ConnectFailed, LocalResourceError) as exc:
                error = exc
            attempts = attempts or Attempts(self._settings.connect_retry)
            await self._wait_for_next(attempts, pool, error)

    async def _write(self, exchange: ClientExchange, framed: Framed, on_sent: Callable[[], None] | None) -> None:
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            exchange.give_back()
            raise
        try:
            if on_sent is not None:
                on_sent()
            await exchange.write(framed)
        except BaseException:
            exchange.close()
            raise

    async def _wait_for_next(self, attempts: Attempts, pool: OriginPool, error: TransportError) -> None:
        certain = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        seconds = None if certain else attempts.next_wait()
        if seconds is None or self._closed:
            raise error
        if not pool.failure_logged:
            pool.failure_logged = True
            _log.warning("%s; trying again in %g s", error, seconds)
        await trio.sleep(seconds)

    async def _connection(self, pool: OriginPool, origin: Origin, bounds: Bounds) -> Connection:
        if bounds.pool == math.inf:
            got = await pool.acquire()
        else:
            with trio.move_on_after(bounds.pool) as scope:
                got = await pool.acquire()
            if scope.cancelled_caught:
                raise PoolTimeout(
                    f"{origin}: no connection was free within {bounds.pool:g} s", delivery=Delivery.NOT_SENT
                )
        if isinstance(got, Connection):
            return got
        try:
            connection = await self._connectors[origin].connect(self._tls(origin), got, bounds.connect)
            if self._arrivals is not None:
                connection.watch(self._arrivals)
        except BaseException as exc:
            pool.connect_failed(got)
            if self._closed and isinstance(exc, TransportTimeout):  # the permission was withdrawn
                raise closed_error() from None
            raise
        pool.connected(got, connection)
        return connection

    def _tls(self, origin: Origin) -> ssl.SSLContext | None:
        if origin.scheme == "http":
            return None
        if self._ssl_context is None:
            self._ssl_context = httpx.create_ssl_context()
        return self._ssl_context

    def _new_pool(self, origin: Origin) -> OriginPool:
        if self._closed:
            raise closed_error()
        if origin.scheme not in ("http", "https"):
            raise UsageError(f"{origin}: only http and https are spoken here")
        settings = self._settings
        self._connectors[origin] = Connector(origin, settings)
        pool = self._pools[origin] = OriginPool(
            settings.keepalive_seconds, settings.max_connections_per_origin, settings.max_concurrent_connects
        )
        return pool

    async def close_expired(self) -> None:
        """Close what has been idle too long, again and again, until cancelled."""
        while True:
            await trio.sleep(max(self._settings.keepalive_seconds, 1.0))
            for pool in self._pools.values():
                pool.expire()

    async def wake_waiting(self, scope: trio.CancelScope) -> None:
        """Wake the requests whose answers come, until ``scope`` is cancelled."""
        with scope:
            if self._arrivals is not None:
                await self._arrivals.run()


class _Streamed:
    """The `StreamedResponse` of one exchange."""

    def __init__(self, exchange: ClientExchange) -> None:
        parser = exchange.parser
        assert parser is not None  # its head is complete
        self._exchange = exchange
        self._ended = False
        self.status: int = parser.status
        self.raw_headers: HeaderPairs = parser.raw_headers

    @property
    def headers(self) -> httpx.Headers:
        return httpx.Headers(list(self.raw_headers))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        chunk = await self._exchange.next_chunk()
        if not chunk:
            self._ended = True
            self._exchange.close()
            raise StopAsyncIteration
        return chunk


@asynccontextmanager
async def open_socket_transport(settings: TransportSettings | None = None) -> AsyncIterator[SocketTransport]:
    """A `SocketTransport` for the length of the block. It also closes connections that nobody uses any more."""
    with open_arrivals(_WOKEN_AT_ONCE) as arrivals:
        transport = SocketTransport(settings, arrivals)
        failure: BaseException | None = None
        # Requests that are shielded from a cancellation of the block are answered all the same.
        waiting = trio.CancelScope(shield=True)
        try:
            async with trio.open_nursery() as nursery:
                # What is raised in here is raised again outside, where no nursery wraps it into a group.
                nursery.start_soon(transport.close_expired)
                nursery.start_soon(transport.wake_waiting, waiting)
                try:
                    yield transport
                except BaseException as exc:  # noqa: BLE001
                    failure = exc
                waiting.cancel()
                nursery.cancel_scope.cancel()
        except* trio.Cancelled:  # the closing task's, by a cancellation from outside, which is raised again below
            pass
        with trio.CancelScope(shield=True):
            await transport.aclose()
    if failure is not None:
        raise failure
    await trio.lowlevel.checkpoint_if_cancelled()
