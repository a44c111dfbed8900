"""One POST in flight is cancelled: how long until its handler is, both over a socket; then the next."""

from __future__ import annotations

import statistics
import time

import trio
from _side import options, report

import gym_trio
from gym_trio.http import ServerClient, open_socket_transport


async def main(arguments):
    arrived, left = trio.Event(), trio.Event()
    ended_at = 0.0

    async def app(scope, receive, send):
        nonlocal ended_at
        await receive()
        arrived.set()
        try:
            await trio.sleep_forever()
        finally:
            ended_at = time.perf_counter()
            left.set()

    latencies = []
    async with (
        open_socket_transport() as transport,
        gym_trio.open_server(gym_trio.CancelOnDisconnect(_without_lifespan(app))) as server,
    ):
        client = ServerClient()
        client.register("server", transport, server.url)
        for _ in range(arguments.requests):
            arrived, left = trio.Event(), trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: client.post("server", "/", json={}))
                await arrived.wait()
                began = time.perf_counter()
                nursery.cancel_scope.cancel()
            await left.wait()
            latencies.append(ended_at - began)
    figures = {"median_seconds": statistics.median(latencies), "worst_seconds": max(latencies)}
    report({"cancelled": len(latencies)}, figures, ["gym_trio", "trio"])


def _without_lifespan(app):
    async def wrapped(scope, receive, send):
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await app(scope, receive, send)

    return wrapped


trio.run(main, options(requests=200))
