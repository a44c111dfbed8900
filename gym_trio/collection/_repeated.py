"""`RepeatedLines`: lines that say a second time what another line says of the same attempt; counted once, and named."""

from __future__ import annotations

import os
import pathlib
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import orjson

from ._keys import ATTEMPT, ROLLOUT, TASK, NumberSet, digest
from ._shards import whole_rows

_SHOWN = 5


def rollout_number(row: Mapping[str, Any]) -> int | None:
    """Eight bytes for a row's rollout and who ran it; None for a row that does not say which it is."""
    task, rollout = row.get(TASK), row.get(ROLLOUT)
    if task is None or rollout is None:
        return None
    reference = row.get("agent_ref")
    agent = reference.get("name") if isinstance(reference, Mapping) else None
    return _number([task, rollout, agent, row.get("_ng_environment_server")])


def attempt_number(row: Mapping[str, Any]) -> int | None:
    """The same for one attempt at a rollout."""
    rollout = rollout_number(row)
    return None if rollout is None else _number([rollout, row.get(ATTEMPT) or 0])


def _number(identity: list[Any]) -> int:
    return digest(orjson.dumps(identity, default=str))


@attrs.frozen
class Repetition:
    """A line that repeats another, which stands before it in the same file or in one before it."""

    path: pathlib.Path
    line: int
    first: tuple[pathlib.Path, int]
    row: dict[str, Any]  # its task, repeat and attempt

    @classmethod
    def of(cls, row: Mapping[str, Any], path: pathlib.Path, line: int, first: tuple[pathlib.Path, int]) -> Repetition:
        """Of ``row``, nothing but its identity is kept."""
        return cls(path, line, first, {name: row[name] for name in (TASK, ROLLOUT, ATTEMPT) if name in row})

    def __str__(self) -> str:
        path, line = self.first
        where = f"line {line}" if path == self.path else f"{path}:{line}"
        return f"line {self.line} repeats {where} (task {self.row[TASK]}, repeat {self.row[ROLLOUT]})"


class RepeatedLines:
    """Takes every row as it passes, eight bytes of each; the files are read again only when some are repeated."""

    def __init__(self) -> None:
        self._numbers: array[int] = array("Q")

    def note(self, row: Mapping[str, Any]) -> None:
        """Take a row."""
        number = attempt_number(row)
        if number is not None:
            self._numbers.append(number)

    def find(self, paths: Iterable[str | os.PathLike[str]]) -> list[Repetition]:
        """The lines of the files, of which every row was noted, that repeat another."""
        repeated = NumberSet(self._numbers).repeated()
        found: list[Repetition] = []
        first: dict[int, tuple[pathlib.Path, int]] = {}
        for path in map(pathlib.Path, paths) if repeated else ():
            for line, row in whole_rows(path, []):
                number = attempt_number(row)
                if number is None or number not in repeated:
                    continue
                if number in first:
                    found.append(Repetition.of(row, path, line, first[number]))
                else:
                    first[number] = (path, line)
        return found


def told(repetitions: Iterable[Repetition]) -> list[str]:
    """One line for each file that has some."""
    by_path: dict[pathlib.Path, list[Repetition]] = {}
    for repetition in repetitions:
        by_path.setdefault(repetition.path, []).append(repetition)
    return [f"{path}: {_some(of_path)}; counted once" for path, of_path in by_path.items()]


def _some(repetitions: list[Repetition]) -> str:
    more = len(repetitions) - _SHOWN
    return ", ".join(map(str, repetitions[:_SHOWN])) + (f" and {more} more lines repeat others" if more > 0 else "")
