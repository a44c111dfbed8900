"""The budget of one model call: how often and how long it is tried, and how long to wait in between."""

from __future__ import annotations

import random

import attrs

__all__ = ["CallBudget", "RetrySettings"]


@attrs.frozen
class RetrySettings:
    """``max_attempts`` counts the first; no attempt begins later than ``budget_seconds`` after the first has begun.

    Time spent in the queue of an endpoint is not counted: it is our own doing.
    """

    max_attempts: int = 6
    budget_seconds: float = 300
    first_wait_seconds: float = 0.5
    max_wait_seconds: float = 30


class CallBudget:
    """Says for one call whether there is another attempt, and after which wait. Does not wait itself."""

    def __init__(self, settings: RetrySettings, started_at: float, chance: random.Random) -> None:
        self._settings = settings
        self._last_start = started_at + settings.budget_seconds
        self._chance = chance
        self.attempts = 0

    def queued(self, seconds: float) -> None:
        """The call has waited this long for a place at an endpoint."""
        self._last_start += seconds

    def next_wait(self, now: float, advised_seconds: float | None = None) -> float | None:
        """Seconds until the next attempt after a failed one, or ``None`` when the budget is spent.

        The wait doubles with each attempt, less up to half of it by chance; a provider's advice is a lower bound, to
        which chance adds up to a tenth, so that those who were told the same do not come back together.
        """
        self.attempts += 1
        if self.attempts >= self._settings.max_attempts:
            return None
        step = min(self._settings.max_wait_seconds, self._settings.first_wait_seconds * 2 ** (self.attempts - 1))
        wait = step * self._chance.uniform(0.5, 1)
        if advised_seconds is not None:
            wait = max(wait, advised_seconds * self._chance.uniform(1, 1.1))
        return wait if now + wait <= self._last_start else None
