"""`RetryPolicy`: how often, and with what waits, something that did not reach the server is tried again."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import trio

__all__ = ["Attempts", "RetryPolicy"]


@attrs.frozen
class RetryPolicy:
    """Bounded in count and in time. ``RetryPolicy(attempts=1)`` never tries again."""

    attempts: int = 4  # the first one included
    first_wait_seconds: float = 0.1  # doubles with each further attempt
    max_wait_seconds: float = 2.0
    total_seconds: float = 30.0  # no further attempt begins after this long

    def waits(self) -> Iterator[float]:
        """The wait before each further attempt."""
        wait = self.first_wait_seconds
        for _ in range(self.attempts - 1):
            yield min(wait, self.max_wait_seconds)
            wait *= 2


class Attempts:
    """The attempts of one request under a policy."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._waits = policy.waits()
        self._last_start = trio.current_time() + policy.total_seconds

    async def wait(self, error: Exception) -> None:
        """Wait for the next attempt. **Errors**: raises ``error`` when the policy allows no other."""
        seconds = next(self._waits, None)
        if seconds is None or trio.current_time() + seconds > self._last_start:
            raise error
        await trio.sleep(seconds)
