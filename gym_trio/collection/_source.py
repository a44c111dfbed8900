"""The rows that a run was given, read as often as needed and checked one by one."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import orjson

from ..errors import RowError, UsageError
from ..rollouts import rollout_id
from ._jsonl import read_jsonl
from ._keys import ATTEMPT, ROLLOUT, ROLLOUT_ID, TASK, digest, index_of
from ._prompt import Prompt
from ._shards import whole_rows

PARAMS = "responses_create_params"


@attrs.frozen
class InputRow:
    """One row as it was given, with its prompt filled in."""

    line: int
    row: dict[str, Any]
    digest: int  # of the row as it was given: identical rows are one task
    task: int | None
    rollout: int | None
    attempt: int


def read_rows(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file, one at a time, as they stand there.

    **Errors**: `UsageError` for a missing file; `RowError` that names the line which holds no JSON object.
    """
    for _, row in read_jsonl(pathlib.Path(path)):
        yield row


class RowSource:
    """Goes through the rows from the start as often as it is asked to.

    **Errors**: `RowError` that names the file and line of a row that cannot be run; `UsageError` for a file that is
    missing or has no rows.
    """

    def __init__(
        self,
        rows: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
        *,
        limit: int | None = None,
        prompt: Prompt | None = None,
        recorded: bool = False,
    ) -> None:
        self.name = str(rows) if isinstance(rows, str | os.PathLike) else None
        self._limit = limit
        self._prompt = prompt
        self._recorded = recorded
        self._left_out: frozenset[int] = frozenset()
        self.notes: list[str] = []
        if isinstance(rows, str | os.PathLike):
            self._rows: pathlib.Path | Iterable[Mapping[str, Any]] = pathlib.Path(rows)
        else:
            # An iterator can be gone through once only.
            self._rows = list(rows) if iter(rows) is rows else rows

    def __iter__(self) -> Iterator[InputRow]:
        count = 0
        for line, row in itertools.islice(self._read(), self._limit):
            count += 1
            if line in self._left_out:
                continue
            try:
                yield self._checked(line, row)
            except RowError as error:
                raise self.at(error, line) from None
        if not count:
            raise UsageError(f"{self.name}: has no rows" if self.name else "there are no rows to run")

    def leave_out(self, lines: frozenset[int]) -> None:
        """From now on go over these lines as if they were not there."""
        self._left_out = lines

    def at(self, error: RowError, line: int) -> RowError:
        """The same error with the place of the row, if it has none yet."""
        if error.source is not None:
            return error
        said = str(error).removeprefix(f"row {error.line}: ")
        return RowError(said, source=self.name, line=line)

    def _read(self) -> Iterator[tuple[int, Any]]:
        if isinstance(self._rows, pathlib.Path):
            # Of a run that is still writing, or was killed, the last line may be torn.
            yield from self._recorded_rows(self._rows) if self._recorded else read_jsonl(self._rows)
        else:
            yield from enumerate(self._rows, 1)

    def _recorded_rows(self, path: pathlib.Path) -> Iterator[tuple[int, Any]]:
        notes: list[str] = []
        yield from whole_rows(path, notes)
        self.notes += [note for note in notes if note not in self.notes]

    def _checked(self, line: int, given: Any) -> InputRow:
        if not isinstance(given, Mapping):
            raise RowError(f"must be a mapping, not {type(given).__name__}")
        row = _flat(given)
        if self._prompt is not None:
            row = _with_prompt(row, self._prompt)
        params = row.get(PARAMS)
        if not isinstance(params, Mapping):
            missing = "lacks" if params is None else "has no mapping for"
            raise RowError(f"{missing} {PARAMS!r}")
        if ROLLOUT_ID in row:
            rollout_id(row, line)  # an id that cannot be one is refused here, not when its turn comes
        if self._recorded and not isinstance(row.get("response"), Mapping):
            raise RowError("has no 'response' to verify")
        return InputRow(
            line=line,
            row=row,
            digest=_digest(given),
            task=index_of(row, TASK),
            rollout=index_of(row, ROLLOUT),
            attempt=index_of(row, ATTEMPT) or 0,
        )


def _digest(row: Mapping[str, Any]) -> int:
    try:
        text = orjson.dumps(row, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise RowError(f"cannot be written as JSON ({error})") from None
    return digest(text)


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """A materialized task row, ``{task_id, task_input}``, in the form that agents take; any other as it is."""
    inner = given.get("task_input")
    if not isinstance(inner, Mapping) or PARAMS in given:
        return dict(given)
    data = inner.get("task_data")
    rest = {name: value for name, value in given.items() if name not in ("task_input", "task_id")}
    identity = {"_ng_task_id": given["task_id"]} if "task_id" in given else {}
    return {**(data if isinstance(data, Mapping) else {}), **rest, **identity, PARAMS: inner.get(PARAMS)}


def _with_prompt(row: dict[str, Any], prompt: Prompt) -> dict[str, Any]:
    params = row.get(PARAMS) or {}
    if not isinstance(params, Mapping):
        return row
    if params.get("input"):
        raise RowError(f"has a {PARAMS}.input of its own, so --prompt-config cannot make one")
    return {**row, PARAMS: {**params, "input": prompt.fill(row)}}
