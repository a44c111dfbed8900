"""`RunningReward`: what a run can say of itself while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ._numbers import as_number
from ._rows import MASK


@attrs.frozen
class LiveStatistics:
    """A snapshot. ``mean_reward`` is over the measured rollouts, None before the first."""

    completed: int
    failed: int
    masked: int
    mean_reward: float | None

    def __str__(self) -> str:
        reward = "no reward yet" if self.mean_reward is None else f"mean reward {self.mean_reward:.4f}"
        return f"{self.completed} completed, {self.failed} failed, {self.masked} masked, {reward}"


class RunningReward:
    """Counts results and failures as they come; failures and masked rows are not in the mean."""

    def __init__(self) -> None:
        self._completed = self._failed = self._masked = self._measured = 0
        self._mean = 0.0

    def __repr__(self) -> str:
        return f"<RunningReward {self.statistics()}>"

    def add(self, row: Mapping[str, Any]) -> None:
        """An output row."""
        self._completed += 1
        reward = as_number(row.get("reward"))
        if row.get(MASK):
            self._masked += 1
        elif reward is not None:
            self._measured += 1
            self._mean += (reward - self._mean) / self._measured

    def add_failure(self) -> None:
        """A rollout that failed."""
        self._failed += 1

    def statistics(self) -> LiveStatistics:
        """The counts as they stand."""
        return LiveStatistics(self._completed, self._failed, self._masked, self._mean if self._measured else None)
