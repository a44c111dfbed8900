"""The same with aiohttp on uvloop, without its limit of 100 connections and its five minutes."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import uvloop
from _side import BODY, Clock, Digest, options, raise_file_limit, report


def compact(value):
    return json.dumps(value, separators=(",", ":"))


async def main(arguments):
    raise_file_limit()
    digest, good = Digest(), 0
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout()
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, json_serialize=compact) as session:

        async def ask():
            nonlocal good
            async with session.post(arguments.url + "/echo", json=BODY) as response:
                body = await response.read()
            good += response.status == 200
            digest.add(body)

        with Clock() as clock:
            await asyncio.gather(*(ask() for _ in range(arguments.requests)))
    work = {"requests": arguments.requests, "ok": good, "bodies": str(digest)}
    report(work, clock.figures, ["aiohttp", "uvloop"])


uvloop.run(main(options(url="", requests=16384)))
