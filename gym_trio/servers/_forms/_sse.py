"""Server-sent events as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import orjson

from ...errors import FormError
from ._parts import read_object

__all__ = ["DONE", "EventReader", "ReadyPieces", "SentEvent", "StreamPiece", "sse"]

DONE = b"data: [DONE]\n\n"
MAX_EVENT_BYTES = 64 * 1024 * 1024


@attrs.frozen
class StreamPiece:
    """``content`` to send on; ``whole`` is the finished answer in the stream's form, on the piece that completes it."""

    content: bytes = b""
    whole: dict[str, Any] | None = None


class ReadyPieces:
    """Pieces that are there already, as an asynchronous iterator."""

    def __init__(self, pieces: Iterable[StreamPiece]) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> ReadyPieces:
        return self

    async def __anext__(self) -> StreamPiece:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


def sse(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One event with JSON data."""
    content = b"data: " + orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS) + b"\n\n"
    return b"event: " + name.encode() + b"\n" + content if name else content


@attrs.frozen
class SentEvent:
    """One event: its ``raw`` bytes, the end of it included, and its ``data``, ``None`` where that is no JSON object.

    Only comments, pings and the final ``[DONE]`` have none.
    """

    raw: bytes
    data: dict[str, Any] | None


class EventReader:
    """Finds the events in the bytes of a stream, however they are cut."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the event that is not whole yet
        self._length = 0

    def feed(self, content: bytes) -> Iterator[SentEvent]:
        """The events that ``content`` completes.

        **Errors**: `FormError` for data that is neither a JSON object nor ``[DONE]``, and for an event without end.
        """
        self._parts.append(content)
        self._length += len(content)
        if self._length > MAX_EVENT_BYTES:
            raise FormError(f"an event of the stream is larger than {MAX_EVENT_BYTES} bytes")
        if b"\n" not in content:  # an event ends with a line, so there is nothing to look for yet
            return
        blocks = b"".join(self._parts).replace(b"\r\n", b"\n").split(b"\n\n")
        rest = blocks.pop()
        self._parts, self._length = [rest], len(rest)
        for block in blocks:
            if block.strip():
                yield SentEvent(block + b"\n\n", _data_of(block))

    def finish(self) -> Iterator[SentEvent]:
        """A last event whose end the stream did not send."""
        return self.feed(b"\n\n")


def _data_of(block: bytes) -> dict[str, Any] | None:
    lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    data = b"\n".join(lines).strip()
    return _parse(data) if data and data != b"[DONE]" else None


def _parse(data: bytes) -> dict[str, Any]:
    value = read_object(data)
    if value is None:
        raise FormError(f"the stream holds an event that is not a JSON object: {data[:200]!r}")
    return value
