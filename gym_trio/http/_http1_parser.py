"""HTTP/1.1 requests out of bytes: a sans-I/O reader that refuses whatever two parsers might read differently.

The grammar is RFC 9112's, without the leniencies that it permits: no bare LF, no folded lines, no space before a colon,
no repeated or listed ``Content-Length``, no ``Content-Length`` beside ``Transfer-Encoding``, no coding but ``chunked``,
no control characters, no target outside ASCII, no space around the size of a chunk, no framing in trailers.
"""

from __future__ import annotations

from ._chunks import ChunkedDecoder
from ._http1_grammar import PREFACE, SUSPECT, BadRequest
from ._http1_head import HTTP1, HeadParser, Protocol, RequestHead, RequestLine
from ._limits import ServeLimits

__all__ = ["RequestReader"]


class RequestReader:
    """The requests in the bytes of one connection, one after the other.

    `next_head` until it gives a head, then `body` until `body_complete`, then `next_head` again. Each takes from what
    has been fed and leaves the rest, so that pipelined requests keep every byte.

    **Errors**: `BadRequest` says why the connection cannot go on; the reader is of no use afterwards.
    """

    def __init__(self, limits: ServeLimits, heads: HeadParser) -> None:
        self.body_complete = True
        self._heads = heads
        self._limits = limits
        self._buffer = b""
        self._searched = 0  # no head ends before this index
        self._body_left = 0  # of a body with a length
        self._chunks: ChunkedDecoder | None = None

    @property
    def holds_bytes(self) -> bool:
        return bool(self._buffer)

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
            preface = RequestHead(RequestLine("PRI", b"*", 0, "*", b"*", b""), [])
            preface.protocol = Protocol.H2C
            return preface
        head = self._heads.parse(buffer[:end])
        if head.content_length > self._limits.body_bytes:
            raise BadRequest(413, "the body is too large")
        self._buffer = buffer[end + 4 :]
        if head.protocol is not HTTP1:
            head.raw = buffer[: end + 4]
        self._body_left = head.content_length
        self._chunks = ChunkedDecoder(self._limits) if head.chunked else None
        self.body_complete = not head.has_body
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
            self._heads.read_line(buffer[:line_end])

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
