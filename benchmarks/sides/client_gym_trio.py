"""Echo POSTs from ``--tasks`` tasks through gym_trio's client."""

from __future__ import annotations

import trio
from _side import BODY, Clock, Digest, options, report

from gym_trio.http import ServerClient, open_socket_transport


async def main(arguments):
    digest, good = Digest(), 0
    async with open_socket_transport() as transport:
        client = ServerClient()
        client.register("echo", transport, arguments.url)

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


trio.run(main, options(url="", tasks=256, requests=32768))
