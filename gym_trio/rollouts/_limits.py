"""The bounds of a stream, and the margin that its dispatch budget keeps."""

from __future__ import annotations

import heapq
import math

import attrs

from ..errors import UsageError


def _count(instance: object, attribute: attrs.Attribute[int | None], value: int | None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{attribute.name} must be a positive integer or None, not {value!r}")


def _seconds(instance: object, attribute: attrs.Attribute[float | None], value: float | None) -> None:
    if value is not None:
        checked_seconds(attribute.name, value)


def checked_seconds(name: str, value: float) -> float:
    """``value`` if it is a duration: a real number, 0 or more, infinity included. Else `UsageError`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise UsageError(f"{name} must be a number of seconds, 0 or more, not {value!r}")
    return value


@attrs.frozen
class Limits:
    """Every bound is optional. **Errors**: `UsageError` names the one that is wrong."""

    max_concurrent: int | None = attrs.field(default=None, validator=_count)
    max_resident_tasks: int | None = attrs.field(default=None, validator=_count)
    rollout_timeout_seconds: float | None = attrs.field(default=None, validator=_seconds)
    dispatch_budget_seconds: float | None = attrs.field(default=None, validator=_seconds)
    drain_margin_seconds: float | None = attrs.field(default=None, validator=_seconds)


class RunningQuantile:
    """A quantile of all values seen so far, interpolated linearly between neighbours; O(log n) per value."""

    def __init__(self, quantile: float) -> None:
        self._quantile = quantile
        self._low: list[float] = []  # negated: a max-heap of the floor(q * (n - 1)) + 1 smallest values
        self._high: list[float] = []
        self.count = 0

    def add(self, value: float) -> None:
        self.count += 1
        heapq.heappush(self._high, -heapq.heappushpop(self._low, -value))
        if len(self._low) <= int(self._quantile * (self.count - 1)):
            heapq.heappush(self._low, -heapq.heappop(self._high))

    def value(self) -> float:
        position = self._quantile * (self.count - 1)
        below = -self._low[0]
        above = self._high[0] if self._high else below
        return below + (above - below) * (position - int(position))


class DispatchBudget:
    """Decides whether a rollout that started now could finish within the stream's dispatch budget.

    The margin is what a rollout is taken to need: as given, or the 75th percentile of the stream's own completed
    rollouts once there are five of them, and 0 before.
    """

    SAMPLES_BEFORE_ADAPTING = 5

    def __init__(self, budget_seconds: float | None, margin_seconds: float | None) -> None:
        self._budget = math.inf if budget_seconds is None else budget_seconds
        self._margin = margin_seconds
        self._seen = RunningQuantile(0.75) if budget_seconds is not None and margin_seconds is None else None

    def completed(self, elapsed_seconds: float) -> None:
        """A rollout of this stream completed."""
        if self._seen is not None:
            self._seen.add(elapsed_seconds)

    def margin(self) -> float:
        if self._seen is not None and self._seen.count >= self.SAMPLES_BEFORE_ADAPTING:
            return self._seen.value()
        return self._margin or 0.0

    def objection(self, elapsed_seconds: float) -> str | None:
        """Why a rollout must not start ``elapsed_seconds`` after the stream was opened; None if it may."""
        if elapsed_seconds + self.margin() <= self._budget:
            return None
        return (
            f"dispatch budget: {elapsed_seconds:.3g} s have passed and a rollout needs {self.margin():.3g} s, "
            f"which is more than {self._budget:g} s"
        )
