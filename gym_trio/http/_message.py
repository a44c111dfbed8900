"""What goes over a transport: `Request`, `Response`, `StreamedResponse`, and the `Transport` that carries them."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Protocol, Self

import attrs
import httpx
import orjson

from ..errors import ResponseError, UsageError

__all__ = ["Body", "HeaderPairs", "Origin", "Request", "Response", "StreamedResponse", "Transport"]

HeaderPairs = tuple[tuple[bytes, bytes], ...]
Body = bytes | AsyncIterable[bytes]

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Where a server listens. Connections are shared between requests of equal origin."""

    scheme: str  # "http" or "https"
    host: str  # a name or an address; an IPv6 address without brackets
    port: int

    @classmethod
    def parse(cls, url: str) -> tuple[Self, bytes]:
        """The origin of ``url``, and its target: path and query, percent-encoded. **Errors**: `UsageError`."""
        try:
            parsed = httpx.URL(url)
            port = _DEFAULT_PORTS[parsed.scheme] if parsed.port is None else parsed.port
            origin = cls(parsed.scheme, parsed.raw_host.decode("ascii"), port)
        except (httpx.InvalidURL, KeyError) as exc:
            raise UsageError(f"{url!r} is not an http or https URL") from exc
        if not origin.host or not 0 < port < 65536:
            raise UsageError(f"{url!r} names no host, or a port that cannot be")
        if parsed.userinfo:  # not shown: it is a secret
            raise UsageError(f"the URL of {origin} has credentials in it; they belong into a header")
        return origin, parsed.raw_path

    @property
    def authority(self) -> bytes:
        """What belongs into the ``host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == _DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}").encode("ascii")

    def __str__(self) -> str:
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@attrs.define(eq=False)
class Request:
    """One request, with its URL already split.

    ``on_sent`` is called once, synchronously, right before the first byte may reach the server. ``host``,
    ``content-length`` and ``transfer-encoding`` are added where they are missing. ``common`` headers go before
    ``headers``: those that all requests to a server have, and that are therefore looked at once.

    **Ownership**: an asynchronous ``body`` is iterated in the sender's own task, and closed there. Without
    ``keeps_body`` one of bytes is let go of when it has been handed over, and the request cannot be sent again: what
    is asked of a model is long, and waits for minutes, thousands at once.
    """

    method: str
    origin: Origin
    target: bytes
    headers: HeaderPairs = ()
    body: Body = b""
    on_sent: Callable[[], None] | None = None
    common: HeaderPairs = ()
    keeps_body: bool = True

    def handed_over(self) -> None:
        """The transport has no more use for the body."""
        if not self.keeps_body:
            self.body = b""


@attrs.define(eq=False)
class Response:
    """A complete response. Header names in ``raw_headers`` are lower-case; ``server`` is the name it was asked by."""

    status: int
    raw_headers: HeaderPairs
    body: bytes
    server: str = ""
    _headers: httpx.Headers | None = attrs.field(default=None, init=False, repr=False)

    @property
    def headers(self) -> httpx.Headers:
        if self._headers is None:
            self._headers = httpx.Headers(list(self.raw_headers))
        return self._headers

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON. **Errors**: `ResponseError` that names the server when it is not JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as exc:
            # What other servers write and orjson refuses: NaN, lone surrogates. The standard library reads them.
            try:
                return json.loads(self.body)
            except (ValueError, RecursionError):
                raise self._error(f"the body is not JSON ({exc})") from exc

    def cookies(self) -> dict[str, str]:
        """Names and values that ``set-cookie`` headers set, as they stand; attributes are left out."""
        found: dict[str, str] = {}
        for name, value in self.raw_headers:
            if name == b"set-cookie":
                key, equals, rest = value.decode("latin-1").partition(";")[0].partition("=")
                if equals:
                    found[key.strip()] = rest.strip()
        return found

    def raise_for_status(self) -> None:
        """**Errors**: `ResponseError` for a status of 400 and above; it carries the server's ``retry-after``."""
        if self.status >= 400:
            raise self._error(f"status {self.status}")

    def retry_after_seconds(self) -> float | None:
        """The server's own advice on when to try again: a number or a date, never negative."""
        advice = self.headers.get("retry-after")
        if advice is None:
            return None
        try:
            seconds = float(advice)
        except ValueError:
            pass
        else:
            return max(0.0, seconds) if math.isfinite(seconds) else None
        try:
            moment = parsedate_to_datetime(advice)
        except (ValueError, OverflowError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return max(0.0, (moment - datetime.datetime.now(datetime.UTC)).total_seconds())

    def _error(self, what: str) -> ResponseError:
        who = self.server or "the server"
        text = self.text
        shown = " ".join(text[:200].split())  # a page or a traceback, within the one line that tells of it
        shown = f": {shown}" if shown else ""
        return ResponseError(
            f"{who}: {what}{shown}",
            server=self.server,
            status=self.status,
            body=text,
            retry_after_seconds=self.retry_after_seconds(),
        )


class StreamedResponse(Protocol):
    """A response whose body is still coming. Iterating it gives chunks of at least one byte, as they come.

    **Ownership**: it lives as long as the ``async with`` block that gave it. Leaving before the end tells the server,
    by closing the connection.

    **Errors**: iterating raises `PeerDropped` when the connection ends too soon.
    """

    @property
    def status(self) -> int: ...

    @property
    def raw_headers(self) -> HeaderPairs: ...

    @property
    def headers(self) -> httpx.Headers: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes: ...


class Transport(Protocol):
    """Carries requests to servers: over sockets, or in memory. Code above cannot tell which.

    **Cancellation**: a cancelled request is over on both sides: its connection is closed, or its handler cancelled.

    **Errors**: a `TransportError`, whose ``delivery`` says whether the server may have acted. A complete response of
    whatever status is no error.
    """

    async def send(self, request: Request) -> Response:
        """Send the request and wait for the whole response."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[StreamedResponse]:
        """Send the request; inside the block the response's head is there and its body can be iterated."""
        ...

    async def aclose(self) -> None:
        """End what the transport owns. Idempotent."""
        ...
