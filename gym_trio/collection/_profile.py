"""``eval profile`` over files."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
from array import array
from collections.abc import Callable, Iterator
from typing import IO, Any

import attrs

from ..errors import RowError, UsageError
from ..metrics import Profile, profile
from ._jsonl import dump_json, open_to_read, parse_line, write_rows, write_whole
from ._paths import RunFiles
from ._repeated import RepeatedLines, told
from ._shards import placed_rows


@attrs.frozen(kw_only=True)
class Profiled:
    """A profile, and the three files that hold it."""

    profile: Profile
    paths: tuple[pathlib.Path, ...]
    notes: tuple[str, ...]


def profile_files(
    rollouts: str | os.PathLike[str],
    *,
    inputs: str | os.PathLike[str] | None = None,
    allow_partial: bool = False,
    default_agent: str = "agent",
) -> Profiled:
    """Profile the rewards of a run, and write the three files beside its rollouts.

    ``inputs`` are the materialised rows; by default those beside the rollouts.

    **Errors**: `UsageError` for a missing file; `RowError` when the rows do not match, or some are missing and
    ``allow_partial`` was not given.
    """
    files = RunFiles.of(rollouts)
    materialized = pathlib.Path(inputs) if inputs is not None else files.materialized
    open_to_read(files.output).close()  # where both are missing, it is the one to be named
    if inputs is None and not materialized.is_file():
        raise UsageError(f"{materialized}: there is no such file; name the rows that were run with --inputs")
    notes: list[str] = []
    given, done = _RowFile(materialized, notes), _RowFile(files.output, notes)
    with given.opened() as input_at:
        try:
            made = profile(given, done, input_at=input_at, allow_partial=allow_partial, default_agent=default_agent)
        except RowError as error:
            raise _placed(error, given, done) from None
        write_rows(files.profile, made.reward_rows())
    write_whole(files.agent_metrics, dump_json(made.agent_metrics()))
    write_whole(files.repeat_metrics, dump_json(made.repeat_level_metrics()))
    notes += told(done.repeated.find([done.path]))
    return Profiled(profile=made, paths=(files.profile, files.agent_metrics, files.repeat_metrics), notes=tuple(notes))


class _RowFile:
    """The rows of a file, one at a time; of those that have passed only where they stand is kept."""

    def __init__(self, path: pathlib.Path, notes: list[str]) -> None:
        self.path = path
        self.repeated = RepeatedLines()
        self.line: int | None = None  # of the row that was given last, while there may be more
        self._notes = notes
        self._offsets: array[int] = array("Q")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line, offset, row in placed_rows(self.path, self._notes):
            self.line = line
            self._offsets.append(offset)
            self.repeated.note(row)
            yield row
        self.line = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[Callable[[int], dict[str, Any]]]:
        """Gives the row that came at a position, by reading it again."""
        with open_to_read(self.path) as file:
            yield functools.partial(self._row, file)

    def _row(self, file: IO[bytes], position: int) -> dict[str, Any]:
        file.seek(self._offsets[position])
        return parse_line(file.readline(), self.path, position + 1)


def _placed(error: RowError, given: _RowFile, done: _RowFile) -> RowError:
    """The same error with the file and the line that were being read; without one it is of the whole."""
    said = str(error)
    if error.source is not None and error.line is not None:
        if error.source not in ("inputs", "rollouts"):
            return error
        said = said.removeprefix(f"{error.source}:{error.line}: ")
    for file in (given, done):
        if file.line is not None:
            return RowError(said, source=str(file.path), line=file.line)
    return RowError(f"{said}; --allow-partial-rollouts profiles those that are there", source=str(done.path))
