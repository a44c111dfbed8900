"""What a request keeps while its handler, or a model, waits: not the bytes that it came in."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from gym_trio.http import MemoryTransport, Origin, Request, open_lifespan, open_server, open_socket_transport
from gym_trio.servers import ModelServer, ResourcesServer

PADDING = 4 * 1024 * 1024
WAYS = ["at once", "messages", "socket"]


class SlowModel(ModelServer):
    """A model that waits for the test."""

    path, begun, goes_on = "/v1/responses", trio.Event(), trio.Event()

    async def responses(self, request: Any) -> Any:
        await wait_here(self)
        return {"output": []}


class SlowEnvironment(ResourcesServer):
    """An environment whose handler waits for the test."""

    path, begun, goes_on = "/verify", trio.Event(), trio.Event()

    async def verify(self, session: Any, request: Any) -> float:
        await wait_here(self)
        return 1.0


async def wait_here(server: Any) -> None:
    server.begun.set()
    await server.goes_on.wait()


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def padded(streamed: bool) -> bytes:
    """A body whose bytes are long, and which says little."""
    return b'{"response": {}, "stream": %s%s}' % (b"true" if streamed else b"false", b" " * PADDING)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("make", [SlowModel, SlowEnvironment])
async def test_the_body_is_gone_while_its_handler_waits(make: Any, streamed: bool, way: str) -> None:
    """At the client and at the server, wherever that is."""
    server = make(name="slow")
    server.begun, server.goes_on = trio.Event(), trio.Event()

    async def ask(transport: Any, url: str) -> None:
        origin, target = Origin.parse(url + make.path)
        request = Request("POST", origin, target, body=padded(streamed), keeps_body=False)
        assert (await transport.send(request)).status == 200

    async def layer(scope: Any, receive: Any, send: Any) -> None:
        await server.app(scope, receive, send)

    async with open_lifespan(server.app) as state, open_socket_transport() as sockets, open_server(server.app) as real:
        in_memory = MemoryTransport(server.app if way == "at once" else layer, state=state)
        transport, url = (sockets, real.url) if way == "socket" else (in_memory, "http://slow")
        before = tracemalloc.get_traced_memory()[0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, transport, url)
            await server.begun.wait()
            held = tracemalloc.get_traced_memory()[0] - before
            server.goes_on.set()
    assert held < PADDING / 2


@pytest.mark.parametrize("make", [SlowModel, SlowEnvironment])
async def test_an_endpoint_keeps_no_body(make: Any) -> None:
    """On whatever server it is called."""
    server = make(name="slow")
    server.begun, server.goes_on = trio.Event(), trio.Event()
    messages = [{"type": "http.request", "body": padded(False), "more_body": False}]
    (content,) = [message["body"] for message in messages]
    scope = {"type": "http", "method": "POST", "path": make.path, "headers": [], "query_string": b"", "root_path": ""}
    sent = []

    async def receive() -> Any:
        if not messages:
            await trio.sleep_forever()
        return messages.pop()

    async def send(message: Any) -> None:
        sent.append(message["type"])

    held = sys.getrefcount(content) - 1
    async with open_lifespan(server.app), trio.open_nursery() as nursery:
        nursery.start_soon(server.app, scope, receive, send)
        await server.begun.wait()
        assert sys.getrefcount(content) == held
        server.goes_on.set()
    assert sent == ["http.response.start", "http.response.body"]
