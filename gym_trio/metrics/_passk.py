"""pass@k, pass@1[avg-of-k] and majority@k over tasks that were tried several times.

``tasks[i]`` holds the rollouts of task i in the order of their repeats; all results are percentages. A task with fewer
than k values is left out of pass@k and still counts in avg-of-k and majority@k; `left_out_of_pass_at_k` counts them.
"""

from __future__ import annotations

import itertools
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs

from ._numbers import as_number, sample_std

Rollout = Mapping[str, Any]
ScoreFunction = Callable[[Rollout], Mapping[str, Any]]

STD_DEV_ACROSS_RUNS = "std_dev_across_runs"
STD_ERR_ACROSS_RUNS = "std_err_across_runs"
AVG_SAMPLE_STD_DEV = "avg_sample_std_dev"
STATISTIC_SUFFIXES = (STD_DEV_ACROSS_RUNS, STD_ERR_ACROSS_RUNS, AVG_SAMPLE_STD_DEV)
NO_ANSWER = "no_answer"


class ScoreColumn(Protocol):
    """One score of each rollout of each task, gone through as often as needed; None where a rollout has no score."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Sequence[float | None]]: ...


@attrs.frozen
class _Scored:
    columns: Mapping[str, ScoreColumn]
    answers: list[list[Any]] | None
    max_k: int


def _reward_as_accuracy(rollout: Rollout) -> Mapping[str, Any]:
    return {"accuracy": rollout.get("reward")}


def _score(tasks: Sequence[Sequence[Rollout]], score_fn: ScoreFunction | None, answer_key: str | None) -> _Scored:
    score_of = score_fn or _reward_as_accuracy
    scores: list[list[dict[str, float]]] = []
    for rollouts in tasks:
        scores.append([{name: _number(value) for name, value in score_of(r).items() if _is(value)} for r in rollouts])
        if answer_key is not None:
            for rollout, found in zip(rollouts, scores[-1], strict=True):
                found[NO_ANSWER] = 1 if rollout.get(answer_key) is None else 0
    names = sorted({name for task in scores for found in task for name in found})
    return _Scored(
        columns={name: [[found.get(name) for found in task] for task in scores] for name in names},
        answers=None if answer_key is None else [[_hashable(r.get(answer_key)) for r in task] for task in tasks],
        max_k=max(map(len, tasks), default=0),
    )


def _is(value: Any) -> bool:
    return as_number(value) is not None


def _number(value: Any) -> float:
    return int(value) if isinstance(value, bool) else value


def _hashable(answer: Any) -> Any:
    try:
        hash(answer)
    except TypeError:
        return repr(answer)
    return answer


def pass_majority_metrics(
    tasks: Sequence[Sequence[Rollout]],
    score_fn: ScoreFunction | None = None,
    answer_key: str | None = None,
) -> dict[str, Any]:
    """All metrics over k of ``tasks``, for every k up to the largest number of rollouts of a task.

    ``score_fn`` names the scores of a rollout (default: ``accuracy``, its reward). With ``answer_key`` there are also
    majority@k, a vote over pairs of that answer and the score, and the score ``no_answer``.
    """
    scored = _score(tasks, score_fn, answer_key)
    return _metrics(scored) if tasks else {}


def reward_metrics(rewards: ScoreColumn) -> dict[str, Any]:
    """`pass_majority_metrics` for the one score ``accuracy``, from numbers alone."""
    return _metrics(_Scored({"accuracy": rewards}, None, max(map(len, rewards), default=0))) if len(rewards) else {}


def _metrics(scored: _Scored) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    aggregate: dict[str, list[float]] = {}
    for name, column in scored.columns.items():
        for k, value in enumerate(pass_at_k(column, scored.max_k), 1):
            _put(metrics, f"pass@{k}/{name}", value)
        for k, value in enumerate(average_of_k(column, scored.max_k), 1):
            _put(metrics, f"pass@1[avg-of-{k}]/{name}", value)
        if scored.answers is not None:
            for k, value in enumerate(majority_at_k(column, scored.answers, scored.max_k), 1):
                _put(metrics, f"majority@{k}/{name}", value)
        runs = per_run_averages(column, scored.max_k)
        if runs:
            aggregate[name] = runs
        metrics |= _across_runs(name, runs, scored.max_k)
    return metrics | {"per_sample_aggregate": aggregate}


def _put(metrics: dict[str, Any], name: str, value: float | None) -> None:
    if value is not None:
        metrics[name] = 100.0 * value


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def pass_at_k(column: ScoreColumn, max_k: int) -> list[float | None]:
    """For k = 1 … max_k the mean over the tasks with at least k values of the chance that one of k succeeds.

    For a task of n values, all 0 or 1, of which b are 0, that is 1 − C(b,k)/C(n,k); for any other the largest of its
    first k values. None where no task has k values.
    """
    chances, maxima = _by_kind(column, max_k)
    result: list[float | None] = []
    misses = dict.fromkeys(chances, 1.0)
    for k in range(1, max_k + 1):
        terms: list[float] = []
        tasks = 0
        for (total, bad), count in chances.items():
            if total >= k:
                # C(b,k)/C(n,k) from C(b,k-1)/C(n,k-1); it stays 0 once k exceeds b.
                misses[total, bad] *= (bad - k + 1) / (total - k + 1)
                terms.append(count * (1.0 - misses[total, bad]))
                tasks += count
        best = maxima[k - 1]
        tasks += len(best)
        result.append((math.fsum(terms) + math.fsum(best)) / tasks if tasks else None)
    return result


def _by_kind(column: ScoreColumn, max_k: int) -> tuple[Counter[tuple[int, int]], list[array[float]]]:
    """Binary tasks as counts of (values, zeros among them); of the others, for each k, the largest of the first k."""
    chances: Counter[tuple[int, int]] = Counter()
    maxima = [array("d") for _ in range(max_k)]
    for task in column:
        values = [value for value in task if value is not None]
        if not values:
            continue
        if all(value in (0, 1) for value in values):
            chances[len(values), values.count(0)] += 1
        else:
            for largest, best in zip(maxima, itertools.accumulate(values, max), strict=False):
                largest.append(best)
    return chances, maxima


def pass_at_k_of_task(values: Sequence[float], k: int) -> float:
    """`pass_at_k` of one task that has at least k values."""
    if any(value not in (0, 1) for value in values):
        return float(max(values[:k]))
    total, bad = len(values), values.count(0)
    missed = 1.0
    for drawn in range(k):
        missed *= (bad - drawn) / (total - drawn)
    return 1.0 - missed


def average_of_k(column: ScoreColumn, max_k: int) -> list[float | None]:
    """For k = 1 … max_k the mean over tasks of the mean of each task's first k rollouts, those that have the score."""
    averages = [array("d") for _ in range(max_k)]
    for task in column:
        total, count = 0.0, 0
        for k in range(max_k):
            value = task[k] if k < len(task) else None
            if value is not None:
                total, count = total + value, count + 1
            if count:
                averages[k].append(total / count)
    return [_mean(values) for values in averages]


def majority_at_k(column: ScoreColumn, answers: Sequence[Sequence[Any]], max_k: int) -> list[float | None]:
    """For k = 1 … max_k the mean over tasks of the score of the commonest pair of answer and score among the first k.

    Rollouts without an answer do not vote; tied pairs give the mean of their scores; a task without a vote gives 0.
    """
    result: list[list[float]] = [[] for _ in range(max_k)]
    for task, task_answers in zip(column, answers, strict=True):
        votes: Counter[tuple[Any, float]] = Counter()
        most, tied_total, tied = 0, 0.0, 0
        for k in range(max_k):
            value = task[k] if k < len(task) else None
            if value is not None and task_answers[k] is not None:
                votes[task_answers[k], value] += 1
                count = votes[task_answers[k], value]
                if count > most:
                    most, tied_total, tied = count, float(value), 1
                elif count == most:
                    tied_total, tied = tied_total + value, tied + 1
            result[k].append(tied_total / tied if tied else 0.0)
    return [_mean(values) for values in result]


def per_run_averages(column: ScoreColumn, max_k: int) -> list[float]:
    """For each repeat that has any value, the mean over tasks of that repeat's score, as a percentage."""
    runs = [array("d") for _ in range(max_k)]
    for task in column:
        for run, value in zip(runs, task, strict=False):
            if value is not None:
                run.append(value)
    return [100.0 * math.fsum(values) / len(values) for values in runs if values]


def _across_runs(name: str, runs: Sequence[float], max_k: int) -> dict[str, float]:
    metrics = {}
    for k in range(2, max_k + 1):
        first = runs[:k]
        if len(first) >= 2:
            std = sample_std(first)
            metrics[f"pass@1[avg-of-{k}]/{name}/{STD_DEV_ACROSS_RUNS}"] = std
            metrics[f"pass@1[avg-of-{k}]/{name}/{STD_ERR_ACROSS_RUNS}"] = std / math.sqrt(len(first))
    return metrics


def avg_sample_std_dev(
    tasks: Sequence[Sequence[Rollout]],
    score_fn: ScoreFunction | None = None,
    answer_key: str | None = None,
) -> dict[str, float]:
    """``pass@1[avg-of-k]/<name>/avg_sample_std_dev``: how far a task's own first k rollouts differ, mean over tasks.

    A share, not a percentage. Tasks with fewer than two values among their first k are left out.
    """
    scored = _score(tasks, score_fn, answer_key)
    metrics = {}
    for name, column in scored.columns.items():
        for k in range(2, scored.max_k + 1):
            firsts = [[value for value in task[:k] if value is not None] for task in column]
            spread = _mean([sample_std(values) for values in firsts if len(values) >= 2])
            if spread is not None:
                metrics[f"pass@1[avg-of-{k}]/{name}/{AVG_SAMPLE_STD_DEV}"] = spread
    return metrics


def subset_metrics(
    tasks: Sequence[Sequence[Rollout]],
    subset_key: str,
    score_fn: ScoreFunction | None = None,
    answer_key: str | None = None,
) -> dict[str, Any]:
    """`pass_majority_metrics` of each group of tasks with the same ``subset_key``, under ``<value>/…``.

    A task belongs to the first value that any of its rollouts has; tasks without one are in no group.
    """
    groups: dict[Any, list[Sequence[Rollout]]] = {}
    for rollouts in tasks:
        value = next((rollout[subset_key] for rollout in rollouts if rollout.get(subset_key)), None)
        if value is not None:
            groups.setdefault(_hashable(value), []).append(rollouts)
    return {
        f"{value}/{name}": metric
        for value, group in groups.items()
        for name, metric in pass_majority_metrics(group, score_fn, answer_key).items()
        if name != "per_sample_aggregate"
    }


def highest_k_metrics(
    metrics: Mapping[str, Any],
    pattern: str,
    score_names: Iterable[str] | None = None,
    exclude_names: Iterable[str] | None = None,
) -> dict[str, Any]:
    """The metrics that match ``pattern`` (``pass@{k}``, ``pass@1[avg-of-{k}]``, …) at the largest k that occurs.

    Statistics over a metric (``…/std_dev_across_runs``) are not metrics of their own here. ``score_names`` and
    ``exclude_names`` narrow the names that count, also for what the largest k is.
    """
    before, _, after = pattern.partition("{k}")
    shape = re.compile(re.escape(before) + r"(\d+)" + re.escape(after) + r"/(.+)")
    wanted = None if score_names is None else set(score_names)
    refused = set(exclude_names or ())
    found = []
    for key in metrics:
        match = shape.fullmatch(key)
        if match is None or match[2].endswith(STATISTIC_SUFFIXES):
            continue
        if match[2] not in refused and (wanted is None or match[2] in wanted):
            found.append((int(match[1]), key))
    largest = max(found, default=(0, ""))[0]
    return {key: metrics[key] for k, key in found if k == largest}


def left_out_of_pass_at_k(column: ScoreColumn) -> dict[int, int]:
    """For each k up to the largest number of values of a task, how many tasks have fewer; only k with any."""
    sizes = Counter(sum(value is not None for value in task) for task in column)
    smaller, counts = 0, {}
    for k in range(1, max(sizes, default=0) + 1):
        smaller += sizes[k - 1]
        if smaller:
            counts[k] = smaller
    return counts
