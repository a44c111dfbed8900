"""Recorded rollouts of which a file has more than one row: each is taken once."""

from __future__ import annotations

import pathlib
from collections.abc import Set

from ._keys import pack
from ._repeated import Repetition, attempt_number, told
from ._source import InputRow, RowSource


def rows_to_leave_out(source: RowSource, keys: Set[int]) -> tuple[frozenset[int], list[str]]:
    """The lines of the rollouts ``keys`` that are not to be taken, and what is to be told of them.

    Of each rollout the row of the latest attempt is taken; of two that are the same attempt by the same agent, the
    first. Rows of one attempt by two agents are left for the caller to refuse.
    """
    path = pathlib.Path(source.name or "rows")
    taken: dict[int, InputRow] = {}
    repetitions: list[Repetition] = []
    older: set[int] = set()
    for given in source:
        if given.task is None or given.rollout is None or (key := pack(given.task, given.rollout)) not in keys:
            continue
        before = taken.get(key)
        if before is None or given.attempt > before.attempt:
            older |= {before.line} if before is not None else set()
            taken[key] = given
        elif given.attempt < before.attempt:
            older.add(given.line)
        elif attempt_number(given.row) == attempt_number(before.row):
            repetitions.append(Repetition.of(given.row, path, given.line, (path, before.line)))
    notes = told(repetitions)
    if older:
        first = ", ".join(map(str, sorted(older)[:5])) + (", …" if len(older) > 5 else "")
        notes.append(f"{path}: {len(older)} lines are of older attempts, and were left out ({first})")
    return frozenset(older | {repetition.line for repetition in repetitions}), notes
