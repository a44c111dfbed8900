"""A chunked body out of bytes."""

from __future__ import annotations

import enum

from ._http1_grammar import CHUNK_SIZE, PARTIAL_CHUNK_SIZE, SUSPECT, BadRequest, read_field
from ._limits import ServeLimits

__all__ = ["ChunkedDecoder"]

_LONGEST_SIZE_LINE = 1024
_NOT_IN_TRAILERS = frozenset({b"content-length", b"transfer-encoding", b"host", b"connection", b"trailer", b"expect"})


class _Expects(enum.Enum):
    """What the next byte belongs to."""

    SIZE = enum.auto()  # a line with a chunk's size, and perhaps extensions, which are dropped
    DATA = enum.auto()  # the chunk itself
    DATA_END = enum.auto()  # the CRLF behind it
    TRAILERS = enum.auto()  # after the chunk of size 0: fields, which are dropped, and an empty line
    NOTHING = enum.auto()  # the body is complete


class ChunkedDecoder:
    """Decodes one body; `complete` once its last byte has been seen.

    **Errors**: `BadRequest` when the body, its extensions or its trailers are malformed or larger than the limits.
    """

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._expects = _Expects.SIZE
        self._chunk_left = 0
        self._decoded_bytes = 0
        self._dropped_bytes = 0  # extensions

    @property
    def complete(self) -> bool:
        return self._expects is _Expects.NOTHING

    def decode(self, buffer: bytes) -> tuple[bytes, bytes]:
        """What is decoded of ``buffer``, and what is left over until more arrives."""
        pieces: list[bytes] = []
        position = 0
        while True:
            if self._expects is _Expects.DATA:
                piece = buffer[position : position + self._chunk_left]
                pieces.append(piece)
                position += len(piece)
                self._chunk_left -= len(piece)
                if self._chunk_left:
                    break
                self._expects = _Expects.DATA_END
            after = self._step(buffer, position)
            if after == position:
                break
            position = after
        return b"".join(pieces), buffer[position:]

    def _step(self, buffer: bytes, position: int) -> int:
        """Read one line, if it is there, and say where it ends."""
        match self._expects:
            case _Expects.SIZE:
                return self._read_size(buffer, position)
            case _Expects.DATA_END:
                return self._read_data_end(buffer, position)
            case _Expects.TRAILERS:
                return self._read_trailers(buffer, position)
            case _:
                return position

    def _read_size(self, buffer: bytes, position: int) -> int:
        line = CHUNK_SIZE.match(buffer, position, position + _LONGEST_SIZE_LINE)
        if line is None:
            rest = buffer[position : position + _LONGEST_SIZE_LINE]
            if len(rest) == _LONGEST_SIZE_LINE or not PARTIAL_CHUNK_SIZE.fullmatch(rest):
                raise BadRequest(400, "the size of a chunk is malformed")
            return position
        self._dropped_bytes += len(line[2] or b"")
        if self._dropped_bytes > self._limits.head_bytes:
            raise BadRequest(400, "the extensions of the chunks are too large")
        self._chunk_left = int(line[1], 16)
        self._decoded_bytes += self._chunk_left
        if self._decoded_bytes > self._limits.body_bytes:
            raise BadRequest(413, "the body is too large")
        self._expects = _Expects.DATA if self._chunk_left else _Expects.TRAILERS
        return line.end()

    def _read_data_end(self, buffer: bytes, position: int) -> int:
        ending = buffer[position : position + 2]
        if not b"\r\n".startswith(ending):
            raise BadRequest(400, "a chunk is longer than its size")
        if len(ending) < 2:
            return position
        self._expects = _Expects.SIZE
        return position + 2

    def _read_trailers(self, buffer: bytes, position: int) -> int:
        if buffer.startswith(b"\r\n", position):
            self._expects = _Expects.NOTHING
            return position + 2
        end = buffer.find(b"\r\n\r\n", position)
        if (end if end >= 0 else len(buffer)) - position > self._limits.head_bytes:
            raise BadRequest(431, "the trailers are too large")
        if end < 0:
            if SUSPECT.search(buffer, position):
                raise BadRequest(400, "a trailer is malformed")
            return position
        lines = buffer[position:end].split(b"\r\n")
        if len(lines) > self._limits.header_count:
            raise BadRequest(431, "too many trailers")
        for line in lines:
            if read_field(line)[0] in _NOT_IN_TRAILERS:
                raise BadRequest(400, "a trailer that would change how the message is read")
        self._expects = _Expects.NOTHING
        return end + 4
