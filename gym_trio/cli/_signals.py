"""SIGINT and SIGTERM, read until the cleanup has ended."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio

__all__ = ["Interrupts", "open_interrupts", "open_watch"]


@attrs.define
class Interrupts:
    """What has been asked for: the first signal's exit code, and how many there were."""

    exit_code: int = 0
    count: int = 0


@asynccontextmanager
async def open_interrupts(
    on_first: Callable[[], None], on_second: Callable[[], None] = lambda: None
) -> AsyncIterator[Interrupts]:
    """Call ``on_first`` at the first SIGINT or SIGTERM inside the block and ``on_second`` at every later one.

    A signal that nobody has read would be raised again when the receiver closes, so they are read until the block's
    own cleanup has ended. The previous handlers are back after the block.
    """
    seen = Interrupts()

    async def watch(task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                seen.count += 1
                if seen.count == 1:
                    seen.exit_code = 128 + number
                    on_first()
                else:
                    on_second()

    async with open_watch(watch):
        yield seen


@asynccontextmanager
async def open_watch(watch: Callable[..., Awaitable[None]]) -> AsyncIterator[None]:
    """Start ``watch``, and cancel it when the block is over. What is raised in the block goes on as it is."""
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(watch)
        try:
            yield
        except BaseException as error:  # noqa: BLE001  raised again below, outside the nursery that would wrap it
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
