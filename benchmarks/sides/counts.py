"""Exact counts, immune to a busy machine: task steps per request, resumptions per outcome."""

from __future__ import annotations

from contextlib import asynccontextmanager

import trio
from _side import BODY, report
from _tool_call import CONFIG, rows

import gym_trio
from gym_trio.http import MemoryTransport, ServerClient, open_socket_transport
from gym_trio.rollouts import open_rollout_stream

REQUESTS = 200
OUTCOMES = 1000


class Steps(trio.abc.Instrument):
    """Of the task that counts, of the transport's own, and of all others."""

    def __init__(self):
        self._mine = trio.lowlevel.current_task()
        self.mine = self.transport = self.others = 0

    def before_task_step(self, task):
        if task is self._mine:
            self.mine += 1
        elif task.name.endswith("SocketTransport.wake_waiting"):
            self.transport += 1
        else:
            self.others += 1

    def __enter__(self):
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_):
        trio.lowlevel.remove_instrument(self)


async def echo(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = (await receive())["body"]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def open_client(app, over="sockets"):
    client = ServerClient()
    if over == "memory":
        client.register("echo", MemoryTransport(app), "http://echo")
        yield client
        return
    async with open_socket_transport() as transport, gym_trio.open_server(app) as server:
        client.register("echo", transport, server.url)
        yield client


async def steps_of_requests(app, over="sockets"):
    async with open_client(app, over) as client:
        for _ in range(3):
            await client.post("echo", "/", json=BODY)
        with Steps() as steps:
            for _ in range(REQUESTS):
                response = await client.post("echo", "/", json=BODY)
                assert response.status == 200
    return (steps.mine + steps.transport) / REQUESTS, steps.others / REQUESTS


async def steps_of_outcomes():
    async def run(_):
        return {}

    async with open_rollout_stream(({"i": i} for i in range(OUTCOMES)), run, max_concurrent=8) as stream:
        with Steps() as steps:
            async for _ in stream:
                pass
    return steps.mine / OUTCOMES, (steps.mine + steps.others) / OUTCOMES


async def steps_of_rollouts(serve):
    async with gym_trio.open_gym(CONFIG, serve=serve) as gym:
        async with gym.run_examples(rows(8, first=10**6), max_concurrent=1) as warming:
            async for outcome in warming:
                outcome.unwrap()
        async with gym.run_examples(rows(REQUESTS), max_concurrent=1) as rollouts:
            with Steps() as steps:
                async for outcome in rollouts:
                    outcome.unwrap()
    return (steps.mine + steps.transport + steps.others) / REQUESTS


async def main():
    counts = {}
    (
        counts["client: task steps per request"],
        counts["server, bare app: task steps per request"],
    ) = await steps_of_requests(echo)
    _, counts["server with CancelOnDisconnect: task steps per request"] = await steps_of_requests(
        gym_trio.CancelOnDisconnect(echo)
    )
    counts["in memory: task steps per request"] = sum(await steps_of_requests(echo, "memory"))
    (
        counts["stream: consumer's resumptions per outcome"],
        counts["stream: task steps per outcome"],
    ) = await steps_of_outcomes()
    counts["tool-call rollout in memory: task steps"] = await steps_of_rollouts("memory")
    counts["tool-call rollout over sockets: task steps"] = await steps_of_rollouts("sockets")
    report({"requests": REQUESTS, "outcomes": OUTCOMES}, {name: round(value, 2) for name, value in counts.items()})


trio.run(main)
