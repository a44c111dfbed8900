"""The benchmarks' frame: exact counts do not rise, and no ratio is printed of two sides that did other work."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def benchmarks(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_no_exact_count_has_risen() -> None:
    """Task steps, resumptions, segments and system calls are at most those stored beside the benchmark."""
    done = benchmarks("--check")
    assert done.returncode == 0, done.stdout + done.stderr
    stored = json.loads((ROOT / "benchmarks" / "counts.json").read_text())
    assert stored
    for name in stored:
        assert name in done.stdout


def test_a_count_that_rises_fails() -> None:
    """The check compares: a count above the stored one is named."""
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks._counts import rises
    finally:
        sys.path.remove(str(ROOT))
    assert rises({"steps": 2.0}, {"steps": 2.0}) == []
    assert len(rises({"steps": 3.0}, {"steps": 2.0})) == 1


def test_an_unknown_benchmark_is_named() -> None:
    """A wrong name is exit code 2 with what there is."""
    done = benchmarks("clent")
    assert done.returncode == 2
    assert "client" in done.stderr + done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "sides").glob("*gym_trio*.py")), ids=lambda p: p.stem)
def test_figures_are_taken_with_a_users_defaults(path: Any) -> None:
    """No side of ours sets limits, logging, validation or the collector to other than a user gets."""
    text = path.read_text()
    for word in ("ServeLimits", "TransportSettings", "gc.", "disable(", "setLevel", "-O", "max_body_bytes", "_private"):
        assert word not in text, f"{path.name} sets {word}"
