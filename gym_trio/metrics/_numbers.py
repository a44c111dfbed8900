"""Descriptive statistics on plain lists of floats, and the quantiles of Student's t.

Everything here takes numbers of at most `LARGEST`; `as_number` is the one gate through which a value from a row
becomes one.
Equal values give exactly that value as their mean and exactly zero as their deviation, whatever the rounding.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import attrs

CONFIDENCE = 0.95
# The squares of larger numbers, or sums of these over a run, are beyond a float. Nothing is measured in such numbers.
LARGEST = 1e140
# From here on the expansion of the t quantile in powers of 1/df is more exact than the root finder needs to be.
_LARGE_DF = 1000.0


def as_number(value: Any) -> float | None:
    """``value`` as a float, a bool as 0 or 1; None for everything that is not a number of at most `LARGEST`."""
    if type(value) is float:
        return value if -LARGEST <= value <= LARGEST else None
    if not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        return None
    return float(value)


@attrs.frozen
class Description:
    """The five statistics of a column. ``std`` has one degree of freedom less than values; None for one value."""

    mean: float
    max: float
    min: float
    median: float
    std: float | None


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of at least one value."""
    low, high = min(values), max(values)
    if low == high:
        return low
    return min(max(math.fsum(values) / len(values), low), high)


def sample_std(values: Sequence[float]) -> float:
    """The deviation with n − 1 in the denominator; 0 for a single value."""
    return _std(values, mean(values), 1)


def population_std(values: Sequence[float]) -> float:
    """The deviation with n in the denominator."""
    return _std(values, mean(values), 0)


def _std(values: Sequence[float], center: float, lost: int) -> float:
    if len(values) <= 1 or min(values) == max(values):
        return 0.0
    return math.sqrt(math.fsum((value - center) ** 2 for value in values) / (len(values) - lost))


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile by linear interpolation between the closest ranks; ``values`` need not be sorted."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return low + (high - low) * (place - below)


def describe(values: Sequence[float]) -> Description:
    """The five statistics of at least one value."""
    if len(values) == 1:
        (only,) = values
        return Description(only, only, only, only, None)
    center = mean(values)
    return Description(center, max(values), min(values), statistics.median(values), _std(values, center, 1))


@functools.lru_cache(maxsize=4096)
def t_quantile(df: float, confidence: float = CONFIDENCE) -> float:
    """The two-sided critical value of Student's t: P(|T| ≤ result) = ``confidence`` with ``df`` > 0 degrees of freedom.

    **Errors**: `ValueError` for ``df`` that is not positive.
    """
    if not df > 0:
        raise ValueError(f"degrees of freedom must be positive, not {df}")
    normal = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    return _expanded_t(df, normal) if df >= _LARGE_DF else _solved_t(df, confidence, normal)


def _expanded_t(df: float, z: float) -> float:
    """The t quantile as a series in 1/df around the normal one; the first term left out is of order df^-4."""
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / df + second / df**2 + third / df**3


def _solved_t(df: float, confidence: float, normal: float) -> float:
    """P(|T| > t) is the regularized incomplete beta function at x = df / (df + t²); solve for x between bounds.

    The result is bracketed: t is at least the normal quantile, so x is at most df / (df + normal²).
    """
    import mpmath

    with mpmath.workdps(30):
        tail = 1 - mpmath.mpf(str(confidence))
        half = mpmath.mpf(df) / 2

        def excess(x: Any) -> Any:
            return mpmath.betainc(half, 0.5, 0, x, regularized=True) - tail

        root = mpmath.findroot(excess, (mpmath.mpf(10) ** -300, df / (df + normal**2)), solver="anderson", tol=1e-25)
        return float(mpmath.sqrt(df * (1 - root) / root))


def t_interval(center: float, standard_error: float, df: float) -> tuple[float, float] | None:
    """The 95 % t-interval; a point when the standard error is 0, None without a degree of freedom."""
    if not df > 0:
        return None
    reach = t_quantile(df) * standard_error if standard_error else 0.0
    return center - reach, center + reach
