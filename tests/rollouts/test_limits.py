"""The quantile that the dispatch margin goes by."""

from __future__ import annotations

import random
import statistics

import pytest

from gym_trio.rollouts._limits import RunningQuantile


@pytest.mark.parametrize("seed", range(5))
def test_the_running_quantile_is_the_interpolated_quantile(seed: int) -> None:
    """After each value it equals what sorting everything and interpolating between neighbours gives."""
    dice = random.Random(seed)
    seen: list[float] = []
    running = RunningQuantile(0.75)
    for _ in range(300):
        seen.append(dice.choice((dice.random(), dice.randrange(5))))
        running.add(seen[-1])
        expected = statistics.quantiles(seen, n=4, method="inclusive")[2] if len(seen) > 1 else seen[0]
        assert running.value() == pytest.approx(expected), f"seed {seed}"
    assert running.count == 300
