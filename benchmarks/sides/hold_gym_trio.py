"""``--requests`` POSTs at once, each answered after the partner's hold, ``--in-flight`` of them at a time.

The tasks are there before the clock starts. ``--warm``: their connections too; each task has sent one.
"""

from __future__ import annotations

import trio
from _side import BODY, Clock, Digest, options, raise_file_limit, report

from gym_trio.http import ServerClient, open_socket_transport


class Together:
    """Waits until ``count`` tasks have come so far."""

    def __init__(self, count):
        self._missing = count
        self.there = trio.Event()

    def come(self):
        self._missing -= 1
        if not self._missing:
            self.there.set()


async def main(arguments):
    raise_file_limit()
    digest, good = Digest(), 0
    warm, done, go = Together(arguments.in_flight), Together(arguments.in_flight), trio.Event()
    async with open_socket_transport() as transport, trio.open_nursery() as asking:
        client = ServerClient()
        client.register("echo", transport, arguments.url)

        async def ask(count):
            nonlocal good
            if arguments.warm:
                await client.post("echo", "/echo", json=BODY)
            warm.come()
            await go.wait()
            for _ in range(count):
                response = await client.post("echo", "/echo", json=BODY)
                good += response.status == 200
                digest.add(response.body)
            done.come()

        for _ in range(arguments.in_flight):
            asking.start_soon(ask, arguments.requests // arguments.in_flight)
        await warm.there.wait()
        with Clock() as clock:
            go.set()
            await done.there.wait()
    report({"requests": arguments.requests, "ok": good, "bodies": str(digest)}, clock.figures, ["gym_trio", "trio"])


trio.run(main, options(url="", requests=16384, in_flight=16384, warm=False))
