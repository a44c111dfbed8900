"""What the tests of the server share: a client that sends bytes, and an app that records what reached it."""

from __future__ import annotations

import contextlib
import json
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import attrs
import pytest
import trio


@attrs.define
class Answer:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    chunked: bool = False

    def json(self):
        return json.loads(self.body)


class Client:
    """A connection under a test's control."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def get(self, target: str = "/", extra: str = "", method: str = "GET") -> Answer:
        await self.send(f"{method} {target} HTTP/1.1\r\nHost: test\r\n{extra}\r\n".encode())
        return await self.answer(method)

    async def post(self, target: str, body: bytes, extra: str = "") -> Answer:
        await self.send(post_bytes(target, body, extra))
        return await self.answer()

    async def answer(self, method: str = "GET") -> Answer:
        """The next response, whole."""
        head = await self._until(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        assert status_line.startswith("HTTP/1.1 ")
        answer = Answer(int(status_line.split()[1]), {})
        for line in lines:
            name, value = line.split(": ", 1)
            name = name.lower()
            assert name not in answer.headers, f"{name} came twice"
            answer.headers[name] = value
        if method == "HEAD" or answer.status in (100, 204, 304):
            return answer
        if "content-length" in answer.headers:
            answer.body = await self._exactly(int(answer.headers["content-length"]))
        elif answer.headers.get("transfer-encoding") == "chunked":
            answer.chunked = True
            while size := int(await self._until(b"\r\n"), 16):
                answer.body += await self._exactly(size)
                assert await self._exactly(2) == b"\r\n"
            assert await self._exactly(2) == b"\r\n"
        else:
            answer.body = await self.rest()
        return answer

    async def rest(self) -> bytes:
        """Everything up to the end; a reset counts as an end."""
        with contextlib.suppress(trio.BrokenResourceError):
            await self.read_to_the_end()
        taken, self.buffer = self.buffer, b""
        return taken

    async def read_to_the_end(self) -> None:
        while data := await self.stream.receive_some():
            self.buffer += data

    def close(self) -> None:
        self.stream.socket.close()

    async def _more(self) -> None:
        data = await self.stream.receive_some()
        assert data, f"the connection ended after {self.buffer!r}"
        self.buffer += data

    async def _until(self, end: bytes) -> bytes:
        while end not in self.buffer:
            await self._more()
        head, found, self.buffer = self.buffer.partition(end)
        return head + found

    async def _exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            await self._more()
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken


def post_bytes(target: str, body: bytes, extra: str = "") -> bytes:
    return f"POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


class Recorder:
    """An app that answers 200 with what it was asked, and remembers it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []

    async def __call__(self, scope, receive, send) -> None:
        assert scope["type"] == "http"
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.seen.append((scope["method"], scope["raw_path"].decode(), body))
        reply = json.dumps([scope["method"], scope["raw_path"].decode(), body.decode("latin-1")]).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": reply})


@pytest.fixture
def connect():
    """Connect a `Client` to a URL for the length of a block."""

    @asynccontextmanager
    async def connect(url: str):
        parts = urlsplit(url)
        stream = await trio.open_tcp_stream(parts.hostname, parts.port)
        async with stream:
            yield Client(stream)

    return connect


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(name="post_bytes")
def post_bytes_fixture():
    return post_bytes


@pytest.fixture
def responding():
    """An app that sends the given messages, one after the other."""

    def make(*messages):
        async def app(scope, receive, send) -> None:
            for message in messages:
                await send(message)

        return app

    return make


@pytest.fixture
def until():
    """Wait for a condition that other tasks bring about; each look is a checkpoint, not a sleep."""

    async def until(condition) -> None:
        while not condition():
            await trio.lowlevel.checkpoint()

    return until
