"""Storms, a few hundred of them; ``million.py`` beside this file plays them until a million outcomes."""

from __future__ import annotations

import pathlib
import runpy
from typing import Any

import pytest
import trio


@pytest.fixture(scope="module")
def command() -> dict[str, Any]:
    return runpy.run_path(str(pathlib.Path(__file__).with_name("million.py")))


@pytest.mark.parametrize("block", range(4))
def test_storms_lose_and_double_nothing(block: int, command: dict[str, Any]) -> None:
    """100 storms per block, in which everything happens at once: every row ends in exactly one place."""
    findings = command["Findings"]()
    for seed in range(1000 + block * 100, 1100 + block * 100):
        command["weather"](findings, seed, (5, 20, 100, 300)[seed % 4])
    assert findings.clean, findings
    assert findings.outcomes > 1000
    assert len(findings.ends) == len(command["Storm"].ENDS)


def test_the_command_says_what_it_found(command: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints lost = 0, doubled = 0 and succeeds."""
    assert command["main"](500, 1) == 0
    assert "lost = 0, doubled = 0, misplaced = 0" in capsys.readouterr().out


def test_findings_would_show_a_fault(command: dict[str, Any]) -> None:
    """An outcome that is lost, and one that comes twice, are found and laid to their seed."""
    findings, storm = command["Findings"](), command["Storm"](1, 20)
    storm.end = "exhausted"
    trio.run(storm.play)
    storm.seen.append(storm.seen.pop(0))
    storm.seen[0] = storm.seen[1]
    findings.add(storm)
    assert (findings.lost, findings.doubled) == (1, 1)
    assert findings.guilty == [1]
