"""The life of the process: load the environment, then give its rows, or run rollouts until the parent has enough."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import traceback
from typing import Any

from ._find import find_driver
from ._frames import HEAD, Link, encoded
from ._relay import ModelRelay
from ._report import AGENT, Driver, RolloutFailed, Unusable, described

__all__ = ["main"]

CLOSING_SECONDS = 5.0


def main(descriptor: int) -> None:
    """Serve the process at the other end of the socket ``descriptor``."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    link = socket.socket(fileno=descriptor)
    link.set_inheritable(False)
    wanted = _receive(link)
    try:
        sys.path[:0] = [*wanted["search_path"], *wanted["own_path"]]
        # Harnesses and tool servers are programs: they find what is installed beside this Python, and the same modules.
        _put_before("PATH", [os.path.dirname(sys.executable)])
        _put_before("PYTHONPATH", wanted["search_path"])
        driver = find_driver(wanted["env_id"], wanted["env_args"])
        if wanted["op"] == "rows":
            for row in driver.rows(wanted["split"], wanted["limit"]):
                link.sendall(encoded({"op": "row", **row}))
            link.sendall(encoded({"op": "end"}))
            return
        # The end of the socket is what ends it, in good order. Set after loading, where the package sets its own; and a
        # handler, since a signal that is ignored stays so in whatever this process starts.
        signal.signal(signal.SIGINT, lambda *_: None)
        asyncio.run(_serve(link, driver))
    except Unusable as error:
        link.sendall(encoded({"op": "unusable", "message": str(error)}))
    except (BrokenPipeError, ConnectionResetError):
        return  # the parent has enough


def _put_before(variable: str, folders: list[str]) -> None:
    known = os.environ.get(variable)
    os.environ[variable] = os.pathsep.join([*folders, *([known] if known else [])])


def _receive(link: socket.socket) -> dict[str, Any]:
    (length,) = HEAD.unpack(_exactly(link, HEAD.size))
    message: dict[str, Any] = json.loads(_exactly(link, length))
    return message


def _exactly(link: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = link.recv(length - len(parts))
        if not part:
            sys.exit(0)
        parts += part
    return bytes(parts)


async def _serve(connection: socket.socket, driver: Driver) -> None:
    connection.setblocking(False)
    link = Link(*await asyncio.open_connection(sock=connection))
    async with contextlib.AsyncExitStack() as stack:
        relay = await stack.enter_async_context(ModelRelay(link))
        try:
            await stack.enter_async_context(driver.opened())
        except Exception as error:  # noqa: BLE001  the parent tells the user
            traceback.print_exc()
            link.send(op="unusable", message=f"the environment cannot be opened: {described(error)}")
            await link.flush()
            return
        link.send(op="ready")
        await Rollouts(link, relay, driver).run()


class Rollouts:
    """The rollouts of this process, each a task."""

    def __init__(self, link: Link, relay: ModelRelay, driver: Driver) -> None:
        self._link = link
        self._relay = relay
        self._driver = driver
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Do what the parent says until it closes the socket; then every rollout is cancelled and waited for."""
        try:
            while (message := await self._link.receive()) is not None:
                self._follow(message)
        finally:
            for task in self._tasks.values():
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=CLOSING_SECONDS)

    def _follow(self, message: dict[str, Any]) -> None:
        match message["op"]:
            case "answer":
                self._relay.answer(message)
            case "run":
                task = asyncio.ensure_future(self._roll(message))
                self._tasks[message["id"]] = task
                task.add_done_callback(lambda ended: self._ended(message["id"], ended))
            case "cancel":
                if message["id"] in self._tasks:
                    self._tasks[message["id"]].cancel()

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        del self._tasks[number]
        if task.cancelled():
            self._link.send(op="cancelled", id=number)

    async def _roll(self, message: dict[str, Any]) -> None:
        number = message["id"]
        stage = AGENT

        def enter(later: str) -> None:
            nonlocal stage
            stage = later
            self._link.send(op="stage", id=number, stage=later)

        try:
            with self._relay.address(number) as url:
                result = await self._driver.roll(message["example"], url, message["sampling"], enter)
            self._link.send(op="done", id=number, result=result)
        except RolloutFailed as error:
            self._fail(number, str(error), error.stage, error.exception_type)
        except Exception as error:  # noqa: BLE001  it fails this rollout
            traceback.print_exc()
            self._fail(number, described(error), stage, type(error).__name__)

    def _fail(self, number: int, message: str, stage: str, exception_type: str) -> None:
        self._link.send(op="failed", id=number, message=message, stage=stage, exception_type=exception_type)
