"""Which metric names are point estimates, and which are statistics over one."""

from __future__ import annotations

from ._passk import STATISTIC_SUFFIXES
from ._rows import ATTEMPT_INDEX, ROLLOUT_INDEX, TASK_INDEX

ACROSS_REPEATS = "_across_repeats/"

_STATISTIC_PREFIXES = tuple(
    f"{name}/"
    for name in ("max", "min", "median", "std", "sem", "se", "p25", "p75", "ci_low_95", "ci_high_95", "histogram")
)
_STATISTIC_ENDINGS = (
    *(f"/{name}" for name in ("max", "min", "median", "p5", "p25", "p75", "p95", "ci_low_95", "ci_high_95")),
    *(f"/{name}" for name in ("ci_lower", "ci_upper", ATTEMPT_INDEX, *STATISTIC_SUFFIXES)),
    *("_ci_lower", "_ci_upper", "_ci95_lower", "_ci95_upper"),
)
_COUNTS = frozenset(
    {TASK_INDEX, ROLLOUT_INDEX, ATTEMPT_INDEX, "sample_count", "missing_count", "num_repeats", "token_usage_version"}
)


def is_primary_metric(name: str) -> bool:
    """Whether ``name`` is an estimate that can be compared between runs and summarized across repeats."""
    return (
        name not in _COUNTS
        and not name.startswith(_STATISTIC_PREFIXES)
        and not name.endswith(_STATISTIC_ENDINGS)
        and ACROSS_REPEATS not in name
    )
