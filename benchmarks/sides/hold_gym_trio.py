"""``--requests`` POSTs at once, each answered after the partner's hold, ``--in-flight`` of them at a time.

``--warm``: the connections are there; before the clock starts, each task has sent one.
"""

from __future__ import annotations

import trio
from _side import BODY, Clock, Digest, options, raise_file_limit, report

from gym_trio.http import ServerClient, open_socket_transport


async def main(arguments):
    raise_file_limit()
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
                for _ in range(arguments.in_flight):
                    nursery.start_soon(ask, count)

        if arguments.warm:
            await all_ask(1)
            digest, good = Digest(), 0
        with Clock() as clock:
            await all_ask(arguments.requests // arguments.in_flight)
    report({"requests": arguments.requests, "ok": good, "bodies": str(digest)}, clock.figures, ["gym_trio", "trio"])


trio.run(main, options(url="", requests=16384, in_flight=16384, warm=False))
