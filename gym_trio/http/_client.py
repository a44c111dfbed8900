"""`ServerClient`: finds a server by name and speaks JSON to it."""

from __future__ import annotations

import json as stdlib_json
import logging
import string
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn
from urllib.parse import quote

import attrs
import orjson
import trio

from .. import telemetry
from ..errors import PeerDropped, UsageError
from ..remember import remember
from ._message import Body, HeaderPairs, Origin, Request, Response, StreamedResponse, Transport
from ._retry import Attempts, RetryPolicy

__all__ = ["ServerClient"]

_log = logging.getLogger(__name__)

_MISSING: Any = object()
_KNOWN_ROUTES = 1024  # request lines and headers that are kept ready
_COMPACT_BYTES = 64 * 1024
_JSON: HeaderPairs = ((b"content-type", b"application/json"),)
_FIXED: HeaderPairs = ((b"user-agent", b"gym_trio"), (b"accept", b"*/*"))
_SAFE = "/?&=%:@!$'()*+,;~-._[]"
_PLAIN = f"{_SAFE}{string.ascii_letters}{string.digits}".encode("ascii")  # what stands in a target as it is
_COMMON_NAMES = frozenset({b"host", *(name for name, _ in (*_FIXED, *_JSON))})


@attrs.frozen
class _Server:
    """Where a name leads."""

    name: str
    transport: Transport
    origin: Origin
    prefix: bytes  # what every target begins with
    headers: HeaderPairs
    json_headers: HeaderPairs
    targets: dict[str, bytes] = attrs.field(factory=dict, init=False)  # by path


class ServerClient:
    """Sends requests to servers that are known by name.

    **Cancellation**, **Errors**: as `Transport`; error statuses are answers, see `Response.raise_for_status`. A name
    that is not registered, or a body that cannot be JSON, is a `UsageError`, raised before anything is sent. Nothing
    that may have been delivered is sent again, except a POST with an ``idempotency_key`` whose connection was lost:
    within ``replay``.

    **Ownership**: transports belong to whoever made them; the client closes none.
    """

    def __init__(
        self, servers: Mapping[str, tuple[Transport, str]] | None = None, *, replay: RetryPolicy | None = None
    ) -> None:
        self._servers: dict[str, _Server] = {}
        self._replay = replay or RetryPolicy()
        self._names: dict[str, bytes] = {}  # of callers' headers, as they are sent
        for name, (transport, base_url) in (servers or {}).items():
            self.register(name, transport, base_url)

    def __repr__(self) -> str:
        return f"ServerClient({', '.join(sorted(self._servers))})"

    @property
    def server_names(self) -> tuple[str, ...]:
        return tuple(self._servers)

    def register(self, name: str, transport: Transport, base_url: str) -> None:
        """Make ``name`` known. A name that is known already gets the new place."""
        origin, prefix = Origin.parse(base_url)
        if b"?" in prefix:
            raise UsageError(f"{name}: {base_url!r} has a query; paths are put behind it")
        headers = ((b"host", origin.authority), *_FIXED)
        self._servers[name] = _Server(name, transport, origin, prefix.rstrip(b"/"), headers, headers + _JSON)

    def base_url(self, server: str) -> str:
        """Where ``server`` is, without a slash at the end. **Errors**: `UsageError` for a name that is not known."""
        found = self._servers.get(server) or self._unknown(server)
        return f"{found.origin}{found.prefix.decode('ascii')}"

    async def post(
        self,
        server: str,
        path: str,
        *,
        json: Any = _MISSING,
        content: Body | None = None,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        on_sent: Callable[[], None] | None = None,
        idempotency_key: str | None = None,
    ) -> Response:
        """POST ``json``, or ``content`` as it is, and wait for the whole response.

        With an ``idempotency_key``, which goes into the header of that name, the server is trusted to act once on
        what it gets twice.
        """
        found = self._servers.get(server) or self._unknown(server)
        if idempotency_key is not None:
            headers = {**(headers or {}), "idempotency-key": idempotency_key}
        request = self._request(found, "POST", path, json, content, headers, cookies, on_sent)
        if idempotency_key is None:
            response = await found.transport.send(request)
        else:
            response = await self._send_until_answered(found, request)
        response.server = server
        return response

    async def _send_until_answered(self, server: _Server, request: Request) -> Response:
        if not isinstance(request.body, bytes):
            raise UsageError("a body that is iterated cannot be sent twice, so it takes no idempotency_key")
        request.keeps_body = True
        attempts: Attempts | None = None
        while True:
            try:
                return await server.transport.send(request)
            except PeerDropped as exc:
                attempts = attempts or Attempts(self._replay)
                seconds = attempts.next_wait()
                if seconds is None:
                    raise
                _log.warning("%s: %s; sending it again in %g s", server.name, exc, seconds)
                request.on_sent = None
            await trio.sleep(seconds)

    async def get(
        self,
        server: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
    ) -> Response:
        """GET, and wait for the whole response."""
        found = self._servers.get(server) or self._unknown(server)
        request = self._request(found, "GET", path, _MISSING, None, headers, cookies, None)
        response = await found.transport.send(request)
        response.server = server
        return response

    def stream(
        self,
        server: str,
        path: str,
        *,
        method: str = "POST",
        json: Any = _MISSING,
        content: Body | None = None,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """Send a request; inside the block the response's head is there and its body can be iterated."""
        found = self._servers.get(server) or self._unknown(server)
        request = self._request(found, method, path, json, content, headers, cookies, on_sent)
        return found.transport.stream(request)

    def _unknown(self, server: str) -> NoReturn:
        known = ", ".join(sorted(self._servers)) or "none"
        raise UsageError(f"no server is named {server!r}; known: {known}")

    def _request(
        self,
        server: _Server,
        method: str,
        path: str,
        json: Any,
        content: Body | None,
        headers: Mapping[str, str] | None,
        cookies: Mapping[str, str] | None,
        on_sent: Callable[[], None] | None,
    ) -> Request:
        common = server.headers
        body: Body = content or b""
        if json is not _MISSING:
            if content is not None:
                raise UsageError("json and content exclude each other")
            body = _encode_json(json)
            common = server.json_headers
        if telemetry.is_used():
            headers = {**telemetry.outgoing(), **(headers or {})}
        own: HeaderPairs = ()
        if headers:
            given = self._given(headers)
            if not _COMMON_NAMES.isdisjoint(given):  # the caller's replace ours of the same name
                own, common = tuple(pair for pair in common if pair[0] not in given), ()
            own += tuple(given.items())
        if cookies:
            own += (_cookie(cookies),)
        target = server.targets.get(path) or _new_target(server, path)
        # By position, ``keeps_body`` the last: to name an argument costs as much as half of the object.
        return Request(method, server.origin, target, own, body, on_sent, common, False)

    def _given(self, headers: Mapping[str, str]) -> dict[bytes, bytes]:
        known, given = self._names, {}
        for name, value in headers.items():
            given[known.get(name) or remember(known, name, _bytes(name.lower()), _KNOWN_ROUTES)] = _bytes(value)
        return given


def _new_target(server: _Server, path: str) -> bytes:
    joined = _bytes(path if path.startswith(("/", "?")) else f"/{path}")
    if joined.translate(None, _PLAIN):
        joined = quote(joined, safe=_SAFE).encode("ascii")
    return remember(server.targets, path, server.prefix + joined, _KNOWN_ROUTES)


def _cookie(cookies: Mapping[str, str]) -> tuple[bytes, bytes]:
    parts = []
    for name, value in cookies.items():
        if ";" in name or "=" in name or ";" in value:
            raise UsageError("a cookie's name or value contains a separator")
        parts.append(f"{name}={value}")
    return b"cookie", _bytes("; ".join(parts))


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise UsageError("a path, header or cookie has half of a character in it") from exc


def _encode_json(value: Any) -> bytes:
    try:
        encoded = orjson.dumps(value)
    except TypeError as exc:
        # Integers over 64 bits and lone surrogates, which the standard library writes.
        try:
            return stdlib_json.dumps(value, separators=(",", ":")).encode("ascii")
        except (TypeError, ValueError, RecursionError):
            raise UsageError(f"the body cannot be written as JSON: {exc}") from exc
    # orjson's result keeps its whole work buffer, 8 KiB at least; a request may wait for minutes with its body.
    return b"%b" % encoded if len(encoded) < _COMPACT_BYTES else encoded
