"""The short form of ``interrupts.py``, which says what it does."""

from __future__ import annotations

import pathlib
import subprocess
import sys

COMMAND = pathlib.Path(__file__).with_name("interrupts.py")


def test_a_run_that_is_interrupted_and_killed_again_and_again_becomes_complete() -> None:
    """Every (task, repeat) exactly once, and the rows of an undisturbed run."""
    done = subprocess.run(
        [sys.executable, COMMAND, "--rounds", "4", "--seed", "7"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("4 rounds of 300 rollouts, seed 7: ")
