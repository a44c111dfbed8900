"""Where the time of one rollout went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
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

    def measure(self, stage: str) -> AbstractContextManager[None]:
        """Count the block's time for ``stage``, however the block ends. It is a span of that name too."""
        return _Measured(self, stage)

    def add(self, stage: str, seconds: float) -> None:
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

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


class _Measured:
    """A block in one stage. A class, because a rollout waits for its model inside of one: it is two objects of many."""

    __slots__ = ("_outer", "_span", "_stage", "_started", "_times")

    def __init__(self, times: StageTimes, stage: str) -> None:
        self._times = times
        self._stage = stage
        self._span = telemetry.span(stage)

    def __enter__(self) -> None:
        times = self._times
        self._started = trio.current_time()
        self._outer, times.stage = times.stage, self._stage
        self._span.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._span.__exit__(kind, error, traceback)
        finally:
            self._times.stage = self._outer
            self._times.add(self._stage, trio.current_time() - self._started)
