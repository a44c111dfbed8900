"""Where the time of one rollout went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from .. import telemetry

__all__ = ["StageTimes"]


class StageTimes:
    """Seconds per stage of one rollout: ``seed``, ``model``, ``tools``, ``verify``. Repeated stages add up.

    ``tool_calls`` has a record of each tool call, in the form of ``ng_agent_observations``. ``stage`` is the one that
    the rollout is in now, ``began_at`` when it began, on trio's clock.
    """

    __slots__ = ("_seconds", "began_at", "stage", "tool_calls")

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self.stage: str | None = None
        self.began_at: float | None = None
        self.tool_calls: list[dict[str, Any]] = []

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Count the block's time for ``stage``, however the block ends. It is a span of that name too."""
        started = trio.current_time()
        outer, self.stage = self.stage, stage
        try:
            with telemetry.span(stage):
                yield
        finally:
            self.stage = outer
            self._seconds[stage] = self._seconds.get(stage, 0.0) + trio.current_time() - started

    @contextmanager
    def tool_call(self, call_id: Any) -> Iterator[None]:
        """Record the block as the tool call of that id, however it ends."""
        record = {"call_id": call_id, "started_at": time.time(), "duration_ms": None, "status": "cancelled"}
        self.tool_calls.append(record)
        started = trio.current_time()
        try:
            yield
            record["status"] = "completed"
        except Exception:
            record["status"] = "failed"
            raise
        finally:
            record["duration_ms"] = round((trio.current_time() - started) * 1000, 3)

    def milliseconds(self) -> dict[str, float]:
        """The times as keys of ``ng_perf``: ``seed_ms`` and so on."""
        return {f"{stage}_ms": round(seconds * 1000, 3) for stage, seconds in self._seconds.items()}
