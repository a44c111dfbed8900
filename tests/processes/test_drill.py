"""The short form of the random drills."""

from __future__ import annotations

import pathlib
import sys

import pytest
import trio

DRILL = str(pathlib.Path(__file__).with_name("drill.py"))


@pytest.mark.timeout(180)  # a few seconds on an idle machine; the drills' own bounds are what is tested
async def test_random_drills_leave_no_orphans():
    """Twenty random drills: whatever is killed or interrupted, at whatever moment, nothing is left."""
    command = [sys.executable, DRILL, "--count", "20", "--parallel", "4"]
    result = await trio.run_process(command, capture_stdout=True, check=False)
    assert result.stdout.splitlines()[-1] == b"orphans = 0", result.stdout.decode()
