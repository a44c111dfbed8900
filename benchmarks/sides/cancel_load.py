"""The partner of `cancel_server`: ``--cancelled`` of ``--requests`` POSTs in flight are cancelled at once. How long it
takes until the last of their handlers is."""

from __future__ import annotations

import gc
import time

import trio
from _side import options, raise_file_limit, report

from gym_trio.http import ServerClient, open_socket_transport

POLL_SECONDS = 0.005


async def main(arguments):
    raise_file_limit()
    async with open_socket_transport() as transport:
        client = ServerClient()
        client.register("server", transport, arguments.url)

        async def counts(path="/counts"):
            return (await client.get("server", path)).json()

        async def until(what, number):
            while (found := await counts())[what] < number:  # noqa: ASYNC110  another process has no event for this one
                await trio.sleep(POLL_SECONDS)
            return found

        before = await counts()
        async with trio.open_nursery() as all_of_them:
            async with trio.open_nursery() as some:
                for number in range(arguments.requests):
                    nursery = some if number < arguments.cancelled else all_of_them
                    nursery.start_soon(lambda: client.post("server", "/", json={}))
                arrived = (await until("arrived", before["arrived"] + arguments.requests))["arrived"]
                await counts("/settle")
                gc.collect()
                began = time.monotonic()
                some.cancel_scope.cancel()
            after = await until("left", before["left"] + arguments.cancelled)
            all_of_them.cancel_scope.cancel()
        await until("left", before["left"] + arguments.requests)
    work = {"arrived": arrived - before["arrived"], "cancelled": after["left"] - before["left"]}
    report(work, {"wall_seconds": after["last_left"] - began})


trio.run(main, options(url="", requests=1000, cancelled=800, warm=False))
