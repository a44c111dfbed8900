"""How a run shows itself while it goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Protocol

import attrs
import trio

from ..rollouts import Completed, Failed, RolloutOutcome
from ._console import tell

__all__ = ["Progress", "open_progress"]

# Seconds between two plain lines; the bar refreshes by itself.
PLAIN_INTERVAL_SECONDS = 10.0


@attrs.define
class Tally:
    """What the line of a run says."""

    total: int | None
    started_at: float
    done: int = 0
    failed: int = 0
    scored: int = 0
    reward_sum: float = 0.0

    def count(self, outcome: RolloutOutcome) -> None:
        if isinstance(outcome, Completed):
            self.done += 1
            reward = outcome.result.get("reward")
            if isinstance(reward, int | float) and not outcome.result.get("mask_sample"):
                self.scored += 1
                self.reward_sum += reward
        elif isinstance(outcome, Failed):
            self.done += 1
            self.failed += 1

    def rate(self) -> float:
        return self.done / max(trio.current_time() - self.started_at, 1e-9)

    def mean(self) -> str:
        return f"{self.reward_sum / self.scored:.3f}" if self.scored else "-"

    def left(self) -> str:
        if self.total is None or not self.done:
            return "-"
        seconds = round((self.total - self.done) / max(self.rate(), 1e-9))
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def line(self) -> str:
        of = f"/{self.total}" if self.total is not None else ""
        return (
            f"{self.done}{of} rollouts, {self.rate():.1f}/s, mean reward {self.mean()}, "
            f"{self.failed} failed, {self.left()} left"
        )


class Progress(Protocol):
    """Told of each outcome as it is written."""

    def count(self, outcome: RolloutOutcome) -> None: ...


class PlainProgress:
    """A line on standard error now and then."""

    def __init__(self, total: int | None) -> None:
        now = trio.current_time()
        self._tally = Tally(total, now)
        self._next_at = now + PLAIN_INTERVAL_SECONDS

    def count(self, outcome: RolloutOutcome) -> None:
        self._tally.count(outcome)
        if trio.current_time() >= self._next_at:
            self._next_at = trio.current_time() + PLAIN_INTERVAL_SECONDS
            tell(self._tally.line())

    def finish(self) -> None:
        tell(self._tally.line())


class BarProgress:
    """A bar that keeps its place on a terminal."""

    def __init__(self, bar: Any, total: int | None) -> None:
        self._bar = bar
        self._tally = Tally(total, trio.current_time())
        self._task = bar.add_task("rollouts", total=total, line=self._tally.line())

    def count(self, outcome: RolloutOutcome) -> None:
        self._tally.count(outcome)
        self._bar.update(self._task, completed=self._tally.done, line=self._tally.line())


@contextlib.contextmanager
def open_progress(total: int | None, *, quiet: bool = False) -> Iterator[Progress]:
    """The display of one run of ``total`` rollouts, on standard error."""
    if quiet or not sys.stderr.isatty():
        plain = PlainProgress(total)
        yield plain
        if not quiet:
            plain.finish()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), BarColumn(bar_width=30), TextColumn("{task.fields[line]}"))
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False, redirect_stderr=False) as bar:
        yield BarProgress(bar, total)
