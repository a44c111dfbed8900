"""Bytes from a server → one response. Synchronous; `httptools` does the scanning."""

from __future__ import annotations

from typing import Any

import httptools

from ..errors import Delivery, PeerDropped, ProtocolError
from ._message import HeaderPairs

__all__ = ["ResponseParser"]


class ResponseParser:
    """Reads one response at a time. After `begin` it can be used again, as long as `reusable`.

    Interim responses (1xx) are skipped. ``chunks`` fills as the body comes; whoever takes them empties it.
    """

    __slots__ = (
        "_fed_bytes",
        "_headers",
        "_max_body_bytes",
        "_max_head_bytes",
        "_parser",
        "_size",
        "_trouble",
        "bodiless",
        "chunks",
        "complete",
        "excess",
        "head_complete",
        "keep_alive",
        "status",
    )

    def __init__(self, max_head_bytes: int) -> None:
        self._max_head_bytes = max_head_bytes
        self._parser: Any = httptools.HttpResponseParser(self)
        self.begin(False, None)

    def begin(self, bodiless: bool, max_body_bytes: int | None) -> None:
        """Expect a response; ``bodiless`` to a HEAD, which has no body whatever its headers say."""
        self.bodiless = bodiless
        self._max_body_bytes = max_body_bytes
        self.status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self.chunks: list[bytes] = []
        self.head_complete = False
        self.complete = False
        self.keep_alive = False
        self.excess = False  # bytes came that belong to no response
        self._size = 0
        self._fed_bytes = 0
        self._trouble: ProtocolError | None = None

    @property
    def raw_headers(self) -> HeaderPairs:
        return tuple(self._headers)

    def feed(self, data: bytes | memoryview) -> None:
        """**Errors**: `ProtocolError` for what is not HTTP/1.1, or is over a limit."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as exc:
            if self._trouble is not None:
                raise self._trouble from None
            if self.complete:  # the response itself was sound; what came behind it was not
                self.excess = True
            else:
                raise ProtocolError(f"the answer is not HTTP/1.1: {exc}") from exc
        except httptools.HttpParserUpgrade as exc:
            raise ProtocolError("the server switched to another protocol, which nobody had asked for") from exc
        if not self.head_complete:
            self._fed_bytes += len(data)
            if self._fed_bytes > self._max_head_bytes:
                raise ProtocolError(f"the response's head is larger than {self._max_head_bytes} bytes")

    def feed_eof(self) -> None:
        """The server has closed. **Errors**: `PeerDropped` unless that is how the body ends."""
        if self.head_complete and not self.complete:
            framing = {name for name, _ in self._headers} & {b"content-length", b"transfer-encoding"}
            if not framing:
                self.complete = True
                return
        if not self.complete:
            what = "the response was complete" if self.head_complete else "it answered"
            raise PeerDropped(f"the server closed the connection before {what}", delivery=Delivery.POSSIBLY_DELIVERED)

    # Called by httptools.

    def on_message_begin(self) -> None:
        if self.complete:
            self.excess = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_complete:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self.head_complete = True
        if self.bodiless:
            self.complete = True

    def on_body(self, body: bytes) -> None:
        if self.complete:
            self.excess = True
            return
        self._size += len(body)
        if self._max_body_bytes is not None and self._size > self._max_body_bytes:
            self._trouble = ProtocolError(f"the response's body is larger than {self._max_body_bytes} bytes")
            raise self._trouble
        self.chunks.append(body)

    def on_message_complete(self) -> None:
        if self.excess:
            return
        if not self.head_complete:  # an interim response
            self._headers.clear()
            return
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()
