"""Server-sent events as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import orjson

from ...errors import FormError

__all__ = ["DONE", "EventReader", "StreamPiece", "sse"]

DONE = b"data: [DONE]\n\n"
MAX_EVENT_BYTES = 64 * 1024 * 1024


@attrs.frozen
class StreamPiece:
    """``content`` to send on; ``whole`` is the finished answer in the stream's form, on the piece that completes it."""

    content: bytes = b""
    whole: dict[str, Any] | None = None


def sse(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One event with JSON data."""
    content = b"data: " + orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS) + b"\n\n"
    return b"event: " + name.encode() + b"\n" + content if name else content


class EventReader:
    """Finds the events in the bytes of a stream, however they are cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, content: bytes) -> Iterator[dict[str, Any]]:
        """The JSON objects of the events that ``content`` completes. Comments, pings and ``[DONE]`` are passed over.

        **Errors**: `FormError` for data that is not a JSON object, and for an event without end.
        """
        lines = (self._rest + content).replace(b"\r\n", b"\n").split(b"\n")
        # An event's data is one line in all three APIs, so a line is an event as soon as it is whole.
        self._rest = lines.pop()
        if len(self._rest) > MAX_EVENT_BYTES:
            raise FormError(f"an event of the stream is larger than {MAX_EVENT_BYTES} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data and data != b"[DONE]":
                    yield _parse(data)

    def finish(self) -> Iterator[dict[str, Any]]:
        """The events in a last line without its end."""
        yield from self.feed(b"\n")


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise FormError(f"the stream holds an event that is not a JSON object: {data[:200]!r}")
    return value
