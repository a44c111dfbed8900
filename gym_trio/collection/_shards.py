"""Files of rollouts by name or glob, and the rows in them whichever file they stand in."""

from __future__ import annotations

import glob
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..errors import RowError, UsageError
from ._jsonl import open_to_read, parse_line
from ._paths import NOT_ROLLOUTS, RunFiles


def rollout_files(patterns: str | Iterable[str], *, without: pathlib.Path | None = None) -> list[pathlib.Path]:
    """The files of rollouts that the patterns name: paths or globs, also several in one text with commas between.

    A glob leaves out a run's other files, and ``without``; a path that is written out is taken as it is.

    **Errors**: `UsageError` for a path that is missing, or a glob that finds nothing.
    """
    texts = [patterns] if isinstance(patterns, str) else list(patterns)
    found: list[pathlib.Path] = []
    for pattern in (part.strip() for text in texts for part in _parts(str(text))):
        if not glob.has_magic(pattern) or pathlib.Path(pattern).is_file():
            path = pathlib.Path(pattern)
            if path.is_dir():
                raise UsageError(f"{pattern}: is a folder; name its files, such as {path / '*.jsonl'}")
            if not path.exists():
                raise UsageError(f"{pattern}: there is no such file")
            found.append(path)
            continue
        matches = [pathlib.Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
        kept = [path for path in matches if path.is_file() and is_rollouts(path) and not _same(path, without)]
        if not kept:
            raise UsageError(f"{pattern}: no file of rollouts has such a name")
        found += kept
    return list(dict.fromkeys(found))


def _parts(text: str) -> list[str]:
    return [text] if pathlib.Path(text).is_file() else [part for part in text.split(",") if part.strip()]


def is_rollouts(path: pathlib.Path) -> bool:
    """Whether a file's name is that of rollouts, and not of another of a run's files."""
    return path.suffix == ".jsonl" and not path.stem.endswith(NOT_ROLLOUTS) and not path.name.startswith(".")


def _same(path: pathlib.Path, other: pathlib.Path | None) -> bool:
    return other is not None and path.resolve() == other.resolve()


def whole_rows(path: pathlib.Path, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file that another process may still be writing: a torn last line is told of and left out.

    **Errors**: `RowError` for any other line that is no JSON object.
    """
    for number, _, row in placed_rows(path, notes):
        yield number, row


def placed_rows(path: pathlib.Path, notes: list[str]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The same with the byte at which each row's line begins."""
    end = 0
    with open_to_read(path) as file:
        for number, line in enumerate(file, 1):
            start, end = end, end + len(line)
            if line.isspace():
                continue
            try:
                row = parse_line(line, path, number)
            except RowError:
                if line.endswith(b"\n"):
                    raise
                notes.append(f"{path}:{number}: the last line is torn and was left out")
                return
            yield number, start, row


def sidecars(paths: Sequence[pathlib.Path], which: str) -> list[pathlib.Path]:
    """The ``failures`` or ``materialized`` files that stand beside files of rollouts."""
    beside = [getattr(RunFiles(path), which) for path in paths]
    return [path for path in beside if path.is_file()]
