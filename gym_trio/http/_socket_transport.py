"""`SocketTransport`: HTTP/1.1 over TCP and TLS, with a pool per origin."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import httpx
import trio

from ..errors import ConnectFailed, Delivery, TransportError, UsageError
from ._client_exchange import Exchange, NotSent, Shared
from ._encode import Framed, encode_head
from ._message import HeaderPairs, Origin, Request, Response, StreamedResponse
from ._origin_connection import Connection, connect
from ._pool import OriginPool
from ._retry import Attempts
from ._settings import TransportSettings

__all__ = ["PoolStatistics", "SocketTransport", "open_socket_transport"]

_log = logging.getLogger(__name__)


@attrs.frozen
class PoolStatistics:
    """A snapshot of a transport's connections, all origins together."""

    open: int  # connected sockets, idle or in use
    idle: int  # of those, the ones that wait for a request
    connecting: int  # being made
    waiting: int  # requests that wait for a connection


class SocketTransport:
    """A `Transport` over sockets.

    Finding or freeing a connection takes constant time, however many requests are in flight or wait.

    **Cancellation**: the request's socket is closed at once, without waiting, and its place is free.

    **Errors**: see `Transport`. What failed before a byte was handed over is tried again within
    ``settings.connect_retry``; what may have been delivered never is.

    **Ownership**: the sockets are the transport's. Without `open_socket_transport`, which also closes connections that
    nobody uses any more, call `aclose`.
    """

    def __init__(self, settings: TransportSettings | None = None) -> None:
        self._settings = settings or TransportSettings()
        self._pools: dict[Origin, OriginPool] = {}
        self._shared = Shared(self._settings.max_head_bytes, self._settings.write_seconds)
        self._ssl_context = self._settings.ssl_context
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
        exchange = await self._begin(request, self._settings.max_body_bytes)
        try:
            parser = exchange.parser
            while parser is None or not parser.complete:
                await exchange.read_more()
                parser = exchange.parser
        except BaseException:
            exchange.close()
            raise
        response = Response(parser.status, parser.raw_headers, b"".join(parser.chunks))
        exchange.finish()
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedResponse]:
        exchange = await self._begin(request, None)
        try:
            await exchange.read_head()
            yield _Streamed(exchange)
        finally:
            exchange.close()

    async def aclose(self) -> None:
        """Close every connection. Requests in flight end with a `TransportError`."""
        self._closed = True
        for pool in self._pools.values():
            pool.close()
        await trio.lowlevel.checkpoint()

    async def _begin(self, request: Request, max_body_bytes: int | None) -> Exchange:
        """An exchange whose request has been written."""
        framed = encode_head(request)
        pool = self._pools.get(request.origin) or self._new_pool(request.origin)
        await trio.lowlevel.checkpoint_if_cancelled()  # what is cancelled already sends nothing
        on_sent = request.on_sent
        attempts: Attempts | None = None
        while True:
            connection = pool.take_idle()
            reused = connection is not None
            try:
                if connection is None:
                    connection = await self._connection(pool, request.origin)
                if on_sent is not None:
                    told, on_sent = on_sent, None
                    told()
                return await self._write(Exchange(request, pool, connection, self._shared, max_body_bytes), framed)
            except (NotSent, TransportError) as exc:
                error = ConnectFailed(str(exc)) if isinstance(exc, NotSent) else exc
                if error.delivery is not Delivery.NOT_SENT or self._closed:
                    raise
                if reused and isinstance(exc, NotSent):
                    continue
            attempts = attempts or Attempts(self._settings.connect_retry)
            if not pool.failure_logged:
                pool.failure_logged = True
                _log.warning("%s; trying again", error)
            await attempts.wait(error)

    async def _write(self, exchange: Exchange, framed: Framed) -> Exchange:
        try:
            await exchange.write(framed)
        except BaseException:
            exchange.close()
            raise
        return exchange

    async def _connection(self, pool: OriginPool, origin: Origin) -> Connection:
        connection = await pool.acquire()
        if connection is not None:
            return connection
        try:
            connection = await connect(origin, self._settings, self._tls(origin))
        except BaseException:
            pool.connect_failed()
            raise
        pool.connected(connection)
        return connection

    def _tls(self, origin: Origin) -> ssl.SSLContext | None:
        if origin.scheme == "http":
            return None
        if self._ssl_context is None:
            self._ssl_context = httpx.create_ssl_context()
        return self._ssl_context

    def _new_pool(self, origin: Origin) -> OriginPool:
        if self._closed:
            raise TransportError("the transport is closed", delivery=Delivery.NOT_SENT)
        if origin.scheme not in ("http", "https"):
            raise UsageError(f"{origin}: only http and https are spoken here")
        settings = self._settings
        pool = self._pools[origin] = OriginPool(
            settings.keepalive_seconds, settings.max_connections_per_origin, settings.max_concurrent_connects
        )
        return pool

    async def _close_expired(self) -> None:
        """Close what has been idle too long, as long as the owner's block lasts."""
        period = self._settings.keepalive_seconds
        while True:
            await trio.sleep(period)
            for pool in self._pools.values():
                pool.expire()


class _Streamed:
    """The `StreamedResponse` of one exchange."""

    def __init__(self, exchange: Exchange) -> None:
        parser = exchange.parser
        assert parser is not None
        self._exchange = exchange
        self.status: int = parser.status
        self.raw_headers: HeaderPairs = parser.raw_headers

    @property
    def headers(self) -> httpx.Headers:
        return httpx.Headers(list(self.raw_headers))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._exchange.next_chunk()
        if not chunk:
            raise StopAsyncIteration
        return chunk


@asynccontextmanager
async def open_socket_transport(settings: TransportSettings | None = None) -> AsyncIterator[SocketTransport]:
    """A `SocketTransport` for the length of the block, which also closes connections that nobody uses any more."""
    transport = SocketTransport(settings)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        # What is raised in here is raised again outside, where no nursery wraps it into a group.
        nursery.start_soon(transport._close_expired)
        try:
            yield transport
        except BaseException as exc:  # noqa: BLE001  raised again below
            failure = exc
        with trio.CancelScope(shield=True):
            await transport.aclose()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
