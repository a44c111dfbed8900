"""Echo POSTs from ``--tasks`` tasks through httpx with its default transport, without its limit and its timeouts."""

from __future__ import annotations

import asyncio

import httpx
from _side import BODY, Clock, Digest, options, report


async def main(arguments):
    digest, good = Digest(), 0
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:

        async def ask(count):
            nonlocal good
            for _ in range(count):
                response = await client.post(arguments.url + "/echo", json=BODY)
                good += response.status_code == 200
                digest.add(response.content)

        async def all_ask(count):
            await asyncio.gather(*(ask(count) for _ in range(arguments.tasks)))

        await all_ask(2)
        with Clock() as clock:
            await all_ask(arguments.requests // arguments.tasks)
    report({"requests": arguments.requests, "ok": good, "bodies": str(digest)}, clock.figures, ["httpx", "httpcore"])


asyncio.run(main(options(url="", tasks=256, requests=32768)))
