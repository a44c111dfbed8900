"""Grid puzzles: find the rule in the examples and apply it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import orjson

from ..config import positive_int, structure
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session
from ._reply import text_parts

__all__ = ["ArcAgi", "ArcAgiSettings", "parse_grid"]

Grid = list[list[int]]

_ROWS = r"\[\s*\[[\d\s,\[\]]+\]\s*\]"
_BOXED = re.compile(r"\\boxed\{(" + _ROWS + r")\}")
_BARE = re.compile(_ROWS)


@attrs.frozen(kw_only=True)
class ArcAgiSettings:
    """The keys of an ``arc_agi`` block besides the common ones. The same ``seed`` gives the same rows."""

    size: int = attrs.field(default=50, validator=positive_int)
    seed: int = 1


class ArcAgi(ResourcesServer):
    r"""A grid transformation, shown by examples. Reward 1 for exactly the row's ``expected_output``, else 0.

    The answer is the first ``\boxed{[[...],...]}`` of the assistant's text that is a grid of whole numbers; where no
    box has the form of one, the first bare ``[[...],...]``.

    Source of the rule: NeMo Gym's ``arc_agi``.
    """

    description = "Grid puzzles in the manner of ARC: find the rule in the examples and apply it"
    domain = "knowledge"

    settings_type = ArcAgiSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(ArcAgiSettings, config, key="arc_agi", ignore=COMMON_KEYS)
        return (_row(number, random.Random(f"{settings.seed}/{number}")) for number in range(settings.size))

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        predicted = parse_grid("\n".join(text_parts(request.response)).strip())
        right = predicted is not None and predicted == request.get("expected_output")
        return {
            "reward": float(right),
            "predicted_output": predicted,
            "extraction_successful": predicted is not None,
        }


def parse_grid(text: str) -> Grid | None:
    """The grid that ``text`` answers with: see `ArcAgi`."""
    candidates = _BOXED.findall(text) or _BARE.findall(text)
    return next((grid for grid in map(_grid, candidates) if grid is not None), None)


def _grid(text: str) -> Grid | None:
    try:
        rows = orjson.loads("".join(text.split()))
    except orjson.JSONDecodeError:
        return None
    if not rows or not all(isinstance(row, list) and all(isinstance(cell, int) for cell in row) for row in rows):
        return None
    return rows if rows[0] else None


def _tile(grid: Grid) -> Grid:
    return [row * 2 for row in grid] * 2


def _recolor(grid: Grid) -> Grid:
    return [[(cell + 1) % 10 for cell in row] for row in grid]


_RULES: tuple[Callable[[Grid], Grid], ...] = (
    lambda grid: [row[::-1] for row in grid],
    lambda grid: grid[::-1],
    lambda grid: [list(column) for column in zip(*grid, strict=True)],
    lambda grid: [list(column) for column in zip(*grid[::-1], strict=True)],
    _tile,
    _recolor,
)


def _row(number: int, source: random.Random) -> dict[str, Any]:
    rule = source.choice(_RULES)
    grids = [_random_grid(source) for _ in range(4)]
    train = [{"input": grid, "output": rule(grid)} for grid in grids[:-1]]
    shown = "\n\n".join(
        f"Example {position}:\nInput:\n{_shown(pair['input'])}\nOutput:\n{_shown(pair['output'])}"
        for position, pair in enumerate(train, 1)
    )
    question = (
        f"Every output below comes from its input by one and the same rule.\n\n{shown}\n\n"
        f"Apply the rule to this input:\n{_shown(grids[-1])}\n\n"
        r"Give the output as rows of numbers in a box, for example \boxed{[[1,2],[3,4]]}."
    )
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question}]},
        "train": train,
        "test_input": grids[-1],
        "expected_output": rule(grids[-1]),
        "task_id": f"generated-{number}",
    }


def _random_grid(source: random.Random) -> Grid:
    height, width = source.randint(2, 4), source.randint(2, 4)
    return [[source.randint(0, 9) for _ in range(width)] for _ in range(height)]


def _shown(grid: Grid) -> str:
    return "\n".join(" ".join(map(str, row)) for row in grid)
