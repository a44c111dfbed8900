"""A request's head as bytes, checked so that no value can end a line."""

from __future__ import annotations

from collections.abc import AsyncIterable

from ..errors import UsageError
from ..remember import remember
from ._message import HeaderPairs, Request

__all__ = ["Framed", "KnownHeaders", "Prepared", "check_request_line", "encode_head", "frame"]

_TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_VISIBLE = bytes(range(0x21, 0x7F))
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "POST", "PUT", "PATCH"})
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "DELETE"})  # an empty body is not worth a header
_DECISIVE = frozenset({b"host", b"content-length", b"transfer-encoding"})  # of what is still missing
_LF, _CR, _NUL = b"\n\r\0"  # numbers: to look for bytes in bytes costs as much as five calls
_KNOWN = 256


class Framed:
    """The head, and how the body's end is marked: by its length, or in chunks when ``length`` is None."""

    __slots__ = ("head", "length")

    def __init__(self, head: bytes, length: int | None) -> None:
        self.head = head
        self.length = length


class Prepared:
    """Headers that were found fit to be sent, and what they say about the body."""

    __slots__ = ("_before", "_encoded", "_headers", "chunked", "declared", "has_host", "pairs")
    pairs: list[tuple[bytes, bytes]]
    has_host: bool
    chunked: bool
    declared: int | None  # the length of the body

    def __init__(self, headers: HeaderPairs, names: dict[bytes, bytes], before: Prepared | None = None) -> None:
        """``names`` are known to be fit, each with its lower-case form; more are added. ``before``: those that
        ``headers`` follow.

        **Errors**: `UsageError`, which never quotes a value.
        """
        self._before = before
        self._headers = headers
        self._encoded: bytes | None = None
        self.pairs = pairs = [] if before is None else before.pairs.copy()
        is_decisive = before is None
        for name, value in headers:
            if _LF in value or _CR in value or _NUL in value:
                raise UsageError("a header contains a line end or a NUL")
            lowered = names.get(name) or _checked_name(name, names)
            if lowered in _DECISIVE:
                is_decisive = True
            pairs.append((lowered, value.strip(b" \t")))
        if before is not None and not is_decisive:
            self.has_host, self.chunked, self.declared = before.has_host, before.chunked, before.declared
            return
        found = {name for name, _ in pairs}
        self.has_host = b"host" in found
        self.chunked = b"transfer-encoding" in found
        self.declared = None
        if self.chunked or b"content-length" in found:
            self._read_framing()

    @property
    def encoded(self) -> bytes:
        """Their lines in a head. Made when it is first wanted: in memory nobody does."""
        if self._encoded is None:
            own = b"".join([b"%b: %b\r\n" % pair for pair in self._headers])
            self._encoded = own if self._before is None else self._before.encoded + own
        return self._encoded

    def _read_framing(self) -> None:
        for name, value in self.pairs:
            if name == b"content-length":
                if self.declared is not None or self.chunked or not value.isdigit():
                    raise UsageError("content-length must be one number, without a transfer-encoding beside it")
                self.declared = int(value)
            elif name == b"transfer-encoding" and value.lower() != b"chunked":
                raise UsageError("the only transfer-encoding of a request is chunked")


class KnownHeaders:
    """Prepares headers; those that come again are looked up."""

    def __init__(self) -> None:
        self._known: dict[HeaderPairs, Prepared] = {}
        self._names: dict[bytes, bytes] = {}

    def of(self, request: Request) -> Prepared:
        """The headers of ``request``: what is its own is looked at, what it has in common is known."""
        if not request.common:
            return self.prepare(request.headers)
        common = self._known.get(request.common) or self.prepare(request.common)
        return Prepared(request.headers, self._names, common) if request.headers else common

    def prepare(self, headers: HeaderPairs) -> Prepared:
        known = self._known.get(headers)
        return known or remember(self._known, headers, Prepared(headers, self._names), _KNOWN)


def encode_head(request: Request, prepared: Prepared) -> Framed:
    """**Errors**: `UsageError` for what cannot be sent as HTTP/1.1."""
    check_request_line(request)
    length, framing = frame(request, prepared)
    host = b"" if prepared.has_host else b"host: %b\r\n" % request.origin.authority
    line = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.target)
    if framing is not None:
        return Framed(b"%b%b%b%b: %b\r\n\r\n" % (line, host, prepared.encoded, *framing), length)
    return Framed(b"%b%b%b\r\n" % (line, host, prepared.encoded), length)


def frame(request: Request, prepared: Prepared) -> tuple[int | None, tuple[bytes, bytes] | None]:
    """The body's length, or None for chunks, and the header that is still missing to say so."""
    body, declared = request.body, prepared.declared
    if not isinstance(body, bytes):
        if not isinstance(body, AsyncIterable):
            raise UsageError(f"a body must be bytes or an async iterable of bytes, not {type(body).__name__}")
        is_framed = prepared.chunked or declared is not None
        return declared, None if is_framed else (b"transfer-encoding", b"chunked")
    if prepared.chunked:
        return None, None
    length = len(body)
    if declared is not None:
        if declared != length:
            raise UsageError(f"content-length is {declared}, the body has {length} bytes")
        return length, None
    if not length and request.method in _BODILESS:
        return 0, None
    return length, (b"content-length", b"%d" % length)


def check_request_line(request: Request) -> None:
    """**Errors**: `UsageError` for a method or target that could not stand in a head."""
    if request.method not in _METHODS and (not _is_token(request.method.encode()) or request.method == "CONNECT"):
        raise UsageError(f"{request.method!r} is not a method that can be sent")
    if not request.target or request.target.translate(None, _VISIBLE):
        raise UsageError(f"the target {request.target!r} must be percent-encoded")


def _checked_name(name: bytes, names: dict[bytes, bytes]) -> bytes:
    if not _is_token(name):
        raise UsageError(f"{name!r} is not a header's name")
    return remember(names, name, name.lower(), _KNOWN)


def _is_token(text: bytes) -> bool:
    return bool(text) and not text.translate(None, _TOKEN)
