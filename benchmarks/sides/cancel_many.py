"""800 of 1,000 POSTs in flight are cancelled at once: how long until all 800 handlers are. ``--server`` gym_trio or
hypercorn, with the same app in the same `CancelOnDisconnect` and the same client."""

from __future__ import annotations

import gc
import socket
import time
from contextlib import asynccontextmanager

import trio
from _side import options, raise_file_limit, report
from cancel_app import Parking

from gym_trio.http import CancelOnDisconnect, ServerClient, open_socket_transport


@asynccontextmanager
async def open_gym_trio(app):
    import gym_trio

    async with gym_trio.open_server(app) as server:
        yield server.url


@asynccontextmanager
async def open_hypercorn(app):
    import hypercorn.config
    import hypercorn.trio

    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.backlog = 4096
    stop = trio.Event()
    async with trio.open_nursery() as nursery:

        async def serve(task_status):
            await hypercorn.trio.serve(app, config, shutdown_trigger=stop.wait, task_status=task_status)

        await nursery.start(lambda task_status: serve(task_status))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stop.set()


async def main(arguments):
    raise_file_limit()
    app = Parking()
    open_it = open_gym_trio if arguments.server == "gym_trio" else open_hypercorn
    async with open_it(CancelOnDisconnect(app)) as url, open_socket_transport() as transport:
        client = ServerClient()
        client.register("server", transport, url)
        async with trio.open_nursery() as all_of_them:
            async with trio.open_nursery() as some:
                for number in range(arguments.requests):
                    nursery = some if number < arguments.cancelled else all_of_them
                    nursery.start_soon(lambda: client.post("server", "/", json={}))
                await app.until(lambda: app.arrived == arguments.requests)
                # A full collection of this heap takes as long as the rest; which side it would hit is chance.
                gc.collect()
                cpu, began = time.process_time(), time.monotonic()
                some.cancel_scope.cancel()
            await app.until(lambda: app.left == arguments.cancelled)
            figures = {"wall_seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
            left = app.left
            all_of_them.cancel_scope.cancel()
        await app.until(lambda: app.left == arguments.requests)
    report({"arrived": app.arrived, "cancelled": left}, figures, ["gym_trio", "hypercorn", "trio"])


trio.run(main, options(server="gym_trio", requests=1000, cancelled=800))
