"""HTTP/1.1 requests out of bytes: a sans-I/O reader that refuses whatever two parsers might read differently.

The grammar is RFC 9112's, without the leniencies that it permits: no bare LF, no folded lines, no space before a colon,
no repeated or listed ``Content-Length``, no ``Content-Length`` beside ``Transfer-Encoding``, no coding but ``chunked``,
no control characters, no target outside ASCII.
"""

from __future__ import annotations

import enum
import re

from ._chunks import ChunkedDecoder
from ._http1_grammar import HOST_BYTES, PREFACE, SUSPECT, TARGET_BYTES, TOKEN_BYTES, BadRequest, read_fields
from ._limits import ServeLimits

__all__ = ["BadRequest", "Protocol", "RequestHead", "RequestReader"]


class Protocol(enum.Enum):
    """Who carries out a request."""

    HTTP1 = "http/1.1"  # the connection that read it
    WEBSOCKET = "websocket"  # an upgrade; hypercorn reads the same bytes again
    H2C = "h2c"  # an upgrade, or HTTP/2 with prior knowledge; hypercorn reads the same bytes again


class RequestHead:
    """A request line and its headers, names in lower case."""

    keep_alive = True
    expects_continue = False
    content_length = 0
    chunked = False
    protocol = Protocol.HTTP1
    raw = b""  # kept for what hypercorn reads again

    def __init__(self, method: str, target: bytes, minor_version: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.method = method
        self.target = target
        self.minor_version = minor_version  # of HTTP/1.x
        self.headers = headers

    @property
    def has_body(self) -> bool:
        return self.chunked or self.content_length > 0


# The headers that decide how the message is read. A second one of the first three would leave that open.
_ONCE = frozenset({b"content-length", b"transfer-encoding", b"host"})
_LISTS = frozenset({b"connection", b"expect", b"upgrade"})
_DECIDING = _ONCE | _LISTS

_LONGEST_LENGTH = 18  # digits
_ABSOLUTE = re.compile(rb"https?://([^/?]+)(/[^?]*)?(\?.*)?", re.IGNORECASE)


class RequestReader:
    """The requests in the bytes of one connection, one after the other.

    `next_head` until it gives a head, then `body` until `body_complete`, then `next_head` again. Each takes from what
    has been fed and leaves the rest, so that pipelined requests keep every byte.

    **Errors**: `BadRequest` says why the connection cannot go on; the reader is of no use afterwards.
    """

    def __init__(self, limits: ServeLimits) -> None:
        self.body_complete = True
        self._limits = limits
        self._buffer = b""
        self._searched = 0  # no head ends before this index
        self._body_left = 0  # of a body with a length
        self._chunks: ChunkedDecoder | None = None

    @property
    def holds_bytes(self) -> bool:
        return bool(self._buffer)

    @property
    def body_left(self) -> int | None:
        """How many bytes of the body have not been taken; None when only its end will tell."""
        return None if self._chunks is not None and not self.body_complete else self._body_left

    def feed(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data

    def take_all(self) -> bytes:
        """Everything that has been fed and not taken."""
        taken, self._buffer = self._buffer, b""
        return taken

    def next_head(self) -> RequestHead | None:
        """The next request's head, or None until more bytes are fed."""
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):  # stray line ends after the last body
            buffer = self._buffer = buffer[2:]
            self._searched = 0
        end = buffer.find(b"\r\n\r\n", self._searched)
        if end < 0:
            self._check_partial()
            return None
        if end + 4 > self._limits.head_bytes:
            raise BadRequest(431, "the head is too large")
        self._searched = 0
        if buffer.startswith(PREFACE):
            preface = RequestHead("PRI", b"*", 0, [])
            preface.protocol = Protocol.H2C
            return preface
        head = _parse_head(buffer[:end], self._limits.header_count)
        if head.content_length > self._limits.body_bytes:
            raise BadRequest(413, "the body is too large")
        self._buffer = buffer[end + 4 :]
        if head.protocol is not Protocol.HTTP1:
            head.raw = buffer[: end + 4]
        self.body_complete = not head.has_body
        self._body_left = head.content_length
        self._chunks = ChunkedDecoder(self._limits) if head.chunked else None
        return head

    def _check_partial(self) -> None:
        """Refuse at once what no further byte can mend, rather than wait for an end that may never come."""
        buffer = self._buffer
        if len(buffer) > self._limits.head_bytes:
            raise BadRequest(431, "the head is too large")
        fresh = max(self._searched - 1, 0)
        self._searched = max(len(buffer) - 3, 0)
        if SUSPECT.search(buffer, fresh):
            raise BadRequest(400, "a line of the head is malformed")
        if PREFACE.startswith(buffer):
            return
        line_end = buffer.find(b"\r\n")
        if line_end >= 0:
            _parse_request_line(buffer[:line_end])

    def body(self) -> bytes:
        """What has arrived of the body and not been taken; ``b""`` when nothing has. Sets `body_complete`."""
        if self.body_complete:
            return b""
        if self._chunks is not None:
            data, self._buffer = self._chunks.decode(self._buffer)
            self.body_complete = self._chunks.complete
            return data
        buffer = self._buffer
        if len(buffer) <= self._body_left:
            self._buffer = b""
            self._body_left -= len(buffer)
        else:
            self._buffer = buffer[self._body_left :]
            buffer = buffer[: self._body_left]
            self._body_left = 0
        self.body_complete = self._body_left == 0
        return buffer


def _parse_request_line(line: bytes) -> tuple[bytes, bytes, int]:
    parts = line.split(b" ")
    if len(parts) != 3 or not all(parts):
        raise BadRequest(400, "the request line is malformed")
    method, target, version = parts
    if method.translate(None, TOKEN_BYTES) or target.translate(None, TARGET_BYTES):
        raise BadRequest(400, "the request line is malformed")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequest(400, "a version other than HTTP/1.1 and HTTP/1.0")
    return method, target, version[7] - 48


def _parse_head(head: bytes, most_fields: int) -> RequestHead:
    line, _, block = head.partition(b"\r\n")
    method, target, minor_version = _parse_request_line(line)
    headers, picked = read_fields(block, most_fields, _DECIDING)
    deciding: dict[bytes, bytes] = {}
    for name, value in picked:
        if name not in deciding:
            deciding[name] = value
        elif name in _ONCE:
            raise BadRequest(400, f"more than one {name.decode()} header")
        else:
            deciding[name] += b"," + value
    parsed = RequestHead(method.decode().upper(), target, minor_version, headers)
    _check_host_and_target(parsed, deciding.get(b"host"))
    _read_framing(parsed, deciding)
    _read_connection(parsed, deciding)
    return parsed


def _check_host_and_target(head: RequestHead, host: bytes | None) -> None:
    if host is None:
        if head.minor_version:
            raise BadRequest(400, "the host header is missing")
    elif host.translate(None, HOST_BYTES):
        raise BadRequest(400, "the host header is malformed")
    target = head.target
    if head.method == "CONNECT":
        raise BadRequest(405, "this server is no proxy")
    if target[0] == 47 or (target == b"*" and head.method == "OPTIONS"):  # 47 is "/"
        return
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise BadRequest(400, "the target is malformed")
    authority, path, query = absolute.groups()
    if host is not None and authority.lower() != host.lower():
        raise BadRequest(400, "the target names another host than the host header")
    head.target = (path or b"/") + (query or b"")


def _read_framing(head: RequestHead, deciding: dict[bytes, bytes]) -> None:
    length = deciding.get(b"content-length")
    coding = deciding.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise BadRequest(400, "both content-length and transfer-encoding")
        if not head.minor_version:
            raise BadRequest(400, "transfer-encoding in HTTP/1.0")
        if coding.lower() != b"chunked":
            raise BadRequest(400, "a transfer-encoding other than chunked")
        head.chunked = True
    elif length is not None:
        if not length.isdigit() or len(length) > _LONGEST_LENGTH:
            raise BadRequest(400, "the content-length header is malformed")
        head.content_length = int(length)


def _read_connection(head: RequestHead, deciding: dict[bytes, bytes]) -> None:
    options = deciding.get(b"connection")
    tokens = {token.strip() for token in options.lower().split(b",")} if options is not None else frozenset()
    head.keep_alive = b"close" not in tokens and (head.minor_version == 1 or b"keep-alive" in tokens)
    expect = deciding.get(b"expect")
    if expect is not None and head.minor_version:
        if expect.lower() != b"100-continue":
            raise BadRequest(417, "an expectation other than 100-continue")
        head.expects_continue = head.has_body
    upgrade = deciding.get(b"upgrade")
    if upgrade is not None and b"upgrade" in tokens and head.minor_version and not head.has_body:
        if upgrade.lower() == b"websocket" and head.method == "GET":
            head.protocol = Protocol.WEBSOCKET
        elif upgrade.lower() == b"h2c" and b"http2-settings" in tokens:
            head.protocol = Protocol.H2C
