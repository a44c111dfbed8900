"""The children of one server: started together, chosen by their load, replaced when they have ended."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import trio

from ...errors import ConfigError, FailureKind, RolloutFailure, ServerStartError, Stage
from ...processes import Supervisor, open_supervisor
from ._child import Child
from ._rollout import Ask
from ._settings import VerifiersSettings, child_command

__all__ = ["Children", "open_children"]

END_SECONDS = 2.0  # for an environment that tears down what it holds


class Children:
    """A fixed number of places, each with a child; get it from `open_children`."""

    def __init__(self, settings: VerifiersSettings, name: str, supervisor: Supervisor, nursery: trio.Nursery) -> None:
        self._settings = settings
        self._name = name
        self._supervisor = supervisor
        self._nursery = nursery
        self._places: list[Child | None] = [None] * settings.processes
        self._starting = [trio.Lock() for _ in self._places]
        self._under_way = [0] * settings.processes  # rollouts, those that wait for a start included

    async def start(self) -> Exception | None:
        """Start one at every place, side by side; the first thing that was wrong, or None."""
        wrong: list[Exception] = []

        async def start(place: int) -> None:
            try:
                await self._child_at(place)
            except (ConfigError, ServerStartError) as error:
                wrong.append(error)

        async with trio.open_nursery() as nursery:
            for place in range(len(self._places)):
                nursery.start_soon(start, place)
        return wrong[0] if wrong else None

    async def run(self, example: dict[str, Any], sampling: dict[str, Any], ask: Ask) -> dict[str, Any]:
        """One rollout in the child that has the fewest; see `Child.run`.

        **Errors**: `RolloutFailure`, of stage ``seed`` when a child has to be started for it and does not come up.
        """
        place = min(range(len(self._places)), key=self._under_way.__getitem__)
        self._under_way[place] += 1
        try:
            try:
                child = await self._child_at(place)
            except (ConfigError, ServerStartError) as error:
                kind = FailureKind.PROVIDER_UNAVAILABLE
                raise RolloutFailure(kind, str(error), stage=Stage.SEED, exception_type=type(error).__name__) from None
            return await child.run(example, sampling, ask)
        finally:
            self._under_way[place] -= 1

    async def _child_at(self, place: int) -> Child:
        async with self._starting[place]:
            child = self._places[place]
            if child is None or child.is_gone:
                child = self._places[place] = None
                child = await self._start(f"{self._name}/{place + 1}" if len(self._places) > 1 else self._name)
                self._places[place] = child
            return child

    async def _start(self, name: str) -> Child:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                command = child_command(self._settings, theirs.fileno())
                process = await self._supervisor.start(name, command, pass_fds=[theirs.fileno()], on_exit="ignore")
        except BaseException:
            ours.close()
            raise
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        child = Child(self._settings, self._supervisor, process, stream)
        self._nursery.start_soon(child.serve)
        usable = False
        try:
            await child.loaded()
            usable = True
        finally:
            if not usable:
                await self._supervisor.end(process)
        return child


@contextlib.asynccontextmanager
async def open_children(settings: VerifiersSettings, name: str) -> AsyncIterator[Children]:
    """The children, each with the environment loaded.

    **Cancellation**: leaving the block ends them, within `END_SECONDS`; whatever is left of them then is killed.

    **Errors**: `ConfigError`, `ServerStartError` when the environment cannot be loaded.
    """
    async with open_supervisor(server_shutdown_timeout_seconds=END_SECONDS) as supervisor:
        wrong: Exception | None = None
        async with trio.open_nursery() as nursery:
            children = Children(settings, name, supervisor, nursery)
            try:
                wrong = await children.start()
                if wrong is None:
                    yield children
            finally:
                nursery.cancel_scope.cancel()
        if wrong is not None:
            raise wrong
