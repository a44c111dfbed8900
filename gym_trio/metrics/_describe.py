"""The contract's statistics of an agent, of each task and of each repeat, from the columns of its rows."""

from __future__ import annotations

import functools
import math
import statistics
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from ._accumulate import SourceRows
from ._names import ACROSS_REPEATS, is_primary_metric
from ._numbers import describe, mean, quantile, sample_std, t_interval
from ._rows import ROLLOUT_INDEX, TASK_INDEX, TaskIndex


def describe_columns(rows: SourceRows, positions: Sequence[int]) -> dict[str, float]:
    """``mean/ max/ min/ median/ std/`` of every column that has a value at ``positions``."""
    metrics: dict[str, float] = {}
    for name in rows.numbers.names():
        metrics |= _described(name, rows.numbers.values(name, positions))
    return metrics


def _described(name: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    found = describe(values)
    return dict(
        zip(_labels(name), (found.mean, found.max, found.min, found.median, found.std or 0.0), strict=True),
    )


@functools.lru_cache(maxsize=1024)
def _labels(name: str) -> tuple[str, ...]:
    return tuple(f"{statistic}/{name}" for statistic in ("mean", "max", "min", "median", "std"))


def group_row(
    rows: SourceRows, task: TaskIndex, group: Sequence[int], *, expected: int, sample: Mapping[str, Any]
) -> dict[str, Any]:
    """One task's row of ``group_level_metrics``; ``group`` holds its positions in the order of the repeats."""
    row: dict[str, Any] = {TASK_INDEX: task}
    for name in rows.numbers.names():
        row |= _described(name, rows.numbers.few(name, group))
    return row | {
        "sample": dict(sample),
        "num_rollouts": len(group),
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - len(group),
        "reward_profile_completion_pct": 100.0 * len(group) / expected if expected else 100.0,
        "rollout_infos": list(rows.rollout_infos(group)),
    }


def repeat_rows(rows: SourceRows, positions: array[int]) -> list[dict[str, Any]]:
    """``repeat_level_metrics``: each repeat over all its tasks; nothing unless there are at least two repeats."""
    repeats = rows.keys.by_rollout(positions)
    if len(repeats) < 2:
        return []
    tasks = len(rows.by_task(positions))
    return [_repeat_row(rows, rollout, group, tasks) for rollout, group in repeats.items()]


def _repeat_row(rows: SourceRows, rollout: int, group: Sequence[int], tasks: int) -> dict[str, Any]:
    present = len(group)  # a task has each repeat once
    row: dict[str, Any] = {ROLLOUT_INDEX: rollout, "sample_count": present, "missing_count": tasks - present}
    for name in sorted(rows.numbers.names()):
        values = sorted(rows.numbers.values(name, group))
        if not values:
            continue
        found = describe(values)
        std = found.std or 0.0
        sem = std / math.sqrt(len(values))
        row |= {
            f"mean/{name}": found.mean,
            f"median/{name}": found.median,
            f"std/{name}": std,
            f"sem/{name}": sem,
            f"min/{name}": found.min,
            f"max/{name}": found.max,
            f"p25/{name}": quantile(values, 0.25),
            f"p75/{name}": quantile(values, 0.75),
        }
        bounds = t_interval(found.mean, sem, len(values) - 1)
        if bounds:
            row[f"ci_low_95/{name}"], row[f"ci_high_95/{name}"] = bounds
    return row


def across_repeats(repeats: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Statistics over the repeats' own estimates, one observation for each repeat that has the metric."""
    names = dict.fromkeys(name for row in repeats for name in row if is_primary_metric(name))
    metrics: dict[str, float] = {}
    for name in names:
        values = [row[name] for row in repeats if name in row]
        center, std = mean(values), sample_std(values)
        error = std / math.sqrt(len(values))
        found = {
            "mean": center,
            "median": statistics.median(values),
            "std": std,
            "min": min(values),
            "max": max(values),
            "se": error,
        }
        bounds = t_interval(center, error, len(values) - 1)
        if bounds:
            found["ci_low_95"], found["ci_high_95"] = bounds
        metrics |= {f"{statistic}{ACROSS_REPEATS}{name}": value for statistic, value in found.items()}
    return metrics
