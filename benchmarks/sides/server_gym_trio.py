"""A Starlette app with `CancelOnDisconnect` around it, served by `open_server`."""

from __future__ import annotations

import trio
from _echo_app import make_app
from _side import ready

import gym_trio


async def main():
    async with gym_trio.open_server(gym_trio.CancelOnDisconnect(make_app())) as server:
        ready(server.url, "gym_trio", "trio", "starlette")
        await trio.sleep_forever()


trio.run(main)
