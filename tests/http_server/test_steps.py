"""What a request costs in steps of tasks, counted exactly, which no noise touches."""

from __future__ import annotations

import socket

import pytest
import trio
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from gym_trio import CancelOnDisconnect
from gym_trio.http import ServeLimits
from gym_trio.http._connection import Connection
from gym_trio.http._departures import open_departures
from gym_trio.http._service import Service

WIRE = (
    b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n" + b'{"text": "x"}'
)


class Steps(trio.abc.Instrument):
    """Counts the steps of every task but the test's own."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self._mine = trio.lowlevel.current_task()

    def before_task_step(self, task) -> None:
        if task is not self._mine:
            self.taken.append(task.name)


async def bare(scope, receive, send) -> None:
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


async def echo(request) -> JSONResponse:
    return JSONResponse(await request.json())


APPS = {
    "bare": bare,
    "bare with the layer": CancelOnDisconnect(bare),
    "Starlette with the layer": CancelOnDisconnect(Starlette(routes=[Route("/echo", echo, methods=["POST"])])),
}


@pytest.mark.parametrize("name", APPS)
async def test_one_step_per_request(name) -> None:
    """A request that arrives whole and is answered without waiting is one step, with CancelOnDisconnect or without."""
    client, server = socket.socketpair()
    server.setblocking(False)
    config = Config()
    config.errorlog = None
    with client, open_departures() as departures:
        service = Service(APPS[name], config, ServeLimits(), departures)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(departures.run)
            nursery.start_soon(service.idle.run)
            nursery.start_soon(Connection(service, departures, server).run)
            await trio.testing.wait_all_tasks_blocked()
            steps = Steps()
            trio.lowlevel.add_instrument(steps)
            for count in range(1, 11):
                client.send(WIRE)
                await trio.testing.wait_all_tasks_blocked()
                assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
                assert len(steps.taken) == count
            trio.lowlevel.remove_instrument(steps)
            nursery.cancel_scope.cancel()
