"""The server of `cancel_load`: handlers that wait for ever, under ``--server`` gym_trio or hypercorn, in the same
`CancelOnDisconnect`."""

from __future__ import annotations

import gc
import json
import time

import trio
from _side import options, raise_file_limit, ready
from cancel_app import Parking

from gym_trio.http import CancelOnDisconnect


class Counted(Parking):
    """``GET /counts`` tells what has arrived and left, and when the last one left; ``GET /settle`` tells it of a heap
    that was just collected."""

    last_left = 0.0

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan" or scope["method"] == "POST":
            try:
                await super().__call__(scope, receive, send)
            finally:
                self.last_left = time.monotonic()
            return
        if scope["path"] == "/settle":
            # A full collection of this heap takes as long as the rest; which side it would hit is chance.
            gc.collect()
        body = json.dumps({"arrived": self.arrived, "left": self.left, "last_left": self.last_left}).encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def serve_gym_trio(app):
    import gym_trio

    async with gym_trio.open_server(app) as server:
        ready(server.url, "gym_trio", "trio")
        await trio.sleep_forever()


async def serve_hypercorn(app):
    import socket

    import hypercorn.config
    import hypercorn.trio

    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.backlog = 4096
    async with trio.open_nursery() as nursery:
        await nursery.start(hypercorn.trio.serve, app, config)
        ready(f"http://127.0.0.1:{listener.getsockname()[1]}", "hypercorn", "trio")


arguments = options(server="gym_trio")
raise_file_limit()
trio.run(serve_gym_trio if arguments.server == "gym_trio" else serve_hypercorn, CancelOnDisconnect(Counted()))
