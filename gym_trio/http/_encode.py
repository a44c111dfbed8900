"""A request's head as bytes, checked so that no value can end a line."""

from __future__ import annotations

import re

from ..errors import UsageError
from ._message import Request

__all__ = ["Framed", "check_request", "encode_head"]

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_TARGET = re.compile(rb"[\x21-\x7e]+").fullmatch
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "DELETE"})


class Framed:
    """The head, and how the body's end is marked: by its length, or in chunks when ``length`` is None."""

    __slots__ = ("head", "length")

    def __init__(self, head: bytes, length: int | None) -> None:
        self.head = head
        self.length = length


def encode_head(request: Request) -> Framed:
    """**Errors**: `UsageError` for what cannot be sent as HTTP/1.1; it never quotes a header's value."""
    check_request(request)
    declared: int | None = None
    chunked = has_host = False
    parts = [request.method.encode("ascii"), b" ", request.target, b" HTTP/1.1\r\n"]
    for name, value in request.headers:
        parts += (name, b": ", value, b"\r\n")
        lower = name.lower()
        if lower == b"host":
            has_host = True
        elif lower == b"content-length":
            declared = _length(value, declared)
        elif lower == b"transfer-encoding":
            chunked = _is_chunked(value)
    if not has_host:
        parts += (b"host: ", request.origin.authority, b"\r\n")
    length, framing = _frame(request, declared, chunked)
    parts += (framing, b"\r\n")
    return Framed(b"".join(parts), length)


def check_request(request: Request) -> None:
    """**Errors**: `UsageError` for a method, target or header that could not stand in a head."""
    if not request.method.isascii() or not _TOKEN(request.method.encode()) or request.method == "CONNECT":
        raise UsageError(f"{request.method!r} is not a method that can be sent")
    if not _TARGET(request.target):
        raise UsageError(f"the target {request.target!r} must be percent-encoded")
    text = b"".join([part for pair in request.headers for part in pair])
    if b"\n" in text or b"\r" in text or b"\0" in text:
        raise UsageError("a header contains a line end or a NUL")
    for name, _ in request.headers:
        if not _TOKEN(name):
            raise UsageError(f"{name!r} is not a header's name")


def _length(value: bytes, declared: int | None) -> int:
    if declared is not None or not value.isdigit():
        raise UsageError("content-length must be one number")
    return int(value)


def _is_chunked(value: bytes) -> bool:
    if value.lower() != b"chunked":
        raise UsageError("the only transfer-encoding of a request is chunked")
    return True


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
