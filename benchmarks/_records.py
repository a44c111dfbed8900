"""What a benchmark is, and what one run of it gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = [
    "CPU",
    "Absent",
    "Benchmark",
    "Comparison",
    "Outcome",
    "Partner",
    "Ratio",
    "Result",
    "Run",
    "Side",
    "arguments_of",
]


CPU = {"cpu_seconds": "s"}


def arguments_of(**values: object) -> tuple[str, ...]:
    """``--name VALUE`` for each, as a side reads them."""
    words: list[str] = []
    for name, value in values.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return tuple(words)


@attrs.frozen
class Partner:
    """A process beside the measured one: ``"before"`` it, or sending ``"load"`` to it once it is ready."""

    when: str
    script: str
    arguments: tuple[str, ...] = ()


@attrs.frozen
class Side:
    """One program: ``sides/<script>.py`` under the Python of ``peer``, or under ours."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    peer: str | None = None
    partner: Partner | None = None
    times: int = 1  # in each round, one after the other: of two sides, the quick one can be measured more often


@attrs.frozen
class Comparison:
    """``mine`` over ``theirs`` in one figure, per unit of the work ``per`` where there is one; at most ``target``."""

    mine: str
    theirs: str
    figure: str
    title: str
    per: str | None = None
    target: float | None = None


@attrs.frozen
class Benchmark:
    """Sides that do the same work, run in alternation."""

    name: str
    claim: str
    sides: tuple[Side, ...]
    comparisons: tuple[Comparison, ...]
    rounds: int = 5
    quick_rounds: int = 2
    figures: Mapping[str, str] = attrs.Factory(dict)  # figure → unit, in the order in which they are shown
    per: str | None = None  # figures in seconds and bytes are also shown per unit of this work
    bounds: Mapping[str, tuple[str, float]] = attrs.Factory(dict)  # figure → (side, at most)


@attrs.frozen
class Run:
    """What one process of one side did and cost."""

    work: Mapping[str, Any]  # counts and digests: equal on both sides, or there is no ratio
    figures: Mapping[str, float]
    versions: Mapping[str, str] = attrs.Factory(dict)


@attrs.frozen
class Absent:
    """A side that could not run, and why."""

    reason: str


Outcome = Run | Absent


@attrs.frozen
class Ratio:
    """A ratio of medians with the span of the rounds' own ratios; or why there is none."""

    comparison: Comparison
    value: float | None
    low: float | None = None
    high: float | None = None
    refused: str | None = None

    @property
    def reached(self) -> bool | None:
        if self.value is None or self.comparison.target is None:
            return None
        return self.value <= self.comparison.target


@attrs.frozen
class Result:
    """All rounds of one benchmark."""

    benchmark: Benchmark
    runs: Mapping[str, tuple[Run, ...]]
    absent: Mapping[str, str]
    ratios: tuple[Ratio, ...]
