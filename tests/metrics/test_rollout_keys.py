"""Millions of rollouts in little memory: the keys, the columns, and what an aggregator keeps in all."""

from __future__ import annotations

import gc
import itertools
import math
import random
import sys
from array import array
from typing import Any

import pytest

from gym_trio import metrics
from gym_trio.metrics._numbers import LARGEST
from gym_trio.metrics._rollout_keys import RolloutKeys, TaskGroups
from gym_trio.metrics._rows import task_order
from gym_trio.metrics._table import NumberTable


def test_keys_are_found_ordered_and_grouped_like_those_of_a_dict() -> None:
    """Whatever the indices are (counts, names, negative or huge numbers), each pair has its position and its place."""
    source = random.Random(5)
    tasks: list[Any] = [*range(40), "b", "a", "10", -3, 2**62, 10**30]
    pairs = [(task, rollout) for task in tasks for rollout in (0, 1, 2, 70, -1, 2**63)]
    source.shuffle(pairs)
    keys, known = RolloutKeys(), {}
    for pair in pairs:
        assert keys.find(*pair) is None
        known[pair] = keys.add(*pair)
    assert list(keys) == pairs
    assert len(keys) == len(pairs)
    assert all(keys.find(*pair) == position and pair in keys for pair, position in known.items())
    assert (0, 9) not in keys
    assert "0" not in keys
    ordered = keys.in_order(range(len(keys)))
    assert [keys[at] for at in ordered] == sorted(pairs, key=lambda pair: (task_order(pair[0]), pair[1]))
    groups = keys.by_task(ordered)
    assert [keys.task(group[0]) for group in groups] == sorted(tasks, key=task_order)
    assert all(len(group) == 6 for group in groups)
    assert list(keys.by_rollout(ordered)) == [-1, 0, 1, 2, 70, 2**63]
    assert keys.repeats() == 6


def test_more_positions_than_are_sorted_at_once_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting in parts gives the order of sorting all."""
    monkeypatch.setattr("gym_trio.metrics._rollout_keys._RUN", 7)
    keys = RolloutKeys()
    for task in random.Random(1).sample(range(100), 100):
        keys.add(task, 0)
    assert [keys.task(at) for at in keys.in_order(range(100))] == list(range(100))


def test_groups_are_a_sequence() -> None:
    """Groups can be asked for from both ends and in slices."""
    groups = TaskGroups(array("I", [4, 5, 6, 7]), array("I", [0, 1, 3]))
    assert [list(group) for group in groups] == [[4], [5, 6], [7]]
    assert [list(groups[at]) for at in (0, 1, 2, -1, -2)] == [[4], [5, 6], [7], [7], [5, 6]]
    assert [list(group) for group in groups[1:]] == [[5, 6], [7]]
    with pytest.raises(IndexError):
        groups[3]


def test_a_column_gives_back_every_number_exactly() -> None:
    """A column is as wide as its numbers need, and what was put in before it grew is still there."""
    numbers = [0, 1.5, 2**24 + 1, 0.1, -1e300, 2**53, 5e-324, 1e-46]
    for last in range(1, len(numbers) + 1):
        table = NumberTable()
        for number in numbers[:last]:
            table.append({"x": number})
        assert list(table.values("x")) == numbers[:last]


def test_no_object_is_kept_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the rows, the dispatched rows and the failures, nor what is made of them, leave an object for each."""
    monkeypatch.setattr("gym_trio.metrics._intervals.RESAMPLES", 100)
    rows = 3000
    base = {"agent_ref": {"name": "agent"}, "_ng_rollout_index": 0}
    aggregator = metrics.Aggregator(count_missing_rollouts_as_zero=True, count_failure_classes_as_zero=["timeout"])
    metrics.t_quantile(rows - 1)  # what is imported for it stays
    metrics.t_quantile(3)
    before = sys.getallocatedblocks()
    for task in range(1000, 1000 + rows):
        aggregator.expect({**base, "_ng_task_index": task, "level": task})
        if task % 10 == 1:
            kind = "judge_failed" if task % 20 == 1 else "timeout"
            aggregator.add_failure({**base, "_ng_task_index": task, "_ng_failure_class": kind, "level": task})
        elif task % 10:
            row = {**base, "_ng_task_index": task, "reward": task % 2, "score": task / rows, "level": task}
            aggregator.add({**row, "mask_sample": task % 20 == 2, "ng_perf": {"num_turns": task}})
    aggregate = aggregator.finish()
    (source,) = aggregate.sources
    assert sum(1 for _ in source.groups()) == rows * 8 // 10 + rows // 10
    gc.collect()
    assert sys.getallocatedblocks() - before < rows / 3
    assert (aggregate.coverage.imputed, aggregate.coverage.counted_failures) == (rows // 10, rows // 20)


@pytest.mark.parametrize("values", list(itertools.product((LARGEST, -LARGEST, 1e308, -1.7e308, 5e-324, 1), repeat=3)))
def test_numbers_too_large_to_be_summed_and_squared_are_none(values: tuple[float, ...]) -> None:
    """The largest that are numbers have all of their statistics, comparisons included; larger ones end no run."""
    rows = [
        {"_ng_task_index": at // 2, "_ng_rollout_index": at % 2, "reward": values[at % 3], "ng_perf": {"x": values[0]}}
        for at in range(6)
    ]
    made = metrics.aggregate(rows)
    (source,) = made.sources
    kept = [value for value in values if abs(value) <= LARGEST]
    assert source.agent_metrics.get("mean/reward") == (pytest.approx(math.fsum(kept) / len(kept)) if kept else None)
    assert all(math.isfinite(value) for value in source.agent_metrics.values())
    warned = any(warning["kind"] == "without_reward" for warning in source.warnings)
    assert warned == (0 < len(kept) < 3)
    for other in (made, metrics.aggregate([{**row, "reward": 0.5} for row in rows])) if kept else ():
        metrics.to_json(metrics.compare(made.to_json(), other.to_json()))
