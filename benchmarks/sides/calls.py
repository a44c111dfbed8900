"""``--requests`` echo POSTs one after the other, both ends in this process: to be run under ``strace -c``."""

from __future__ import annotations

import trio
from _echo_app import make_app
from _side import BODY, options, report

import gym_trio
from gym_trio.http import ServerClient, open_socket_transport


async def main(arguments):
    app = gym_trio.CancelOnDisconnect(make_app())
    async with open_socket_transport() as transport, gym_trio.open_server(app) as server:
        client = ServerClient()
        client.register("echo", transport, server.url)
        for _ in range(arguments.requests):
            await client.post("echo", "/echo", json=BODY)
    report({"requests": arguments.requests})


trio.run(main, options(requests=100))
