"""Where the time of one rollout went."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

import trio

from .. import telemetry

__all__ = ["StageTimes"]

T = TypeVar("T")


class StageTimes:
    """``seconds`` per stage of one rollout: ``seed``, ``model``, ``tools``, ``verify``. Repeated stages add up.

    ``tool_calls`` has a record of each tool call, in the form of ``ng_agent_observations``. ``stage`` is the one that
    the rollout is in now, ``began_at`` when it began, on trio's clock, which ``now()`` reads.
    """

    __slots__ = ("began_at", "now", "seconds", "stage", "tool_calls")

    def __init__(self) -> None:
        self.now = trio.lowlevel.current_clock().current_time  # `trio.current_time` looks it up again, in three calls
        self.seconds: dict[str, float] = {}
        self.stage: str | None = None
        self.began_at: float | None = None
        self.tool_calls: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Count the block's time for ``stage``, however the block ends. It is a span of that name too."""
        started, outer, self.stage = self.now(), self.stage, stage
        try:
            with telemetry.span(stage):
                yield
        finally:
            self._leave(stage, outer, started)

    async def measured(self, stage: str, work: Awaitable[T]) -> T:
        """What ``work`` comes to. Its time is counted as by `measure`, for half of what a block costs."""
        started, outer, self.stage = self.now(), self.stage, stage
        try:
            if not telemetry.is_used():
                return await work
            with telemetry.span(stage):
                return await work
        finally:
            self._leave(stage, outer, started)

    def _leave(self, stage: str, outer: str | None, started: float) -> None:
        self.stage = outer
        self.seconds[stage] = self.seconds.get(stage, 0.0) + (self.now() - started)

    async def tool_call(self, call_id: Any, work: Awaitable[T]) -> T:
        """What ``work`` comes to, recorded as the tool call of that id, however it ends."""
        record = {"call_id": call_id, "started_at": time.time(), "duration_ms": None, "status": "cancelled"}
        self.tool_calls.append(record)
        started = self.now()
        try:
            done = await work
            record["status"] = "completed"
            return done
        except Exception:
            record["status"] = "failed"
            raise
        finally:
            record["duration_ms"] = _milliseconds(self.now() - started)

    def milliseconds(self) -> dict[str, float]:
        """The times as keys of ``ng_perf``: ``seed_ms`` and so on."""
        return {f"{stage}_ms": _milliseconds(seconds) for stage, seconds in self.seconds.items()}


def _milliseconds(seconds: float) -> float:
    """To three places, as by ``round``, which takes three times as long."""
    return int(seconds * 1e6 + 0.5) / 1000
