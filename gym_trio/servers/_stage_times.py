"""Where the time of one rollout went."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from .. import telemetry

__all__ = ["StageTimes"]


class StageTimes:
    """Seconds per stage of one rollout: ``seed``, ``model``, ``tools``, ``verify``. Repeated stages add up."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Count the block's time for ``stage``, however the block ends. It is a span of that name too."""
        started = trio.current_time()
        try:
            with telemetry.span(stage):
                yield
        finally:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + trio.current_time() - started

    def milliseconds(self) -> dict[str, float]:
        """The times as keys of ``ng_perf``: ``seed_ms`` and so on."""
        return {f"{stage}_ms": round(seconds * 1000, 3) for stage, seconds in self._seconds.items()}
