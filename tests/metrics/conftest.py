"""Where the contract's own data is, and comparing to its precision."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

SHARED = pathlib.Path(__file__).parents[3] / "shared"


def _existing(path: pathlib.Path) -> pathlib.Path:
    if not path.exists():
        pytest.skip(f"the contract's data is not at {path}")
    return path


@pytest.fixture(scope="session")
def golden() -> list[dict[str, Any]]:
    return json.loads(_existing(SHARED / "golden" / "aggregate_metrics.json").read_bytes())


@pytest.fixture(scope="session")
def recorded() -> dict[str, list[dict[str, Any]]]:
    folder = _existing(SHARED / "data" / "recorded")
    return {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in folder.glob("*.jsonl")}


def _difference(found: Any, expected: Any, where: str) -> str | None:
    """The first place where two JSON values differ by more than 1e-9, or None."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if found.keys() != expected.keys():
            return f"{where}: keys {sorted(found.keys() ^ expected.keys())}"
        pairs = [(found[key], expected[key], f"{where}.{key}") for key in expected]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(found) != len(expected):
            return f"{where}: {len(found)} items instead of {len(expected)}"
        pairs = [(f, e, f"{where}[{i}]") for i, (f, e) in enumerate(zip(found, expected, strict=True))]
    elif isinstance(expected, int | float) and isinstance(found, int | float):
        return None if abs(found - expected) <= 1e-9 * max(1, abs(expected)) else f"{where}: {found} is not {expected}"
    else:
        return None if found == expected else f"{where}: {found!r} is not {expected!r}"
    return next((problem for pair in pairs if (problem := _difference(*pair))), None)


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], None]:
    def check(found: Any, expected: Any) -> None:
        assert _difference(found, expected, "value") is None, _difference(found, expected, "value")

    return check


@pytest.fixture(scope="session")
def make_row() -> Callable[..., dict[str, Any]]:
    def make(task: Any = 0, rollout: int = 0, reward: float | None = 1.0, **fields: Any) -> dict[str, Any]:
        row = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "agent"}, **fields}
        return row if reward is None else {**row, "reward": reward}

    return make
