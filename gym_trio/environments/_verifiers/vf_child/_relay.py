"""Model calls on their way to the parent.

Environments make them with clients of their own over HTTP, some from programs that they start. So there is an HTTP
server on loopback with an address per rollout, and each request to it becomes a message to the parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
from collections.abc import Iterator
from typing import Any

from ._frames import Link

__all__ = ["ModelRelay"]

HEAD_BYTES = 1 << 20


class ModelRelay:
    """The server. Use it as an async context manager; it takes no more requests after the block."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._server: asyncio.Server | None = None
        self._rollouts: dict[str, int] = {}
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> ModelRelay:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()

    @contextlib.contextmanager
    def address(self, rollout: int) -> Iterator[str]:
        """The base URL of the rollout's model, for the time of the block; nobody else can guess it."""
        assert self._server is not None
        token = secrets.token_urlsafe(16)
        self._rollouts[token] = rollout
        try:
            yield f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/{token}/v1"
        finally:
            del self._rollouts[token]

    def answer(self, message: dict[str, Any]) -> None:
        """The parent's answer to a call, which nobody may wait for any more."""
        waiting = self._calls.get(message["call"])
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            reply = await self._exchange(reader)
            if reply is not None:
                body = reply["body"].encode()
                head = f"HTTP/1.1 {reply['status']} -\r\ncontent-type: {reply['content_type']}\r\n"
                writer.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # a client that left, or speaks something else: there is nobody to answer
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, *lines = head.split("\r\n")
        target = request_line.split(" ")[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length") or 0))
        token, _, path = target.lstrip("/").partition("/")
        rollout = self._rollouts.get(token)
        if rollout is None:
            return _refusal(404, "this rollout is over")
        try:
            asked = json.loads(body)
        except ValueError:
            return _refusal(400, "the body is not JSON")
        return await self._ask(reader, rollout, f"/{path}", asked)

    async def _ask(self, reader: asyncio.StreamReader, rollout: int, path: str, body: Any) -> dict[str, Any] | None:
        number = next(self._numbers)
        waiting = self._calls[number] = asyncio.get_running_loop().create_future()
        self._link.send(op="call", id=rollout, call=number, path=path, body=body)
        left = asyncio.ensure_future(reader.read(1))  # nothing follows a request; what comes is the client's end
        try:
            await asyncio.wait({waiting, left}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            if not waiting.done():
                self._link.send(op="drop", id=rollout, call=number)
            del self._calls[number]
            left.cancel()


def _refusal(status: int, text: str) -> dict[str, Any]:
    return {"status": status, "content_type": "application/json", "body": json.dumps({"error": {"message": text}})}
