"""What gym_trio says beside the contract's keys: intervals within the range, pass@k of the reward, warnings."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._accumulate import SourceRows
from ._intervals import Interval, clustered_bootstrap, wilson
from ._numbers import LARGEST
from ._passk import ScoreColumn, left_out_of_pass_at_k, pass_at_k_of_task, reward_metrics
from ._rollout_keys import TaskGroups

REWARD = "reward"
UNIT = (0.0, 1.0)


def intervals(rows: SourceRows, groups: TaskGroups, seed: int) -> dict[str, dict[str, Any]]:
    """95 % intervals of ``mean/reward``, of every column within [0, 1], and of pass@k at 1 and the largest k.

    ``wilson_*`` (columns of zeros and ones) takes rollouts as independent; ``clustered_bootstrap_*`` resamples tasks.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in rows.numbers.names():
        values = rows.numbers.values(name, groups.positions)
        limits = _limits(values)
        if limits is None or (limits != UNIT and name != REWARD):
            continue
        clusters = (rows.numbers.few(name, group) for group in groups)
        bounds = _bounds("clustered_bootstrap", clustered_bootstrap(clusters, seed, limits))
        if all(value in (0, 1) for value in values):
            bounds |= _bounds("wilson", wilson(sum(values), len(values)))
            repeats = _repeat_bounds(rows, name, groups)
            bounds |= {"repeats": repeats} if repeats else {}
        if bounds:
            found[f"mean/{name}"] = bounds
    return found | _pass_intervals(rows.scores(REWARD, groups), seed)


def _limits(values: Sequence[float]) -> tuple[float, float] | None:
    """The range of a metric: [0, 1] for what lies within it, else what was observed."""
    if not values:
        return None
    low, high = min(values), max(values)
    return UNIT if low >= 0 and high <= 1 else (low, high)


def _repeat_bounds(rows: SourceRows, name: str, groups: TaskGroups) -> dict[str, dict[str, float]]:
    repeats = rows.keys.by_rollout(groups.positions)
    if len(repeats) < 2:
        return {}
    columns = {rollout: rows.numbers.values(name, positions) for rollout, positions in repeats.items()}
    return {str(r): _bounds("wilson", wilson(sum(values), len(values))) for r, values in columns.items() if values}


def _pass_intervals(rewards: ScoreColumn, seed: int) -> dict[str, dict[str, Any]]:
    largest = max((_known(task) for task in rewards), default=0)
    found = {}
    for k in sorted({1, largest} - {0}):
        shares = array("d", _shares(rewards, k))
        bounds = clustered_bootstrap(((share,) for share in shares), seed, _limits(shares))
        if bounds:
            scaled = Interval(100 * bounds.low, 100 * bounds.high)
            found[f"pass@{k}/accuracy"] = _bounds("clustered_bootstrap", scaled)
    return found


def _known(task: Sequence[float | None]) -> int:
    return len(task) - task.count(None)


def _shares(rewards: ScoreColumn, k: int) -> Iterator[float]:
    """pass@k of each task that has k values."""
    for task in rewards:
        values = [value for value in task if value is not None]
        if len(values) >= k:
            yield pass_at_k_of_task(values, k)


def _bounds(method: str, interval: Interval | None) -> dict[str, Any]:
    return {f"{method}_low_95": interval.low, f"{method}_high_95": interval.high} if interval else {}


def pass_metrics(rows: SourceRows, groups: TaskGroups) -> dict[str, Any]:
    """pass@k and its kin of the reward."""
    return reward_metrics(rows.scores(REWARD, groups))


def too_few_repeats(rows: SourceRows, groups: TaskGroups) -> list[dict[str, Any]]:
    """A warning where tasks with fewer than k repeats are left out of pass@k, which therefore covers other tasks."""
    left_out = left_out_of_pass_at_k(rows.scores(REWARD, groups))
    if not left_out:
        return []
    largest, count = max(left_out.items())
    return [
        {
            "kind": "too_few_repeats",
            "tasks": len(groups),
            "left_out_by_k": {str(k): n for k, n in left_out.items()},
            "message": f"pass@{largest} leaves out {count} of {len(groups)} tasks, which have fewer repeats; "
            f"pass@k for k ≥ {min(left_out)} does not cover the same tasks as pass@1",
        }
    ]


def incomplete_repeats(repeats: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A warning where repeats do not cover the same tasks, so that their spread is partly that of the tasks."""
    short = {str(row["_ng_rollout_index"]): row["missing_count"] for row in repeats if row["missing_count"]}
    if not short:
        return []
    return [
        {
            "kind": "repeats_incomplete",
            "missing_by_repeat": short,
            "message": f"{len(short)} of {len(repeats)} repeats lack tasks; statistics across repeats mix the spread "
            "of repeats with that of tasks",
        }
    ]


def without_reward(rows: SourceRows, positions: Sequence[int]) -> list[dict[str, Any]]:
    """A warning where some results have a reward and others have none, or one that nothing can be computed from."""
    rewarded = len(rows.numbers.values(REWARD, positions))
    lost = len(positions) - rewarded
    if not lost or not rewarded:
        return []
    what = f"{lost} of {len(positions)} results have no reward that is a number (of at most {LARGEST:g})"
    message = f"{what}; mean/reward is that of the others"
    return [{"kind": "without_reward", "rows": lost, "message": message}]


def duplicate_rows(rows: SourceRows) -> list[dict[str, Any]]:
    """A warning where several rows were of one rollout."""
    if not rows.duplicates:
        return []
    message = f"{rows.duplicates} rows are of rollouts that another row stands for; of each, the latest attempt counts"
    return [{"kind": "duplicate_rows", "rows": rows.duplicates, "message": message}]
