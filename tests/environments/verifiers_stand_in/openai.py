"""Stands in for the client of the model: one request on one connection, with nothing to import."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit


class AsyncOpenAI:
    def __init__(self, *, base_url: str, **options: Any) -> None:
        self._base = urlsplit(base_url)

    async def __aenter__(self) -> AsyncOpenAI:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None

    async def create(self, **body: Any) -> str:
        """The text of the answer's body."""
        content = json.dumps({"model": "m", **body}).encode()
        reader, writer = await asyncio.open_connection(self._base.hostname, self._base.port)
        try:
            head = f"POST {self._base.path}/chat/completions HTTP/1.1\r\ncontent-length: {len(content)}\r\n\r\n"
            writer.write(head.encode() + content)
            answer = (await reader.read()).decode()
        finally:
            writer.close()
        head, _, text = answer.partition("\r\n\r\n")
        if " 200 " not in head.partition("\r\n")[0]:
            raise ConnectionError(text)
        return text
