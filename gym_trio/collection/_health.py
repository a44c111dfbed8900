"""The health check over a run's folder."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable
from typing import Any

import attrs
import orjson

from ..errors import RowError, UsageError
from ..metrics import HealthChecker, HealthReport
from ._jsonl import dump_json, open_to_read, parse_line, replacing, write_rows
from ._paths import RunFiles
from ._shards import is_rollouts


@attrs.frozen(kw_only=True)
class HealthChecked:
    """A verdict on each rollout, and where the verdicts were written."""

    report: HealthReport
    inputs: tuple[pathlib.Path, ...]
    paths: tuple[pathlib.Path, ...]


def health_check_dir(
    folder: str | os.PathLike[str],
    *,
    rollouts_file: str | os.PathLike[str] | None = None,
    ignored: str | Iterable[str] | None = None,
) -> HealthChecked:
    """Check the rollouts in a run's folder, and write ``quality_summary.json`` and ``rollout_verdicts.jsonl`` there.

    ``rollouts_file`` is the file to check, by a path or by its name in the folder; without it every file of rollouts
    in the folder is. A file in place of the folder is itself checked. A line that is no JSON object is a finding, not
    an error.

    **Errors**: `UsageError` for a folder or file that is missing, and for an unknown check in ``ignored``.
    """
    checker = HealthChecker(ignored=ignored)
    place = pathlib.Path(folder)
    if place.is_file() and rollouts_file is None:
        place, rollouts_file = place.parent, place.name
    if not place.is_dir():
        raise UsageError(f"{place}: there is no such folder")
    inputs = [_in(place, pathlib.Path(rollouts_file))] if rollouts_file is not None else _all_in(place)
    for index, path in enumerate(inputs):
        _check(checker, path, index)
    report = checker.finish()
    files = RunFiles(place / "rollouts.jsonl")
    _write_summary(files.quality, report.summary)
    write_rows(files.verdicts, report.verdicts())
    return HealthChecked(report=report, inputs=tuple(inputs), paths=(files.quality, files.verdicts))


def _write_summary(path: pathlib.Path, summary: dict[str, Any]) -> None:
    """The summary with a line for each task, so that a million of them are never one text."""
    with replacing(path) as file:
        file.write(b'{\n"run": ' + dump_json(summary["run"]).rstrip() + b',\n"tasks": {')
        for number, (task, entry) in enumerate(summary["tasks"].items()):
            file.write((b",\n" if number else b"\n") + orjson.dumps(task) + b": " + orjson.dumps(entry))
        file.write(b"}\n}\n")


def _in(folder: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    found = next((one for one in (folder / path, path) if one.is_file()), None)
    if found is None:
        raise UsageError(f"{folder / path}: there is no such file")
    return found


def _all_in(folder: pathlib.Path) -> list[pathlib.Path]:
    found = sorted(path for path in folder.glob("*.jsonl") if is_rollouts(path))
    if not found:
        raise UsageError(f"{folder}: holds no file of rollouts (*.jsonl); give --rollouts-file")
    return found


def _check(checker: HealthChecker, path: pathlib.Path, index: int) -> None:
    with open_to_read(path) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                row = parse_line(line, path, number)
            except RowError as error:
                checker.add_unreadable(str(path), number, str(error), index)
            else:
                checker.add(row, source_file=str(path), line=number, source_index=index)
