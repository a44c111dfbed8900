"""Where the time of a run went. Nothing is kept of a rollout but counts, so a million cost as much as ten."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from ..metrics import as_number
from ..rollouts import Timing
from ._keys import ROLLOUT, TASK

STAGES = ("queue", "seed", "model", "tools", "verify", "rollout")
_PER_DECADE = 100  # buckets per factor of ten: quantiles are right to 1.2 %
_SLOWEST = 10


@attrs.define
class Durations:
    """Many durations: their count, sum, extremes, and quantiles from logarithmic buckets."""

    count: int = 0
    total: float = 0.0
    longest: float = 0.0
    _buckets: Counter[int] = attrs.field(factory=Counter)

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        self._buckets[math.floor(math.log10(max(seconds, 1e-6)) * _PER_DECADE)] += 1

    def quantile(self, share: float) -> float:
        """The duration that this share of all does not exceed, to within a bucket."""
        rank = share * (self.count - 1)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen > rank:
                return float(min(10 ** ((bucket + 0.5) / _PER_DECADE), self.longest))
        return 0.0

    def summary(self) -> dict[str, Any]:
        if not self.count:
            return {"count": 0}
        quantiles = {f"p{int(share * 100)}_seconds": self.quantile(share) for share in (0.5, 0.9, 0.99)}
        return {
            "count": self.count,
            "total_seconds": self.total,
            "mean_seconds": self.total / self.count,
            **quantiles,
            "max_seconds": self.longest,
        }


class TimingReport:
    """Gathers the timing of each rollout, in all and by stage as far as its result tells (``ng_perf.<stage>_ms``)."""

    def __init__(self) -> None:
        self._stages = {stage: Durations() for stage in STAGES}
        self._slowest: list[tuple[float, int, int, int]] = []

    def add(self, row: Mapping[str, Any], timing: Timing) -> None:
        """Note one rollout by its written row."""
        self._stages["queue"].add(timing.started_at - timing.pulled_at)
        self._stages["rollout"].add(timing.elapsed_seconds)
        perf = row.get("ng_perf")
        for stage in ("seed", "model", "tools", "verify"):
            spent = as_number(perf.get(f"{stage}_ms")) if isinstance(perf, Mapping) else None
            if spent is not None and spent >= 0:
                self._stages[stage].add(spent / 1000)
        # The counter keeps the order total where durations are equal.
        entry = (timing.elapsed_seconds, -self._stages["rollout"].count, row.get(TASK, -1), row.get(ROLLOUT, -1))
        (heapq.heappush if len(self._slowest) < _SLOWEST else heapq.heappushpop)(self._slowest, entry)

    def summary(self) -> dict[str, Any]:
        """The report as it is written; stages that no result told of are left out."""
        return {
            "stages": {stage: spent.summary() for stage, spent in self._stages.items() if spent.count},
            "slowest": [
                {TASK: task, ROLLOUT: rollout, "seconds": seconds}
                for seconds, _, task, rollout in sorted(self._slowest, reverse=True)
            ],
        }
