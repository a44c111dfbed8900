"""Servers that have died are started again, a few times, for as long as the gym is open."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import trio

from ..errors import ServerStartError
from ..processes import ManagedProcess, Supervisor

__all__ = ["MOST_RESTARTS", "restarting"]

logger = logging.getLogger("gym_trio.gym")

MOST_RESTARTS = 5  # of one server: one that dies again and again takes every rollout's work along

Start = Callable[[], Awaitable[ManagedProcess]]


@asynccontextmanager
async def restarting(
    supervisor: Supervisor, running: Mapping[ManagedProcess, Start], give_up: Callable[[str], None]
) -> AsyncIterator[None]:
    """Within the block, start each server of ``running`` again when it has ended, at most `MOST_RESTARTS` times.

    What the dead one knew, its sessions above all, is lost with it. ``give_up`` is told the name of a server that is
    not started again.

    **Cancellation**: leaving the block ends this before the supervisor stops anything.
    """
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        for process, start in running.items():
            nursery.start_soon(_keep, supervisor, process, start, give_up)
        # What is raised in here is raised again outside, where no nursery wraps it.
        try:
            yield
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001  raised again below
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _keep(supervisor: Supervisor, process: ManagedProcess, start: Start, give_up: Callable[[str], None]) -> None:
    name = process.name
    for number in range(1, MOST_RESTARTS + 1):
        await process.wait()
        if supervisor.stopping:
            return
        await supervisor.end(process)
        logger.warning("%s is started again (%d of at most %d times)", name, number, MOST_RESTARTS)
        try:
            process = await start()
        except ServerStartError as error:
            logger.error("%s could not be started again: %s", name, error)
            break
    else:
        await process.wait()
        if supervisor.stopping:
            return
        logger.error("%s has ended for the last time: its rollouts fail from now on", name)
    give_up(name)
