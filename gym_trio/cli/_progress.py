"""How a run shows itself while it goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import trio

from ..collection import Progress
from ._console import tell

__all__ = ["open_display", "progress_line"]

# Seconds between two plain lines; the bar refreshes by itself.
PLAIN_INTERVAL_SECONDS = 10.0


def progress_line(progress: Progress, started_at: float) -> str:
    """Count, rate, mean reward, failures and time left."""
    elapsed = max(trio.current_time() - started_at, 1e-9)
    rate = progress.finished / elapsed
    mean = "-" if progress.mean_reward is None else f"{progress.mean_reward:.3f}"
    left = _clock((progress.to_send - progress.finished) / rate) if rate else "-"
    return (
        f"{progress.finished}/{progress.to_send} rollouts, {rate:.1f}/s, mean reward {mean}, "
        f"{progress.failed} failed, {left} left"
    )


def _clock(seconds: float) -> str:
    whole = round(max(0.0, seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


@attrs.define
class PlainDisplay:
    """A line on standard error now and then."""

    progress: Progress
    started_at: float
    next_at: float

    def update(self, _: Any) -> None:
        if trio.current_time() >= self.next_at:
            self.next_at = trio.current_time() + PLAIN_INTERVAL_SECONDS
            tell(progress_line(self.progress, self.started_at))


@contextlib.contextmanager
def open_display(progress: Progress, *, quiet: bool = False) -> Iterator[Callable[[Any], None]]:
    """Show ``progress`` on standard error; the function is to be called after each outcome."""
    started_at = trio.current_time()
    if quiet:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield PlainDisplay(progress, started_at, started_at + PLAIN_INTERVAL_SECONDS).update
        if progress.to_send:
            tell(progress_line(progress, started_at))
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (SpinnerColumn(), BarColumn(bar_width=30), TextColumn("{task.fields[line]}"))
    with Bar(*columns, console=Console(stderr=True), redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task("rollouts", total=progress.to_send or None, line=progress_line(progress, started_at))

        def update(_: Any) -> None:
            line = progress_line(progress, started_at)
            bar.update(task, total=progress.to_send, completed=progress.finished, line=line)

        yield update
        update(None)
