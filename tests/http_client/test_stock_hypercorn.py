"""The client against a server that is not ours: hypercorn as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import hypercorn.config
import hypercorn.trio
import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gym_trio.http import ServerClient, SocketTransport, open_socket_transport


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def count(request: Request) -> Response:
    async def events() -> AsyncIterator[str]:
        for number in range(int(request.query_params["to"])):
            yield f"data: {number}\n\n"
            await trio.lowlevel.checkpoint()

    return StreamingResponse(events(), media_type="text/event-stream")


APP = Starlette(routes=[Route("/echo", echo, methods=["POST"]), Route("/count", count)])


@pytest.fixture
async def asked(nursery: trio.Nursery) -> AsyncIterator[tuple[ServerClient, SocketTransport]]:
    config = hypercorn.config.Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    stop = trio.Event()
    (url,) = await nursery.start(partial(hypercorn.trio.serve, APP, config, shutdown_trigger=stop.wait))
    async with open_socket_transport() as transport:
        yield ServerClient({"stock": (transport, url)}), transport
    stop.set()


async def test_bodies_and_streams_over_one_connection(asked: tuple[ServerClient, SocketTransport]) -> None:
    """Its answers are read, and its connection is kept."""
    client, transport = asked
    for size in (0, 1, 70_000, 1_000_000):
        assert (await client.post("stock", "/echo", content=b"x" * size)).body == b"x" * size
    async with client.stream("stock", "/count?to=20", method="GET") as response:
        body = b"".join([chunk async for chunk in response])
    assert body == b"".join([b"data: %d\n\n" % number for number in range(20)])
    assert (await client.get("stock", "/nowhere")).status == 404
    assert (transport.statistics().open, transport.statistics().idle) == (1, 1)


async def test_many_at_once(asked: tuple[ServerClient, SocketTransport]) -> None:
    """Each gets its own answer."""
    client, _ = asked
    answers: dict[int, bytes] = {}

    async def ask(number: int) -> None:
        answers[number] = (await client.post("stock", "/echo", content=b"%d" % number)).body

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(ask, number)
    assert answers == {number: b"%d" % number for number in range(200)}
