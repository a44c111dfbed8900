"""`WorkerHome`: the supervisor of one server's worker processes, opened when the first of them is wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from ..errors import GymError

if TYPE_CHECKING:
    from ..processes import ManagedProcess, Supervisor

__all__ = ["WorkerFailed", "WorkerHome", "open_worker_home"]


class WorkerFailed(Exception):
    """What became of a process, to be read after "its process". Never leaves the pool."""


class WorkerHome:
    """Where worker processes belong to. Made by `open_worker_home`.

    **Ownership**: of each process with all its descendants, also those that left its group and those of a process that
    has ended. They end with the block, and if this process is killed.
    """

    def __init__(self, server_name: str) -> None:
        self._server_name = server_name
        self._wanted = trio.Event()
        self._settled = trio.Event()  # the supervisor is there, or could not be had
        self._over = trio.Event()
        self._supervisor: Supervisor | None = None
        self._problem = "the server is shutting down"
        self._count = 0

    async def start(self, command: Sequence[str], pass_fds: Sequence[int]) -> ManagedProcess:
        """Start a process. What it prints is relayed under the server's name.

        **Cancellation**: nothing of it is left.

        **Errors**: `WorkerFailed` when it could not be started.
        """
        self._wanted.set()
        await self._settled.wait()
        if self._supervisor is None:
            raise WorkerFailed(f"could not be started: {self._problem}")
        self._count += 1
        name = f"{self._server_name} worker {self._count}"
        try:
            return await self._supervisor.start(name, command, pass_fds=pass_fds, on_exit="ignore")
        except GymError as error:
            raise WorkerFailed(f"could not be started: {error}") from None

    async def end(self, process: ManagedProcess) -> None:
        """Kill the process and all its descendants. **Cancellation**: shielded; bounded by what the kernel takes."""
        if self._supervisor is not None:
            await self._supervisor.end(process)

    async def run(self) -> None:
        """Keep the supervisor from the first `start` to `close`."""
        with trio.CancelScope(shield=True):  # `close` ends it, when those who use the processes are through
            await self._wanted.wait()
            try:
                if not self._over.is_set():
                    await self._supervise()
            except GymError as error:
                self._problem = str(error)
            finally:
                self._settled.set()

    async def _supervise(self) -> None:
        from ..processes import open_supervisor  # here, for most servers never need it

        async with open_supervisor(0) as supervisor:
            self._supervisor = supervisor
            self._settled.set()
            await self._over.wait()

    def close(self) -> None:
        self._over.set()
        self._wanted.set()


@asynccontextmanager
async def open_worker_home(server_name: str) -> AsyncIterator[WorkerHome]:
    """A home for the length of the block. Nothing is started before the first process is."""
    home = WorkerHome(server_name)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            # What is raised in here is raised again outside, where no nursery wraps it into a group.
            nursery.start_soon(home.run)
            try:
                yield home
            except BaseException as error:  # noqa: BLE001
                failure = error
            home.close()
    except* trio.Cancelled:  # by a cancellation from outside, which is raised again below
        pass
    if failure is not None:
        raise failure
    await trio.lowlevel.checkpoint_if_cancelled()
