"""Echo POSTs from ``--tasks`` tasks through aiohttp on uvloop, without its limit of 100 connections."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import uvloop
from _side import BODY, Clock, Digest, options, report


async def main(arguments):
    digest, good = Digest(), 0
    compact = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731  the same bytes as the others'
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, json_serialize=compact) as session:

        async def ask(count):
            nonlocal good
            for _ in range(count):
                async with session.post(arguments.url + "/echo", json=BODY) as response:
                    body = await response.read()
                good += response.status == 200
                digest.add(body)

        async def all_ask(count):
            await asyncio.gather(*(ask(count) for _ in range(arguments.tasks)))

        await all_ask(2)
        with Clock() as clock:
            await all_ask(arguments.requests // arguments.tasks)
    work = {"requests": arguments.requests, "ok": good, "bodies": str(digest)}
    report(work, clock.figures, ["aiohttp", "uvloop"])


uvloop.run(main(options(url="", tasks=256, requests=32768)))
