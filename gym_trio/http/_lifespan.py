"""`open_lifespan`: startup and shutdown of an ASGI app that is called in memory."""

from __future__ import annotations

import enum
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from ..errors import GymError, ServerStartError
from ._disconnect import App, Message

__all__ = ["open_lifespan"]

_log = logging.getLogger(__name__)

FAREWELL_SECONDS = 1.0  # for an app that has said that it failed to raise what it failed with


class _Phase(enum.Enum):
    """How far the app has come. Each phase is followed by a later one only."""

    STARTING = "starting"  # the app has been called
    UP = "up"  # it said that startup is complete
    UNSUPPORTED = "unsupported"  # it left before it took the startup event: it has no lifespan
    STOPPED = "stopped"  # it said that shutdown is complete, or returned
    FAILED = "failed"  # startup or shutdown went wrong; the message says how


class _Lifespan:
    """One app's lifespan: the task that runs it, and what its owner waits for."""

    def __init__(self, app: App, server: str) -> None:
        self.state: dict[str, Any] = {}
        self.phase = _Phase.STARTING
        self.message = ""
        self.error: Exception | None = None
        self.asked = False  # the app has taken the startup event
        self.started = trio.Event()
        self.ended = trio.Event()  # the app has returned
        self.scope = trio.CancelScope(
            shield=True
        )  # a cancellation from outside reaches the owner, who shuts down first
        self._app = app
        self._server = server
        self._inbox: list[Message] = [{"type": "lifespan.startup"}]
        self._stop = trio.Event()

    def _enter(self, phase: _Phase, message: str = "") -> None:
        if self.phase in (_Phase.FAILED, _Phase.STOPPED, _Phase.UNSUPPORTED):
            return
        self.phase = phase
        self.message = message
        self.started.set()

    async def run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        with self.scope:
            try:
                await self._app(scope, self._receive, self._send)
            except Exception as exc:  # noqa: BLE001  whatever the app raises is the app's failure, not this task's
                self.error = exc
                if self.asked:
                    self._enter(_Phase.FAILED, f"{type(exc).__name__}: {exc}")
                else:
                    _log.debug("%s has no lifespan: %r", self._server, exc)
            finally:  # also where an interrupt was raised: its owner waits, shielded
                self._enter(_Phase.STOPPED if self.phase is _Phase.UP else _Phase.UNSUPPORTED)
                self.ended.set()

    async def _receive(self) -> Message:
        await trio.lowlevel.checkpoint()
        if self._inbox:
            self.asked = True
            return self._inbox.pop()
        await self._stop.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        match message["type"]:
            case "lifespan.startup.complete":
                self._enter(_Phase.UP)
            case "lifespan.shutdown.complete":
                self._enter(_Phase.STOPPED)
            case "lifespan.startup.failed" | "lifespan.shutdown.failed":
                self._enter(_Phase.FAILED, message.get("message", "") or "no reason given")
            case other:
                # An app that does not look at its scope, and would wait here for a client that never comes.
                self._enter(_Phase.UNSUPPORTED)
                raise RuntimeError(f"{other!r} does not belong to a lifespan")

    async def start(self, bound_seconds: float) -> None:
        with trio.move_on_after(bound_seconds):
            await self.started.wait()
        if self.phase is _Phase.STARTING:
            raise ServerStartError(f"{self._server}: startup took over {bound_seconds:g} s", server=self._server)
        if self.phase is _Phase.FAILED:
            with trio.move_on_after(FAREWELL_SECONDS):
                await self.ended.wait()
            # What gym_trio itself raised says what is wrong; an app's message (Starlette's) is a whole traceback.
            why = str(self.error) if isinstance(self.error, GymError) else self.message
            raise ServerStartError(f"{self._server}: startup failed: {why}", server=self._server) from self.error

    async def stop(self, bound_seconds: float) -> str | None:
        """What went wrong, or None."""
        self._stop.set()
        with trio.CancelScope(deadline=trio.current_time() + bound_seconds, shield=True) as scope:
            await self.ended.wait()
        if scope.cancelled_caught:
            return f"shutdown took over {bound_seconds:g} s and was cut"
        return f"the lifespan failed: {self.message}" if self.phase is _Phase.FAILED else None


@asynccontextmanager
async def open_lifespan(
    app: App,
    *,
    server: str = "app",
    startup_bound_seconds: float = 600.0,
    shutdown_bound_seconds: float = 90.0,
) -> AsyncIterator[dict[str, Any]]:
    """Run the app's lifespan around the block, in a task of its own. Gives the lifespan's ``state``.

    An app without a lifespan (it raises or returns before it takes the startup event) is fine. ``server`` is the name
    that errors carry.

    **Cancellation**: shutdown runs also when the block is cancelled; only ``shutdown_bound_seconds`` cuts it.

    **Errors**: `ServerStartError` when startup fails. A shutdown that fails raises `GymError` from a block that ended
    well, and is logged otherwise, so that it never hides the block's own exception.
    """
    lifespan = _Lifespan(app, server)
    failure: BaseException | None = None
    trouble: str | None = None
    async with trio.open_nursery() as nursery:
        # What is raised in here is raised again outside, where no nursery wraps it into a group.
        try:
            nursery.start_soon(lifespan.run, name=f"lifespan of {server}")
            await lifespan.start(startup_bound_seconds)
            try:
                yield lifespan.state
            finally:
                trouble = await lifespan.stop(shutdown_bound_seconds)
        except BaseException as exc:  # noqa: BLE001  raised again below
            failure = exc
        lifespan.scope.cancel()
    if failure is not None:
        if trouble is not None:
            _log.error("%s: %s", server, trouble)
        raise failure
    if trouble is not None:
        raise GymError(f"{server}: {trouble}") from lifespan.error
