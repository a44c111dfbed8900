"""Sides in alternation; medians; ratios, and when there is none."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from ._records import Absent, Benchmark, Comparison, Outcome, Ratio, Result, Run, Side

__all__ = ["compare", "run_benchmark", "value_of"]


def run_benchmark(
    benchmark: Benchmark, rounds: int, run: Callable[[Side], Outcome], say: Callable[[str], None] = lambda _: None
) -> Result:
    """Each side in turn, ``rounds`` times over, so that what the machine does meanwhile meets them all.

    A side that cannot run is told as absent and not tried again.
    """
    runs: dict[str, list[Run]] = {side.name: [] for side in benchmark.sides}
    absent: dict[str, str] = {}
    for number in range(rounds):
        # Every other round goes backwards: no side always comes after the same one.
        for side in benchmark.sides if number % 2 == 0 else benchmark.sides[::-1]:
            for _ in range(side.times):
                if side.name in absent:
                    break
                outcome = run(side)
                if isinstance(outcome, Absent):
                    absent[side.name] = outcome.reason
                    say(f"{benchmark.name}: {side.name} is absent: {outcome.reason}")
                else:
                    runs[side.name].append(outcome)
    kept = {name: tuple(made) for name, made in runs.items() if name not in absent}
    return Result(benchmark, kept, absent, tuple(compare(one, kept, absent) for one in benchmark.comparisons))


def value_of(run: Run, figure: str, per: str | None = None) -> float:
    """One figure of one run, per unit of work where asked for."""
    return run.figures[figure] / (run.work[per] if per else 1)


def compare(comparison: Comparison, runs: Mapping[str, Sequence[Run]], absent: Mapping[str, str]) -> Ratio:
    """The ratio of the medians. **Refused** when a side is absent or the sides did not do the same work."""
    for name in (comparison.mine, comparison.theirs):
        if name not in runs or not runs[name]:
            return Ratio(comparison, None, refused=f"{name} is absent: {absent.get(name, 'it did not run')}")
    mine, theirs = runs[comparison.mine], runs[comparison.theirs]
    work = mine[0].work
    for name, one in [*((comparison.mine, run) for run in mine), *((comparison.theirs, run) for run in theirs)]:
        if one.work != work:
            differing = sorted(key for key in {*one.work, *work} if one.work.get(key) != work.get(key))
            told = ", ".join(f"{key} {one.work.get(key)!r} and {work.get(key)!r}" for key in differing)
            return Ratio(comparison, None, refused=f"not the same work: {name} did {told}")
    try:
        above = [value_of(run, comparison.figure, comparison.per) for run in mine]
        below = [value_of(run, comparison.figure, comparison.per) for run in theirs]
    except KeyError as error:
        return Ratio(comparison, None, refused=f"a side did not measure {error}")
    if min(below) <= 0:
        return Ratio(comparison, None, refused="the other side's figure is too small to be measured")
    # One that ran more often in each round is compared with what the other did in that round.
    many = max(len(above), len(below))
    each = [above[at * len(above) // many] / below[at * len(below) // many] for at in range(many)]
    return Ratio(comparison, statistics.median(above) / statistics.median(below), min(each), max(each))
