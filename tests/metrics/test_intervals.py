"""Intervals within the range, and intervals of differences."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gym_trio import metrics
from gym_trio.metrics import _intervals

relaxed = settings(deadline=None, max_examples=40)
values = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=8)


@given(st.integers(1, 300), st.data())
@relaxed
def test_wilson_is_scipys_and_stays_in_the_range(total: int, data: st.DataObject) -> None:
    """The Wilson interval agrees with scipy, holds the share, and never leaves [0, 1]."""
    successes = data.draw(st.integers(0, total))
    found = metrics.wilson(successes, total)
    expected = stats.binomtest(successes, total).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= found.low <= successes / total <= found.high <= 1


@given(st.lists(st.lists(st.floats(0, 1), max_size=4), max_size=6), st.integers(0, 5))
@relaxed
def test_the_clustered_bootstrap_stays_within_its_limits(clusters: list[list[float]], seed: int) -> None:
    """It holds the mean, stays within the values by default, and is the same for the same seed."""
    found = metrics.clustered_bootstrap(clusters, seed)
    flat = [value for cluster in clusters for value in cluster]
    if sum(map(bool, clusters)) < 2:
        assert found is None
        return
    assert found is not None
    assert min(flat) <= found.low <= found.high <= max(flat)
    assert found.low - 1e-12 <= sum(flat) / len(flat) <= found.high + 1e-12
    assert metrics.clustered_bootstrap(clusters, seed) == found
    wide = metrics.clustered_bootstrap(clusters, seed, (0.0, 1.0))
    assert wide is not None
    assert 0 <= wide.low <= found.low
    assert found.high <= wide.high <= 1


def test_clustering_widens_the_interval() -> None:
    """Repeats that agree within their task tell no more than one repeat would."""
    source = random.Random(3)
    tasks = [float(source.random() < 0.5) for _ in range(60)]
    one = metrics.clustered_bootstrap([[task] for task in tasks])
    repeated = metrics.clustered_bootstrap([[task] * 8 for task in tasks])
    flat = metrics.wilson(8 * sum(tasks), 8 * len(tasks))
    assert one is not None
    assert repeated is not None
    assert repeated.high - repeated.low == pytest.approx(one.high - one.low, abs=0.03)
    assert repeated.high - repeated.low > 1.5 * (flat.high - flat.low)


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    """Of 100 small samples with a known mean at least 90 have it in their interval, also with few tasks."""
    source = random.Random(11)
    for size in (5, 25):
        hits = 0
        for _ in range(100):
            tasks = [[source.gauss(0, 1) + source.gauss(0, 0.5) for _ in range(3)] for _ in range(size)]
            found = metrics.clustered_bootstrap(tasks, 0, (-100.0, 100.0))
            hits += found is not None and found.low <= 0 <= found.high
        assert hits >= 90, f"{hits} of 100 at {size} tasks"


def test_many_tasks_are_drawn_in_part() -> None:
    """Beyond the bound the interval still has the width that the number of tasks gives it."""
    source = random.Random(5)
    tasks = [[source.gauss(0, 1)] for _ in range(4 * _intervals.MOST_DRAWN)]
    found = metrics.clustered_bootstrap(tasks)
    assert found is not None
    expected = 2 * 1.96 / len(tasks) ** 0.5
    assert found.high - found.low == pytest.approx(expected, rel=0.15)


@pytest.mark.filterwarnings("ignore:Precision loss:RuntimeWarning")  # scipy's remark on a sample of equal values
@given(values, values)
@relaxed
def test_welch_is_scipys(first: list[float], second: list[float]) -> None:
    """The interval of the difference agrees with scipy's wherever scipy has one."""
    found = metrics.welch(first, second)
    assert found is not None
    if len(set(first)) == 1 and len(set(second)) == 1:
        assert found.low == found.high == pytest.approx(second[0] - first[0])
        return
    expected = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)


def test_welch_needs_two_values_on_each_side() -> None:
    """One value has no spread."""
    assert metrics.welch([1.0], [1.0, 2.0]) is None
    assert metrics.welch([1.0, 2.0], []) is None


def test_paired_differences() -> None:
    """A clear difference has an interval off zero and a small p-value; none at all has p = 1; one task has nothing."""
    clear = metrics.paired_bootstrap([0.5, 0.4, 0.6, 0.5, 0.45, 0.55, 0.5, 0.4, 0.6, 0.5, 0.5, 0.52])
    assert clear is not None
    assert clear.interval.low > 0.4
    assert clear.p_value == pytest.approx(0.001)
    none = metrics.paired_bootstrap([0.0] * 5)
    assert none is not None
    assert (none.difference, none.p_value, none.interval.low) == (0.0, 1.0, 0.0)
    even = metrics.paired_bootstrap([1.0, -1.0] * 10)
    assert even is not None
    assert even.interval.low < 0 < even.interval.high
    assert even.p_value > 0.5
    assert metrics.paired_bootstrap([0.3]) is None


def test_few_tasks_cannot_show_much() -> None:
    """Three tasks that all went one way could each have gone the other: p is not below one in four."""
    found = metrics.paired_bootstrap([1.0, 1.0, 1.0])
    assert found is not None
    assert found.p_value == 0.25
