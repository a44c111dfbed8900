"""A request's head as bytes, checked so that no value can end a line."""

from __future__ import annotations

import re

from ..errors import UsageError
from ._message import HeaderPairs, Request

__all__ = ["Framed", "encode_head"]

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_TARGET = re.compile(rb"[\x21-\x7e]+").fullmatch
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "CONNECT"})


class Framed:
    """The head, and how the body's end is marked: by its length, or in chunks when ``length`` is None."""

    __slots__ = ("head", "length")

    def __init__(self, head: bytes, length: int | None) -> None:
        self.head = head
        self.length = length


def encode_head(request: Request) -> Framed:
    """**Errors**: `UsageError` for what cannot be sent as HTTP/1.1; it never quotes a header's value."""
    declared: int | None = None
    chunked = has_host = False
    parts = [request.method.encode("ascii", "replace"), b" ", request.target, b" HTTP/1.1\r\n"]
    for name, value in request.headers:
        parts += (name, b": ", value, b"\r\n")
        lower = name.lower()
        if lower == b"host":
            has_host = True
        elif lower == b"content-length":
            declared = _length(value, declared)
        elif lower == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise UsageError("the only transfer-encoding of a request is chunked")
            chunked = True
    if not has_host:
        parts += (b"host: ", request.origin.authority, b"\r\n")
    length, framing = _frame(request, declared, chunked)
    parts += (framing, b"\r\n")
    head = b"".join(parts)
    # Each line ends once; a further CR or LF came in with a value.
    lines = len(request.headers) + 2 + (not has_host) + (framing != b"")
    if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
        raise UsageError("a header, the method or the target contains a line end or a NUL")
    _check_names(request.method, request.target, request.headers)
    return Framed(head, length)


def _length(value: bytes, declared: int | None) -> int:
    if declared is not None or not value.isdigit():
        raise UsageError("content-length must be one number")
    return int(value)


def _frame(request: Request, declared: int | None, chunked: bool) -> tuple[int | None, bytes]:
    """The body's length, or None for chunks, and the header that is still missing."""
    if chunked:
        if declared is not None:
            raise UsageError("content-length and transfer-encoding exclude each other")
        return None, b""
    if not isinstance(request.body, bytes):
        return declared, b"" if declared is not None else b"transfer-encoding: chunked\r\n"
    length = len(request.body)
    if declared is not None:
        if declared != length:
            raise UsageError(f"content-length is {declared}, the body has {length} bytes")
        return length, b""
    if not length and request.method in _BODILESS:
        return 0, b""
    return length, b"content-length: %d\r\n" % length


def _check_names(method: str, target: bytes, headers: HeaderPairs) -> None:
    if not _TOKEN(method.encode("ascii", "replace")):
        raise UsageError(f"{method!r} is not an HTTP method")
    if not _TARGET(target):
        raise UsageError(f"the target {target!r} must be percent-encoded")
    for name, _ in headers:
        if not _TOKEN(name):
            raise UsageError(f"{name!r} is not a header's name")
