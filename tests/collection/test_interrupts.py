"""The short forms of ``interrupts.py``, which says what it does."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

COMMAND = pathlib.Path(__file__).with_name("interrupts.py")


@pytest.mark.parametrize(("how", "moments"), [([], 20), (["--cli"], 2)], ids=["library", "command"])
def test_a_run_that_is_interrupted_and_killed_again_and_again_becomes_complete(how: list[str], moments: int) -> None:
    """Every (task, repeat) exactly once, the rows of an undisturbed run, and nothing left over."""
    words = [sys.executable, str(COMMAND), "--moments", str(moments), "--seed", "7", *how]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("300 rollouts a run, seed 7: ")
