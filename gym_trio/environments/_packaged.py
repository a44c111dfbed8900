"""Rows that ship inside the package."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator
from typing import Any

import orjson

__all__ = ["packaged_rows"]


def packaged_rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of ``data/<name>.jsonl`` in this room."""
    with importlib.resources.files(__package__).joinpath("data", f"{name}.jsonl").open("rb") as lines:
        for line in lines:
            yield orjson.loads(line)
