"""The socket transport as `httpx` sees it, so that ``httpx.AsyncClient(transport=...)`` works for anyone."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx
import trio

from ..errors import (
    ConnectFailed,
    Delivery,
    LocalResourceError,
    PeerDropped,
    TransportError,
    TransportTimeout,
    UsageError,
)
from ._client_exchange import ClientExchange
from ._message import Origin, Request
from ._pool import PoolTimeout
from ._settings import Bounds

__all__ = ["HttpxInterface"]

_PORTS = {"http": 80, "https": 443}


class HttpxInterface(httpx.AsyncBaseTransport):
    """Requests and responses in httpx's form, with httpx's exceptions and its four timeouts.

    httpx's own timeouts hold here (5 s each, unless the client sets others), a bound on reading too. The extensions
    ``timeout`` and ``target`` are honoured; ``http_version`` and ``reason_phrase`` are given.
    """

    _bounds: Bounds

    @abstractmethod
    async def _begin(self, request: Request, max_body_bytes: int | None, bounds: Bounds) -> ClientExchange: ...

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One request. Its response holds a connection until it is read or closed, which httpx does."""
        bounds = _bounds_of(request, self._bounds)
        with _translated(request):
            exchange = await self._begin(_to_request(request), None, bounds)
            try:
                while not exchange.head_complete:
                    await _read_more(exchange, bounds.read)
                parser = exchange.parser
                assert parser is not None  # its head is complete
                return httpx.Response(
                    parser.status,
                    headers=list(parser.raw_headers),
                    stream=_ResponseBody(exchange, request, bounds.read),
                    extensions={"http_version": parser.http_version, "reason_phrase": parser.reason},
                )
            except BaseException:
                exchange.close()
                raise


class _ResponseBody(httpx.AsyncByteStream):
    """The body of one response, read from its exchange."""

    def __init__(self, exchange: ClientExchange, request: httpx.Request, read_seconds: float) -> None:
        self._exchange = exchange
        self._request = request
        self._read_seconds = read_seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            with _translated(self._request):
                chunk = await self._next()
            if not chunk:
                return
            yield chunk

    async def _next(self) -> bytes:
        parser = self._exchange.parser
        while parser is not None and not parser.chunks and not parser.complete:
            await _read_more(self._exchange, self._read_seconds)
        return await self._exchange.next_chunk()

    async def aclose(self) -> None:
        """No checkpoint: it is called while a cancelled request is cleaned up."""
        self._exchange.close()


async def _read_more(exchange: ClientExchange, bound_seconds: float) -> None:
    with trio.move_on_after(bound_seconds):
        await exchange.read_more()
        return
    raise httpx.ReadTimeout(f"nothing came for {bound_seconds:g} s")


def _bounds_of(request: httpx.Request, default: Bounds) -> Bounds:
    timeouts = request.extensions.get("timeout")
    if timeouts is None:
        return default
    given = {key: math.inf if value is None else value for key, value in timeouts.items()}
    return Bounds(
        connect=given.get("connect", default.connect),
        write=given.get("write", default.write),
        pool=given.get("pool", default.pool),
        read=given.get("read", default.read),
    )


def _to_request(request: httpx.Request) -> Request:
    url = request.url
    port = url.port or _PORTS.get(url.scheme)
    if port is None:
        raise httpx.UnsupportedProtocol(f"{url.scheme!r} is not http or https", request=request)
    stream = request.stream
    assert isinstance(stream, httpx.AsyncByteStream)  # AsyncClient has checked it
    return Request(
        request.method,
        Origin(url.scheme, url.raw_host.decode("ascii"), port),
        request.extensions.get("target", url.raw_path),
        tuple(request.headers.raw),
        b"".join(stream) if isinstance(stream, httpx.ByteStream) else stream,
    )


@contextmanager
def _translated(request: httpx.Request) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as exc:
        exc.request = request
        raise
    except UsageError as exc:
        raise httpx.LocalProtocolError(str(exc), request=request) from exc
    except TransportError as exc:
        raise _httpx_type(exc)(str(exc), request=request) from exc


def _httpx_type(exc: TransportError) -> type[httpx.TransportError]:
    if isinstance(exc, ConnectFailed | LocalResourceError):
        return httpx.ConnectError
    if isinstance(exc, PoolTimeout):
        return httpx.PoolTimeout
    if isinstance(exc, TransportTimeout):
        return httpx.ConnectTimeout if exc.delivery is Delivery.NOT_SENT else httpx.WriteTimeout
    if isinstance(exc, PeerDropped) and isinstance(exc.__cause__, OSError):
        return httpx.ReadError
    return httpx.RemoteProtocolError
