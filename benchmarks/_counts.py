"""``--check``: counts that do not depend on the machine, against those stored in ``counts.json``."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from ._processes import ROOT, SIDES, run_side
from ._records import Absent, Side

__all__ = ["STORED", "check", "count", "rises"]

STORED = pathlib.Path(__file__).parent / "counts.json"
SLACK = 0.1  # per request: a timer that fires in between is a step too
LINE = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)
SENDS = ("sendto", "sendmsg", "write", "writev")


def check(*, write: bool = False) -> int:
    """Count, print, compare; 1 when something has risen."""
    counted = count()
    if write:
        STORED.write_text(json.dumps(counted, indent=1) + "\n")
    if not STORED.exists():
        print(f"{STORED} is not there: nothing to compare with (--check --write makes it)")
        return 1
    stored = json.loads(STORED.read_text())
    for name in sorted({*counted, *stored}):
        print(f"{counted.get(name, 'not counted'):>12}  was {stored.get(name, 'not known'):>12}  {name}")
    risen = rises(counted, stored)
    for line in risen:
        print(f"RISEN: {line}")
    return 1 if risen else 0


def rises(counted: Mapping[str, float], stored: Mapping[str, float]) -> list[str]:
    """What is dearer than it was. A fall is not told: write it down with ``--check --write``."""
    return [
        f"{name}: {counted[name]:g}, was {before:g}"
        for name, before in stored.items()
        if name in counted and counted[name] > before + SLACK
    ]


def count() -> dict[str, float]:
    """Every count that this machine can make."""
    outcome = run_side(Side("counts", "counts"), sys.executable)
    if isinstance(outcome, Absent):
        raise RuntimeError(outcome.reason)
    counts = {name: value for name, value in outcome.figures.items() if ":" in name}
    return counts | _system_calls()


def _system_calls(requests: int = 100) -> dict[str, float]:
    """Per echo POST over a socket, both ends together; what a longer run has more than a shorter."""
    if shutil.which("strace") is None:
        return {}
    few, many = _traced(requests), _traced(2 * requests)
    if not few or not many:
        return {}
    more = {name: (many.get(name, 0) - few.get(name, 0)) / requests for name in many}
    return {
        "echo over a socket, both ends: system calls": round(sum(more.values()), 2),
        "echo over a socket, both ends: segments": round(sum(more.get(name, 0) for name in SENDS), 2),
    }


def _traced(requests: int) -> dict[str, int]:
    with tempfile.NamedTemporaryFile() as file:
        words = ["strace", "-c", "-o", file.name, sys.executable, str(SIDES / "calls.py"), "--requests", str(requests)]
        done = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        if done.returncode != 0:  # a container may forbid it
            return {}
        told = pathlib.Path(file.name).read_text()
    return {name: int(calls) for calls, name in LINE.findall(told) if name != "total"}
