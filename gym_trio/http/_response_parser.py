"""Bytes from a server → one response. Synchronous; `httptools` does the scanning."""

from __future__ import annotations

from typing import Any

import httptools

from ..errors import PeerDropped, ProtocolError
from ._message import HeaderPairs, Origin

__all__ = ["ResponseParser"]

# A chunk has at least one byte and at most this much around it; extensions and trailers draw on the head's limit.
_FRAMING_PER_BYTE = 24


class ResponseParser:
    """Reads one response at a time, each after a `begin`; between two, only while it `is_clean`.

    Interim responses (1xx) are skipped. ``chunks`` fills as the body comes; whoever takes them empties it.
    """

    __slots__ = (
        "_bodiless",
        "_fed_bytes",
        "_headers",
        "_least_limit_bytes",
        "_max_body_bytes",
        "_max_head_bytes",
        "_origin",
        "_parser",
        "_size",
        "chunks",
        "complete",
        "excess",
        "head_complete",
        "is_clean",
        "keep_alive",
        "reason",
        "status",
    )

    def __init__(self, max_head_bytes: int) -> None:
        self._max_head_bytes = max_head_bytes
        self._parser: Any = httptools.HttpResponseParser(self)

    def begin(self, origin: Origin, bodiless: bool, max_body_bytes: int | None) -> None:
        """Expect a response; ``bodiless`` to a HEAD, which has no body whatever its headers say."""
        self._origin = origin
        self._bodiless = bodiless
        self._max_body_bytes = max_body_bytes
        self._least_limit_bytes = min(self._max_head_bytes, max_body_bytes or self._max_head_bytes)
        self._headers: list[tuple[bytes, bytes]] = []
        self._size = 0  # of the body so far
        self._fed_bytes = 0
        self.status = 0
        self.reason = b""
        self.chunks: list[bytes] = []
        self.head_complete = False
        self.complete = False
        self.keep_alive = False
        self.excess = False  # bytes came that belong to no response
        self.is_clean = False  # between two responses

    @property
    def raw_headers(self) -> HeaderPairs:
        return tuple(self._headers)

    @property
    def http_version(self) -> bytes:
        return f"HTTP/{self._parser.get_http_version()}".encode()

    def feed(self, data: bytes | memoryview) -> None:
        """**Errors**: `ProtocolError` for what is not HTTP/1.1, or is over a limit."""
        self._fed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as exc:
            if not self.complete:
                raise self._error(f"the answer is not HTTP/1.1: {exc}") from exc
            self.excess = True  # the response was sound; what came behind it is not
        except httptools.HttpParserUpgrade as exc:
            raise self._error("the server switched to another protocol, which nobody had asked for") from exc
        if self._fed_bytes > self._least_limit_bytes:
            self._check_limits()

    def _check_limits(self) -> None:
        head_bytes = sum(len(n) + len(v) + 4 for n, v in self._headers) if self.head_complete else self._fed_bytes
        if head_bytes > self._max_head_bytes:
            raise self._error(f"the response's head is larger than {self._max_head_bytes} bytes")
        if self._max_body_bytes is not None and self._size > self._max_body_bytes:
            raise self._error(f"the response's body is larger than {self._max_body_bytes} bytes")
        if self._fed_bytes > 2 * self._max_head_bytes + _FRAMING_PER_BYTE * self._size:
            raise self._error("the response's chunks are mostly framing")

    def _error(self, what: str) -> ProtocolError:
        return ProtocolError(f"{self._origin}: {what}")

    def feed_eof(self) -> None:
        """The server has closed. **Errors**: `PeerDropped` unless that is how the body ends."""
        if self.complete:
            return
        if not self.head_complete:
            raise PeerDropped(f"{self._origin}: the server closed the connection without an answer")
        if any(name in (b"content-length", b"transfer-encoding") for name, _ in self._headers):
            raise PeerDropped(f"{self._origin}: the server closed the connection before its response was complete")
        self.complete = True

    # Called by httptools.

    def on_message_begin(self) -> None:
        self.is_clean = False
        if self.complete:
            self.excess = True

    def on_status(self, reason: bytes) -> None:
        if not self.head_complete:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_complete:  # otherwise a trailer
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self.head_complete = True
        if self._bodiless:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        if self.complete:
            self.excess = True
        else:
            self._size += len(body)
            self.chunks.append(body)

    def on_message_complete(self) -> None:
        if not self.head_complete:  # an interim response
            self._headers.clear()
            self.reason = b""
        elif not self.excess:
            keep_alive = self._parser.should_keep_alive()
            # After a response that says `Connection: close` llhttp takes no other, not even of another connection.
            self.is_clean = keep_alive
            if not self.complete:
                self.complete = True
                self.keep_alive = keep_alive
