"""`RetryPolicy`: how often, and with what waits, something is tried again."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import trio

from ._validators import at_least_one, not_negative

__all__ = ["Attempts", "RetryPolicy"]


@attrs.frozen
class RetryPolicy:
    """Bounded in count and in time. ``RetryPolicy(attempts=1)`` never tries again."""

    attempts: int = attrs.field(default=4, validator=at_least_one)
    """The first one included."""
    first_wait_seconds: float = attrs.field(default=0.1, validator=not_negative)
    """Doubles with each further attempt."""
    max_wait_seconds: float = attrs.field(default=2.0, validator=not_negative)
    total_seconds: float = attrs.field(default=30.0, validator=not_negative)
    """No attempt begins later than this after the first failure."""

    def waits(self) -> Iterator[float]:
        """The wait before each further attempt."""
        wait = self.first_wait_seconds
        for _ in range(self.attempts - 1):
            yield min(wait, self.max_wait_seconds)
            wait *= 2


class Attempts:
    """The further attempts of one request. Made when the first has failed."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._waits = policy.waits()
        self._last_start = trio.current_time() + policy.total_seconds

    def next_wait(self) -> float | None:
        """How long to wait for the next attempt, in seconds; None when there is none left."""
        seconds = next(self._waits, None)
        if seconds is None or trio.current_time() + seconds > self._last_start:
            return None
        return seconds
