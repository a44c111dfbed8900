"""Messages on the socket to the parent: eight bytes of length, then a JSON object."""

from __future__ import annotations

import asyncio
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

__all__ = ["HEAD", "Link", "as_json", "encoded"]

HEAD = struct.Struct("!Q")


def encoded(message: Mapping[str, Any]) -> bytes:
    """The frame of ``message``."""
    content = json.dumps(as_json(message), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    return HEAD.pack(len(content)) + content


def as_json(value: Any) -> Any:
    """``value`` in JSON's own types. What has no form there becomes its text, a number that is not finite too."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(one) for one in value]
    for method in ("model_dump", "isoformat", "tolist"):  # pydantic's models, dates, numpy's arrays and scalars
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            return as_json(convert())
    return str(value)


class Link:
    """The socket, from inside asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> dict[str, Any] | None:
        """The next message, or None when the parent has ended or wants no more of this process."""
        try:
            (length,) = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            message: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None
        return message

    def send(self, **message: Any) -> None:
        """Send without waiting: what piles up here is bounded by the rollouts that are under way."""
        self._writer.write(encoded(message))

    async def flush(self) -> None:
        """Wait until what was sent is with the kernel."""
        await self._writer.drain()
