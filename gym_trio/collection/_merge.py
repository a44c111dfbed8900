"""The rows of many shards in one set of files, each rollout once."""

from __future__ import annotations

import pathlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import UsageError
from ._jsonl import dump_line, replacing
from ._keys import ATTEMPT, NumberSet
from ._paths import RunFiles
from ._repeated import attempt_number, rollout_number
from ._shards import sidecars, whole_rows

_Key = Callable[[dict[str, Any]], int | None]


def check_merged(inputs: Sequence[pathlib.Path], files: RunFiles) -> None:
    """**Errors**: `UsageError` where ``files`` are a run's own, or have rollouts that ``inputs`` do not have."""
    if files.identity.exists():
        raise UsageError(f"{files.output}: is the output of a run, and would be replaced; choose another --output")
    if files.output.exists():
        numbers = (rollout_number(row) for _, row in _placed(inputs))
        known = NumberSet(array("Q", (number for number in numbers if number is not None)))
        rows = (rollout_number(row) for _, row in _placed([files.output]))
        lost = sum(number is not None and number not in known for number in rows)
        if lost:
            raise UsageError(
                f"{files.output}: has {lost} rollouts that no file to be merged has, and would be replaced;"
                " name it among them, or choose another --output"
            )


def merge_rows(inputs: Sequence[pathlib.Path], files: RunFiles) -> None:
    """Write the rows of ``inputs`` and of what stands beside them to ``files``.

    Of two results for one rollout that of the later attempt is taken, of the same attempt the first. Failures are
    kept one for each attempt.

    **Errors**: `RunError` when a file cannot be written.
    """
    _merge(inputs, files.output, rollout_number)
    _merge(sidecars(inputs, "failures"), files.failures, attempt_number)
    _merge(sidecars(inputs, "materialized"), files.materialized, attempt_number)


def _merge(inputs: Sequence[pathlib.Path], output: pathlib.Path, key: _Key) -> None:
    if not inputs:
        return
    best = _best(inputs, key)
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as file:
        for place, row in _placed(inputs):
            number = key(row)
            if number is None or number not in best or best[number][1] == place:
                file.write(dump_line(row))


def _best(inputs: Sequence[pathlib.Path], key: _Key) -> dict[int, tuple[int, int]]:
    """For each rollout with more than one row: the attempt and the place of the one to take."""
    numbers = (key(row) for _, row in _placed(inputs))
    repeated = NumberSet(array("Q", (number for number in numbers if number is not None))).repeated()
    best: dict[int, tuple[int, int]] = {}
    for place, row in _placed(inputs) if repeated else ():
        number = key(row)
        if number in repeated:
            attempt = row.get(ATTEMPT) or 0
            if number not in best or attempt > best[number][0]:
                best[number] = (attempt, place)
    return best


def _placed(inputs: Sequence[pathlib.Path]) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = (row for path in inputs for _, row in whole_rows(path, []))
    yield from enumerate(rows)
