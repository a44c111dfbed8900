"""Intervals that stay within the metric's range, and intervals for the difference of two runs.

Resampling is by task, since the repeats of one task are not independent of each other, and is the same every time: a
`random.Random` of the caller's seed. Beyond `MOST_DRAWN` tasks each resample draws that many, and the deviations
shrink by the square root of the ratio, so that the cost has a bound. With few tasks resampling alone gives too narrow
an interval; the deviations grow by the ratio of Student's quantile to the normal one and by √(n / (n − 1)).
"""

from __future__ import annotations

import math
import random
import statistics
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from ._numbers import CONFIDENCE, mean, quantile, t_quantile

T = TypeVar("T")

RESAMPLES = 1000
MOST_DRAWN = 2000


@attrs.frozen
class Interval:
    """Two bounds at 95 %."""

    low: float
    high: float

    def clipped(self, low: float, high: float) -> Interval:
        """The part within a range."""
        return Interval(min(max(self.low, low), high), min(max(self.high, low), high))


@attrs.frozen
class PairedDifference:
    """What resampling the common tasks of two runs says: the mean difference, its interval, and a two-sided p-value."""

    difference: float
    interval: Interval
    p_value: float
    tasks: int


def wilson(successes: float, total: int) -> Interval:
    """The score interval of a proportion, with every trial taken as independent. ``total`` is at least 1."""
    z = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    share = successes / total
    center = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    # At 0 and at all successes the bound is exactly the end of the range, which rounding may miss.
    low = 0.0 if successes <= 0 else max(0.0, center - reach)
    return Interval(low, 1.0 if successes >= total else min(1.0, center + reach))


def clustered_bootstrap(
    clusters: Iterable[Sequence[float]], seed: int = 0, limits: tuple[float, float] | None = None
) -> Interval | None:
    """The interval of the mean over all values when whole clusters (tasks) are drawn with replacement.

    It stays within ``limits``, by default the smallest and the largest value. None with fewer than two clusters that
    have values: one task says nothing about how tasks differ.
    """
    totals, counts = array("d"), array("q")
    least, most = math.inf, -math.inf
    for values in clusters:
        if values:
            totals.append(math.fsum(values))
            counts.append(len(values))
            least, most = min(least, min(values)), max(most, max(values))
    if len(totals) < 2:
        return None
    if least == most:
        # Exactly the value, which sums of it divided again may miss.
        return Interval(least, least)

    def ratio(drawn: Sequence[int]) -> float:
        return sum(map(totals.__getitem__, drawn)) / sum(map(counts.__getitem__, drawn))

    estimate = math.fsum(totals) / sum(counts)
    low, high = limits or (least, most)
    draws = _resampled(range(len(totals)), ratio, seed)
    return _percentiles(draws, estimate, len(totals)).clipped(low, high)


def _plain_mean(drawn: Sequence[float]) -> float:
    return sum(drawn) / len(drawn)


def _resampled(population: Sequence[T], statistic: Callable[[Sequence[T]], float], seed: int) -> list[float]:
    source = random.Random(seed)
    size = min(len(population), MOST_DRAWN)
    return [statistic(source.choices(population, k=size)) for _ in range(RESAMPLES)]


def _scale(size: int) -> float:
    """By how much the deviation of a resample from the estimate is to grow for ``size`` ≥ 2 tasks."""
    normal = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    few = t_quantile(size - 1) / normal * math.sqrt(size / (size - 1))
    return few * math.sqrt(min(1.0, MOST_DRAWN / size))


def _percentiles(draws: Sequence[float], estimate: float, size: int) -> Interval:
    tail, scale = (1 - CONFIDENCE) / 2, _scale(size)
    # The estimate is within its own interval, however skewed the draws are.
    low, high = min(quantile(draws, tail), estimate), max(quantile(draws, 1 - tail), estimate)
    return Interval(estimate + (low - estimate) * scale, estimate + (high - estimate) * scale)


def paired_bootstrap(differences: Sequence[float], seed: int = 0) -> PairedDifference | None:
    """Resample the per-task differences of two runs; None with fewer than two common tasks.

    The p-value is twice the smaller share of resamples on one side of zero, never below 1 / resamples, nor below
    2^(1 − tasks), the least that so many tasks can show when each could as well have gone the other way.
    """
    if len(differences) < 2:
        return None
    estimate = mean(differences)
    draws = _resampled(differences, _plain_mean, seed)
    interval = _percentiles(draws, estimate, len(differences))
    zero = estimate - estimate / _scale(len(differences))
    below = sum(draw <= zero for draw in draws) / len(draws)
    above = sum(draw >= zero for draw in draws) / len(draws)
    p_value = min(1.0, max(2 * min(below, above), 1 / len(draws), 2.0 ** (1 - len(differences))))
    return PairedDifference(estimate, interval, p_value, len(differences))


def welch(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """The 95 % interval of mean(second) − mean(first) for independent samples of unequal variance.

    None when either has fewer than two values; a point when neither varies.
    """
    if len(first) < 2 or len(second) < 2:
        return None
    difference = mean(second) - mean(first)
    parts = [statistics.variance(sample) / len(sample) if len(set(sample)) > 1 else 0.0 for sample in (first, second)]
    total = sum(parts)
    if total == 0:
        return Interval(difference, difference)
    df = total**2 / sum(part**2 / (len(sample) - 1) for part, sample in zip(parts, (first, second), strict=True))
    reach = t_quantile(df) * math.sqrt(total)
    return Interval(difference - reach, difference + reach)
