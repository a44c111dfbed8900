"""Response heads for HTTP/1.1."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from http import HTTPStatus

from ..remember import remember
from ._http1_grammar import TOKEN_BYTES

__all__ = [
    "CHUNKED",
    "LENGTH",
    "NO_BODY",
    "UNTIL_CLOSE",
    "ResponseFraming",
    "ResponseHead",
    "ResponseHeads",
    "plain_response",
]

_STATUS_LINES = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_UNSENDABLE = re.compile(rb"[\0\r\n]")
_MOST_KNOWN_LINES = 512
_LONGEST_KNOWN_LINE = 256
_OURS = frozenset({b"connection", b"transfer-encoding", b"keep-alive", b"content-length", b"date", b"server"})


class ResponseFraming(enum.Enum):
    """How a client can tell where the body ends."""

    NO_BODY = enum.auto()  # the method or the status says that there is none
    LENGTH = enum.auto()  # content-length
    CHUNKED = enum.auto()  # transfer-encoding: chunked
    UNTIL_CLOSE = enum.auto()  # HTTP/1.0 and no length: the connection ends with it


NO_BODY, LENGTH, CHUNKED, UNTIL_CLOSE = ResponseFraming


class ResponseHead:
    """What an app said in ``http.response.start``, checked. Made by `ResponseHeads`."""

    content_length: int | None = None
    close = False  # the app wants the connection closed
    has_date = False
    has_server = False

    def __init__(self, status: int) -> None:
        self.status = status
        self.block = b""  # the lines that are sent as the app gave them

    def note(self, name: bytes, value: bytes) -> bool:
        """Take in a header that the connection has a say in; whether the app's line is sent."""
        if name == b"content-length":
            if not value.isdigit() or (self.content_length is not None and self.content_length != int(value)):
                raise ValueError(f"content-length: {value!r}")
            self.content_length = int(value)
        elif name == b"date":
            self.has_date = True
            return True
        elif name == b"server":
            self.has_server = True
            return True
        elif name == b"connection":
            self.close = self.close or b"close" in value.lower()
        return False

    def headers(self) -> list[tuple[bytes, ...]]:
        """For the access log."""
        pairs: list[tuple[bytes, ...]] = [tuple(line.split(b": ", 1)) for line in self.block.splitlines()]
        if self.content_length is not None:
            pairs.append((b"content-length", b"%d" % self.content_length))
        return pairs

    def framing(self, method: str, minor_version: int, body_length: int | None) -> ResponseFraming:
        """Decide, and note the length: ``body_length`` when the whole body is known."""
        if self.content_length is None:
            self.content_length = body_length
        if self.status in (204, 304):
            if self.status == 204 or not self.content_length:
                self.content_length = None
            return NO_BODY
        if method == "HEAD":
            return NO_BODY
        if self.content_length is not None:
            return LENGTH
        return CHUNKED if minor_version else UNTIL_CLOSE

    def encode(self, framing: ResponseFraming, connection_line: bytes, defaults: bytes) -> bytes:
        """The bytes up to the body. ``defaults``: the date and server lines, whole."""
        if self.has_date or self.has_server:
            defaults = self._missing(defaults)
        if self.content_length is not None:
            length = b"content-length: %d\r\n" % self.content_length
        else:
            length = b"transfer-encoding: chunked\r\n" if framing is CHUNKED else b""
        line = _STATUS_LINES.get(self.status) or _unknown_line(self.status)
        return b"".join((line, self.block, length, connection_line, defaults, b"\r\n"))

    def _missing(self, defaults: bytes) -> bytes:
        present = [name for name, has in ((b"date:", self.has_date), (b"server:", self.has_server)) if has]
        return b"".join(line for line in defaults.splitlines(keepends=True) if not line.startswith(tuple(present)))


class ResponseHeads:
    """Checks heads. Headers come again and again, so lines that were found sendable are remembered, some hundreds."""

    def __init__(self) -> None:
        self._known_lines: dict[tuple[bytes, bytes], bytes] = {}

    def read(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> ResponseHead:
        """**Errors**: `ValueError` or `TypeError` for what cannot be sent, a line end inside a header above all."""
        if not isinstance(status, int) or not 200 <= status <= 999:
            raise ValueError(f"{status!r} is not the status of a final response")
        head = ResponseHead(int(status))
        known = self._known_lines
        block = b""
        for name, value in headers:
            line = known.get((name, value))
            if line is not None:
                block += line
            elif name == b"content-length":  # in each response another one, which is not worth remembering
                head.note(name, bytes(value).strip())
            else:
                block += self._line(head, name, value)
        head.block = block
        return head

    def _line(self, head: ResponseHead, name: bytes, value: bytes) -> bytes:
        lowered = name.lower()
        if lowered in _OURS and not head.note(lowered, bytes(value).strip()):
            return b""
        line = b"%b: %b\r\n" % (name, value)
        if not name or name.translate(None, TOKEN_BYTES) or _UNSENDABLE.search(line, 0, len(line) - 2):
            raise ValueError(f"{name!r}: {value!r} is not a header")
        if lowered not in _OURS and len(line) <= _LONGEST_KNOWN_LINE:
            remember(self._known_lines, (name, value), line, _MOST_KNOWN_LINES)
        return line


def _unknown_line(status: int) -> bytes:
    return b"HTTP/1.1 %d Unknown\r\n" % status


def plain_response(status: int, text: str, defaults: bytes) -> bytes:
    """A whole response of the server's own, after which it closes the connection."""
    body = text.encode() + b"\n"
    head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
    return b"".join([_STATUS_LINES[status], head, defaults, b"\r\n", body])
