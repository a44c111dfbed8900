"""The same Starlette app with the same middleware under stock hypercorn's trio worker."""

from __future__ import annotations

import socket

import hypercorn.config
import hypercorn.trio
import trio
from _echo_app import make_app
from _side import ready

from gym_trio.http import CancelOnDisconnect


async def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.backlog = 4096
    async with trio.open_nursery() as nursery:
        await nursery.start(hypercorn.trio.serve, CancelOnDisconnect(make_app()), config)
        ready(f"http://127.0.0.1:{listener.getsockname()[1]}", "hypercorn", "trio", "starlette")


trio.run(main)
