"""``--profile SIDE``: where one side of a benchmark spends its time."""

from __future__ import annotations

import io
import pathlib
import pstats
import tempfile

from . import _peers
from ._processes import run_side
from ._records import Absent, Benchmark

__all__ = ["profile"]

SHOWN = 25


def profile(benchmark: Benchmark, name: str) -> str:
    """The dearest functions of one run of the side, in its own process: not in the servers that it starts.

    **Errors**: `LookupError` when there is no such side or it cannot run.
    """
    sides = {side.name: side for side in benchmark.sides}
    if name not in sides:
        raise LookupError(f"{benchmark.name} has no side {name!r}; it has {'; '.join(sides)}")
    side = sides[name]
    python = _peers.python_of(side.peer)
    if python is None:
        raise LookupError(_peers.why_absent(side.peer or ""))
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "profile"
        outcome = run_side(side, python, through=("-m", "cProfile", "-o", str(made)))
        if isinstance(outcome, Absent):
            raise LookupError(outcome.reason)
        told = io.StringIO()
        pstats.Stats(str(made), stream=told).strip_dirs().sort_stats("tottime").print_stats(SHOWN)
    return f"{benchmark.name}, {name}: {', '.join(side.arguments)}\n{told.getvalue().strip()}"
