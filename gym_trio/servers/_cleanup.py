"""`Cleanup`: what an episode has to undo, last first, whatever happened to it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from ._authored import sparing

__all__ = ["Cleanup", "CleanupEntry"]

logger = logging.getLogger("gym_trio.servers")


@attrs.define(eq=False)
class CleanupEntry:
    """One thing to undo. It is done once; after a failed try it is still to do."""

    name: str
    _callback: Callable[[], Awaitable[None]]
    done: bool = False

    async def close(self) -> None:
        """Undo it now, ahead of the rest.

        **Cancellation** and **Errors**: those of the callback; the entry then stays, and is tried again at the end.
        """
        if not self.done:
            await self._callback()
            self.done = True


@attrs.define(eq=False)
class Cleanup:
    """A stack of things to undo. Register each before what makes it necessary is begun.

    **Ownership**: whoever makes it calls `aclose`, in a ``finally``.
    """

    name: str
    timeout_seconds: float
    errors: list[tuple[str, str]] = attrs.field(factory=list)  # what could not be undone, and why
    _entries: list[CleanupEntry] = attrs.field(factory=list)

    def register(self, name: str, callback: Callable[[], Awaitable[None]]) -> CleanupEntry:
        entry = CleanupEntry(name, callback)
        self._entries.append(entry)
        return entry

    async def aclose(self) -> None:
        """Undo what is left, last first, within ``timeout_seconds`` in all. None stops the rest: each may take an equal
        share of the time that is left, so that one that hangs leaves time for those after it.

        **Cancellation**: shielded; its own bound cuts it.

        **Errors**: none; they are logged and kept in ``errors``.
        """
        deadline = trio.current_time() + self.timeout_seconds
        with trio.CancelScope(shield=True):
            while self._entries:
                share = (deadline - trio.current_time()) / len(self._entries)
                await self._undo(self._entries.pop(), max(0.0, share))

    async def _undo(self, entry: CleanupEntry, seconds: float) -> None:
        with trio.move_on_after(seconds) as scope:
            try:
                await entry.close()
            except BaseException as raised:
                error = sparing(raised)
                logger.warning("%s: %s failed", self.name, entry.name, exc_info=error)
                self.errors.append((entry.name, repr(error)))
        if scope.cancelled_caught:
            logger.warning("%s: %s took over %g s and was cut", self.name, entry.name, seconds)
            self.errors.append((entry.name, f"cut after {seconds:g} s"))
