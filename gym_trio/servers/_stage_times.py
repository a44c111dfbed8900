"""Where the time of one rollout went."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import trio

from .. import telemetry

__all__ = ["StageTimes"]


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

    def measure(self, stage: str) -> AbstractContextManager[None]:
        """Count the block's time for ``stage``, however the block ends. It is a span of that name too."""
        measured = _Measured()
        measured.times, measured.stage = self, stage
        measured.span = telemetry.span(stage) if telemetry.is_used() else None
        return measured

    def tool_call(self, call_id: Any) -> AbstractContextManager[None]:
        """Record the block as the tool call of that id, however it ends."""
        return _ToolCall(self, call_id)

    def milliseconds(self) -> dict[str, float]:
        """The times as keys of ``ng_perf``: ``seed_ms`` and so on."""
        return {f"{stage}_ms": _milliseconds(seconds) for stage, seconds in self.seconds.items()}


class _Measured:
    """A block in one stage. A class, because a rollout waits for its model inside of one: it is two objects of many.

    Its maker fills it in: an ``__init__`` would cost as much as entering it does.
    """

    __slots__ = ("_outer", "_started", "span", "stage", "times")

    times: StageTimes
    stage: str
    span: AbstractContextManager[None] | None

    def __enter__(self) -> None:
        times = self.times
        self._started = times.now()
        self._outer, times.stage = times.stage, self.stage
        if self.span is not None:
            self.span.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        times = self.times
        try:
            if self.span is not None:
                self.span.__exit__(kind, error, traceback)
        finally:
            times.stage = self._outer
            times.seconds[self.stage] = times.seconds.get(self.stage, 0.0) + (times.now() - self._started)


class _ToolCall:
    """The block of one tool call."""

    __slots__ = ("_record", "_started", "_times")

    def __init__(self, times: StageTimes, call_id: Any) -> None:
        self._times = times
        self._record = {"call_id": call_id, "started_at": time.time(), "duration_ms": None, "status": "cancelled"}

    def __enter__(self) -> None:
        self._times.tool_calls.append(self._record)
        self._started = self._times.now()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self._record["status"] = "completed" if kind is None else "failed"
        self._record["duration_ms"] = _milliseconds(self._times.now() - self._started)


def _milliseconds(seconds: float) -> float:
    """To three places, as by ``round``, which takes three times as long."""
    return int(seconds * 1e6 + 0.5) / 1000
