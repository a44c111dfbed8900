"""Formulas against brute force, numpy and scipy."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gym_trio import metrics
from gym_trio.metrics import _numbers
from gym_trio.metrics._passk import left_out_of_pass_at_k

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6))
samples = st.lists(numbers, min_size=1, max_size=20)
outcomes = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=7), min_size=1, max_size=5)
relaxed = settings(deadline=None, max_examples=60)


def tasks_of(rewards: list[list[float]], answers: list[list[Any]] | None = None) -> list[list[dict[str, Any]]]:
    return [
        [{"reward": r, "answer": answers[t][i] if answers else None} for i, r in enumerate(task)]
        for t, task in enumerate(rewards)
    ]


@given(samples, st.floats(0, 1))
@relaxed
def test_descriptions_are_numpys(values: list[float], share: float) -> None:
    """Mean, deviation, median and interpolated quantile agree with numpy."""
    found = _numbers.describe(values)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert found.median == pytest.approx(np.median(values), abs=1e-9)
    assert (found.min, found.max) == (min(values), max(values))
    if len(values) > 1:
        assert found.std == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-6)
    assert _numbers.quantile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-9, abs=1e-6)
    assert _numbers.population_std(values) == pytest.approx(np.std(values), rel=1e-9, abs=1e-6)


@given(numbers, st.integers(2, 40))
@relaxed
def test_equal_values_do_not_vary(value: float, count: int) -> None:
    """Equal values have exactly their own value as mean and exactly no deviation."""
    found = _numbers.describe([value] * count)
    assert (found.mean, found.std) == (value, 0.0)
    assert _numbers.sample_std([value] * count) == 0.0


@pytest.mark.parametrize("df", [0.4, 1, 1.5, 2, 3, 7.3, 30, 120.5, 999, 1000, 1001, 5e4, 1e7])
def test_the_t_quantile_is_scipys(df: float) -> None:
    """Student's quantile agrees with scipy, on both sides of the change of method."""
    assert _numbers.t_quantile(df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-10)


def test_the_t_quantile_needs_a_degree_of_freedom() -> None:
    """No degree of freedom has no quantile, and an interval without one is None."""
    with pytest.raises(ValueError, match="positive"):
        _numbers.t_quantile(0)
    assert metrics.t_interval(1.0, 0.5, 0) is None
    assert metrics.t_interval(1.0, 0.0, 3) == (1.0, 1.0)


@given(outcomes)
@relaxed
def test_pass_at_k_is_the_share_of_subsets_with_a_success(rewards: list[list[float]]) -> None:
    """For outcomes of 0 and 1, pass@k is the share of all k-subsets of a task's rollouts that hold a success."""
    found = metrics.pass_majority_metrics(tasks_of(rewards))
    for k in range(1, max(map(len, rewards)) + 1):
        shares = [
            statistics.fmean(any(subset) for subset in itertools.combinations(task, k))
            for task in rewards
            if len(task) >= k
        ]
        assert found[f"pass@{k}/accuracy"] == pytest.approx(100 * statistics.fmean(shares), abs=1e-9)


@given(st.lists(st.lists(st.sampled_from([0.0, 0.25, 0.5, 2.0]), min_size=1, max_size=5), min_size=1, max_size=4))
@relaxed
def test_pass_at_k_of_other_scores_is_the_best_of_the_first(rewards: list[list[float]]) -> None:
    """A task with any other score counts its best of the first k; tasks of zeros alone stay binary."""
    found = metrics.pass_majority_metrics(tasks_of(rewards))
    for k in range(1, max(map(len, rewards)) + 1):
        best = [max(task[:k]) for task in rewards if len(task) >= k]
        assert found[f"pass@{k}/accuracy"] == pytest.approx(100 * statistics.fmean(best), abs=1e-9)


@given(outcomes)
@relaxed
def test_averages_and_their_spread(rewards: list[list[float]]) -> None:
    """avg-of-k keeps short tasks; the spread across runs is that of the runs' own averages."""
    found = metrics.pass_majority_metrics(tasks_of(rewards))
    longest = max(map(len, rewards))
    runs = [100 * statistics.fmean(task[i] for task in rewards if i < len(task)) for i in range(longest)]
    assert found["per_sample_aggregate"]["accuracy"] == pytest.approx(runs, abs=1e-9)
    for k in range(1, longest + 1):
        means = [statistics.fmean(task[:k]) for task in rewards]
        assert found[f"pass@1[avg-of-{k}]/accuracy"] == pytest.approx(100 * statistics.fmean(means), abs=1e-9)
        if k >= 2:
            std = statistics.stdev(runs[:k])
            name = f"pass@1[avg-of-{k}]/accuracy"
            assert found[f"{name}/std_dev_across_runs"] == pytest.approx(std, abs=1e-9)
            assert found[f"{name}/std_err_across_runs"] == pytest.approx(std / math.sqrt(k), abs=1e-9)


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["A", "B", None]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    )
)
@relaxed
def test_majority_is_a_vote_over_pairs(votes: list[list[tuple[str | None, float]]]) -> None:
    """majority@k is the score of the commonest (answer, score) pair, ties averaged, and 0 without a vote."""
    found = metrics.pass_majority_metrics(
        tasks_of([[s for _, s in task] for task in votes], [[a for a, _ in task] for task in votes]),
        answer_key="answer",
    )
    for k in range(1, max(map(len, votes)) + 1):
        values = []
        for task in votes:
            counter = Counter(pair for pair in task[:k] if pair[0] is not None)
            most = max(counter.values(), default=0)
            tied = [score for (_, score), count in counter.items() if count == most]
            values.append(statistics.fmean(tied) if tied else 0.0)
        assert found[f"majority@{k}/accuracy"] == pytest.approx(100 * statistics.fmean(values), abs=1e-9)
        missing = [statistics.fmean(a is None for a, _ in task[:k]) for task in votes]
        assert found[f"pass@1[avg-of-{k}]/no_answer"] == pytest.approx(100 * statistics.fmean(missing), abs=1e-9)


@given(outcomes)
@relaxed
def test_sample_deviation_is_the_mean_of_the_tasks_own(rewards: list[list[float]]) -> None:
    """avg_sample_std_dev averages the deviation within tasks that have at least two of the first k."""
    found = metrics.avg_sample_std_dev(tasks_of(rewards))
    for k in range(2, max(map(len, rewards)) + 1):
        spreads = [statistics.stdev(task[:k]) for task in rewards if len(task) >= 2]
        name = f"pass@1[avg-of-{k}]/accuracy/avg_sample_std_dev"
        assert found[name] == pytest.approx(statistics.fmean(spreads), abs=1e-9)


def test_scores_that_some_rollouts_lack() -> None:
    """A score counts where it is; a list as an answer votes like any other; bools and non-numbers are told apart."""
    tasks = [
        [{"good": True, "answer": ["x"]}, {"good": None, "answer": ["x"]}, {"answer": ["y"], "good": False}],
        [{"good": "yes", "answer": None}],
    ]
    found = metrics.pass_majority_metrics(tasks, score_fn=lambda row: {"good": row.get("good")}, answer_key="answer")
    assert found["pass@1/good"] == 50
    assert found["pass@2/good"] == 100
    assert "pass@3/good" not in found
    assert found["majority@1/good"] == 50
    assert found["per_sample_aggregate"]["good"] == [100, 0]


def test_no_tasks_have_no_metrics() -> None:
    """Nothing in, nothing out."""
    assert metrics.pass_majority_metrics([]) == {}
    assert metrics.avg_sample_std_dev([]) == {}
    assert metrics.subset_metrics([], "level") == {}


def test_subsets_are_named_by_value() -> None:
    """A task belongs to the first value that one of its rollouts has; one without is in no subset."""
    tasks = [
        [{"reward": 1.0}, {"reward": 0.0, "level": "easy"}],
        [{"reward": 0.0, "level": "hard"}],
        [{"reward": 0.0}],
    ]
    found = metrics.subset_metrics(tasks, "level")
    assert found["easy/pass@1/accuracy"] == 50
    assert found["hard/pass@1/accuracy"] == 0
    assert not any("per_sample_aggregate" in name for name in found)
    assert {name.split("/")[0] for name in found} == {"easy", "hard"}


def test_the_highest_k_is_chosen_among_what_is_wanted() -> None:
    """Only metrics of the pattern and the wanted names count, at the largest k they have, without statistics."""
    found = {
        "pass@2/accuracy": 1,
        "pass@10/accuracy": 2,
        "pass@10/no_answer": 3,
        "pass@16/other": 4,
        "pass@1[avg-of-10]/accuracy": 5,
        "pass@1[avg-of-10]/accuracy/std_dev_across_runs": 6,
    }
    chosen = metrics.highest_k_metrics(found, "pass@{k}", score_names=["accuracy", "no_answer"])
    assert chosen == {"pass@10/accuracy": 2, "pass@10/no_answer": 3}
    assert metrics.highest_k_metrics(found, "pass@{k}", ["accuracy", "no_answer"], ["no_answer"]) == {
        "pass@10/accuracy": 2
    }
    assert metrics.highest_k_metrics(found, "pass@1[avg-of-{k}]") == {"pass@1[avg-of-10]/accuracy": 5}
    assert metrics.highest_k_metrics(found, "majority@{k}") == {}


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8))
@relaxed
def test_tasks_left_out_are_counted(sizes: list[int]) -> None:
    """For each k the number of tasks with fewer than k values is what is reported."""
    found = left_out_of_pass_at_k([[1.0] * size for size in sizes])
    expected = {k: sum(size < k for size in sizes) for k in range(1, max(sizes) + 1)}
    assert found == {k: count for k, count in expected.items() if count}
