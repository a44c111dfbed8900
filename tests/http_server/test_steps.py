"""What a request costs in steps of tasks, counted exactly, which no noise touches."""

from __future__ import annotations

import contextlib
import socket

import pytest
import trio
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from gym_trio import CancelOnDisconnect
from gym_trio.http import ServeLimits
from gym_trio.http._arrivals import Arrivals, open_arrivals
from gym_trio.http._connection import Connection
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


def names(connections: int) -> list[str]:
    """What tells of the input, whose one step all that arrives at the same time share; and each connection once."""
    return [f"{Arrivals.__module__}.Arrivals.run"] + [f"{Connection.__module__}.Connection.run"] * connections


@pytest.mark.parametrize("connections", [1, 10])
@pytest.mark.parametrize("name", APPS)
async def test_one_step_per_request(name, connections: int) -> None:
    """A request that arrives whole and is answered without waiting is one step, with CancelOnDisconnect or without."""
    config = Config()
    config.errorlog = None
    with open_arrivals() as arrivals, contextlib.ExitStack() as clients:
        service = Service(APPS[name], config, ServeLimits(), arrivals)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(arrivals.run)
            nursery.start_soon(service.idle.run)
            pairs = [socket.socketpair() for _ in range(connections)]
            for client, server in pairs:
                clients.enter_context(client)
                server.setblocking(False)
                nursery.start_soon(Connection(service, arrivals, server).run)
            await trio.testing.wait_all_tasks_blocked()
            steps = Steps()
            trio.lowlevel.add_instrument(steps)
            for count in range(1, 11):
                for client, _ in pairs:
                    client.send(WIRE)
                await trio.testing.wait_all_tasks_blocked()
                for client, _ in pairs:
                    assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
                assert steps.taken == names(connections) * count
            trio.lowlevel.remove_instrument(steps)
            nursery.cancel_scope.cancel()
