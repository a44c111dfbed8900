"""An app asked by gym_trio's client in the same process: ``--over`` memory or sockets, ``--app`` starlette or bare."""

from __future__ import annotations

from contextlib import asynccontextmanager

import trio
from _echo_app import bare, make_app
from _side import BODY, Clock, Digest, options, report

import gym_trio
from gym_trio.http import MemoryTransport, ServerClient, open_lifespan, open_socket_transport


@asynccontextmanager
async def open_client(over, app):
    client = ServerClient()
    if over == "memory":
        async with open_lifespan(app) as state:
            client.register("echo", MemoryTransport(app, state=state), "http://echo")
            yield client
    else:
        async with open_socket_transport() as transport, gym_trio.open_server(app) as server:
            client.register("echo", transport, server.url)
            yield client


async def main(arguments):
    digest, good = Digest(), 0
    app = gym_trio.CancelOnDisconnect(bare if arguments.app == "bare" else make_app())
    async with open_client(arguments.over, app) as client:

        async def ask(count):
            nonlocal good
            for _ in range(count):
                response = await client.post("echo", "/echo", json=BODY)
                good += response.status == 200
                digest.add(response.body)

        async def all_ask(count):
            async with trio.open_nursery() as nursery:
                for _ in range(arguments.tasks):
                    nursery.start_soon(ask, count)

        await all_ask(2)
        with Clock() as clock:
            await all_ask(arguments.requests // arguments.tasks)
    report({"requests": arguments.requests, "ok": good, "bodies": str(digest)}, clock.figures, ["gym_trio", "trio"])


trio.run(main, options(over="memory", app="starlette", tasks=256, requests=16384))
