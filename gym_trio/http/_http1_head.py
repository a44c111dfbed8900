"""Heads of HTTP/1.1 requests: what a request line and its headers say about the message that they begin."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from ..remember import remember
from ._http1_grammar import TARGET_BYTES, TOKEN_BYTES, BadRequest, read_field
from ._limits import ServeLimits

__all__ = ["HTTP1", "HeadParser", "Protocol", "RequestHead", "RequestLine"]

Read = TypeVar("Read")


class Protocol(enum.Enum):
    """Who carries out a request."""

    HTTP1 = "http/1.1"  # the connection that read it
    WEBSOCKET = "websocket"  # an upgrade; hypercorn reads the same bytes again
    H2C = "h2c"  # an upgrade, or HTTP/2 with prior knowledge; hypercorn reads the same bytes again


HTTP1 = Protocol.HTTP1


class RequestLine(NamedTuple):
    """A request line, and its target taken apart."""

    method: str
    target: bytes
    minor_version: int  # of HTTP/1.x
    path: str  # decoded
    raw_path: bytes
    query: bytes
    authority: bytes | None = None  # of a target in absolute form


class RequestHead:
    """A request line and its headers, names in lower case, and what they say about the message."""

    keep_alive = True
    expects_continue = False
    content_length = 0
    chunked = False
    protocol = HTTP1
    raw = b""  # kept for what hypercorn reads again

    def __init__(self, line: RequestLine, headers: list[tuple[bytes, bytes]]) -> None:
        self.line = line
        self.headers = headers

    @property
    def has_body(self) -> bool:
        return self.chunked or self.content_length > 0


# The headers that decide how the message is read. A second one of the first three would leave that open.
_ONCE = frozenset({b"content-length", b"transfer-encoding", b"host"})
_DECIDING = _ONCE | {b"connection", b"expect", b"upgrade"}

_LONGEST_LENGTH = 18  # digits
_ABSOLUTE = re.compile(rb"https?://([^/?]+)(/[^?]*)?(\?.*)?", re.IGNORECASE)
_MOST_KNOWN_LINES = 512
_LONGEST_KNOWN_LINE = 256


class HeadParser:
    """Reads heads. Lines come again and again, so those that were found well-formed are remembered, some hundreds."""

    def __init__(self, limits: ServeLimits) -> None:
        self._most_fields = limits.header_count
        self._known_lines: dict[bytes, RequestLine] = {}
        self._known_fields: dict[bytes, tuple[bytes, bytes]] = {}

    def parse(self, head: bytes) -> RequestHead:
        """``head`` is everything up to, and without, the line end before the empty line.

        **Errors**: `BadRequest`.
        """
        first, *lines = head.split(b"\r\n")
        if len(lines) > self._most_fields:
            raise BadRequest(431, "too many headers")
        known = self._known_fields
        headers: list[tuple[bytes, bytes]] = []
        deciding: dict[bytes, bytes] = {}
        for text in lines:
            field = known.get(text) or self._read_field(text)
            headers.append(field)
            name, value = field
            if name in _DECIDING:
                deciding[name] = _join(name, deciding[name], value) if name in deciding else value
        line = self._known_lines.get(first) or self.read_line(first)
        parsed = RequestHead(line, headers)
        _check_host(line, deciding.get(b"host"))
        if len(deciding) > 1 or not line.minor_version:
            _read_framing(parsed, deciding)
            if not line.minor_version or not _ONCE.issuperset(deciding):
                _read_connection(parsed, deciding)
        return parsed

    def read_line(self, line: bytes) -> RequestLine:
        parts = line.split(b" ")
        if len(parts) != 3 or not all(parts):
            raise BadRequest(400, "the request line is malformed")
        method, target, version = parts
        if method.translate(None, TOKEN_BYTES) or target.translate(None, TARGET_BYTES):
            raise BadRequest(400, "the request line is malformed")
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise BadRequest(400, "a version other than HTTP/1.1 and HTTP/1.0")
        read = _take_target_apart(method.decode().upper(), target, version[7] - ord("0"))
        _remember_short(self._known_lines, line, read)
        return read

    def _read_field(self, line: bytes) -> tuple[bytes, bytes]:
        field = read_field(line)
        _remember_short(self._known_fields, line, field)
        return field


def _remember_short(known: dict[bytes, Read], line: bytes, read: Read) -> None:
    if len(line) <= _LONGEST_KNOWN_LINE:
        remember(known, line, read, _MOST_KNOWN_LINES)


def _join(name: bytes, first: bytes, second: bytes) -> bytes:
    """Two headers of one name as one, where that has one meaning."""
    if name in _ONCE:
        raise BadRequest(400, f"more than one {name.decode()} header")
    return first + b"," + second


def _take_target_apart(method: str, target: bytes, minor_version: int) -> RequestLine:
    if method == "CONNECT":
        raise BadRequest(405, "this server is no proxy")
    authority = None
    path, _, query = target.partition(b"?")
    if not target.startswith(b"/") and (target != b"*" or method != "OPTIONS"):
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None:
            raise BadRequest(400, "the target is malformed")
        authority = absolute[1]
        path = absolute[2] or b"/"
    return RequestLine(method, target, minor_version, unquote(path.decode("ascii")), path, query, authority)


def _check_host(line: RequestLine, host: bytes | None) -> None:
    if host is None:
        if line.minor_version:
            raise BadRequest(400, "the host header is missing")
    elif line.authority is not None and line.authority.lower() != host.lower():
        raise BadRequest(400, "the target names another host than the host header")


def _read_framing(head: RequestHead, deciding: dict[bytes, bytes]) -> None:
    length = deciding.get(b"content-length")
    coding = deciding.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise BadRequest(400, "both content-length and transfer-encoding")
        if not head.line.minor_version:
            raise BadRequest(400, "transfer-encoding in HTTP/1.0")
        if coding.lower() != b"chunked":
            raise BadRequest(400, "a transfer-encoding other than chunked")
        head.chunked = True
    elif length is not None:
        if not length.isdigit() or len(length) > _LONGEST_LENGTH:
            raise BadRequest(400, "the content-length header is malformed")
        head.content_length = int(length)


def _read_connection(head: RequestHead, deciding: dict[bytes, bytes]) -> None:
    minor_version = head.line.minor_version
    tokens: set[bytes] = set()
    if b"connection" in deciding:
        tokens = {token.strip() for token in deciding[b"connection"].lower().split(b",")}
    head.keep_alive = b"close" not in tokens and (minor_version == 1 or b"keep-alive" in tokens)
    if b"expect" in deciding and minor_version:
        if deciding[b"expect"].lower() != b"100-continue":
            raise BadRequest(417, "an expectation other than 100-continue")
        head.expects_continue = head.has_body
    if b"upgrade" in tokens and minor_version and not head.has_body:
        upgrade = deciding.get(b"upgrade", b"").lower()
        if upgrade == b"websocket" and head.line.method == "GET":
            head.protocol = Protocol.WEBSOCKET
        elif upgrade == b"h2c" and b"http2-settings" in tokens:
            head.protocol = Protocol.H2C
