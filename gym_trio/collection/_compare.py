"""``eval compare`` over files."""

from __future__ import annotations

import datetime
import os
import pathlib
from collections.abc import Iterator
from typing import Any, Literal

import attrs

from ..errors import UsageError
from ..metrics import Comparison, compare, to_json, to_markdown
from ._aggregate import aggregate_rows, entries_of
from ._entries import read_entries
from ._jsonl import dump_json, write_whole
from ._paths import RunFiles


@attrs.frozen(kw_only=True)
class Compared:
    """A comparison, and the reports that were written of it."""

    comparison: Comparison
    markdown: str
    paths: tuple[pathlib.Path, ...]
    notes: tuple[str, ...]


def compare_files(
    baseline: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    *,
    baseline_metrics: str | os.PathLike[str] | None = None,
    candidate_metrics: str | os.PathLike[str] | None = None,
    agent: str | None = None,
    baseline_agent: str | None = None,
    candidate_agent: str | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    report_format: Literal["md", "json", "both"] = "both",
) -> Compared:
    """Compare two runs, each given by its rollouts; their aggregate metrics are read, or made where they are missing.

    The reports are written to ``output_dir``; without it none is.

    **Errors**: `UsageError` for a missing file, or when there is nothing to compare.
    """
    paths = (pathlib.Path(baseline), pathlib.Path(candidate))
    notes: list[str] = []
    metrics = (baseline_metrics, candidate_metrics)
    found = [_Given.of(path, given, notes) for path, given in zip(paths, metrics, strict=True)]
    folder = _made(output_dir) if output_dir is not None else None
    made = compare(
        *(side.entries() for side in found),
        agent=agent,
        baseline_agent=baseline_agent,
        candidate_agent=candidate_agent,
        labels=_labels(*paths),
    )
    provenance = {
        "baseline": str(found[0].path),
        "candidate": str(found[1].path),
        "generated_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    markdown = to_markdown(made, provenance)
    written = []
    for form, content in (("md", markdown.encode()), ("json", dump_json(to_json(made, provenance)))):
        if folder is not None and report_format in (form, "both"):
            written.append(folder / f"compare_report.{form}")
            write_whole(written[-1], content)
    return Compared(comparison=made, markdown=markdown, paths=tuple(written), notes=tuple(dict.fromkeys(notes)))


def _made(output_dir: str | os.PathLike[str]) -> pathlib.Path:
    """The folder of the reports; that it cannot be made is told before a million rows are read."""
    folder = pathlib.Path(output_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror})") from None
    return folder


def _labels(baseline: pathlib.Path, candidate: pathlib.Path) -> tuple[str, str]:
    if baseline.name != candidate.name:
        return baseline.stem, candidate.stem
    return (str(baseline), str(candidate)) if baseline != candidate else ("baseline", "candidate")


@attrs.frozen
class _Given:
    """One run: a file of aggregate metrics, or of rollouts of which they are made."""

    path: pathlib.Path
    is_aggregate: bool
    notes: list[str]

    @classmethod
    def of(cls, rollouts: pathlib.Path, given: str | os.PathLike[str] | None, notes: list[str]) -> _Given:
        """The file that was given, the one beside the rollouts, or the rollouts themselves."""
        if given is not None:
            return cls(pathlib.Path(given), True, notes)
        if rollouts.suffix == ".json":
            return cls(rollouts, True, notes)
        beside = RunFiles(rollouts).aggregate
        return cls(beside, True, notes) if beside.is_file() else cls(rollouts, False, notes)

    def entries(self) -> Iterator[dict[str, Any]]:
        """The aggregate metrics, read or made when they are asked for, so that one run is gone before the next."""
        if self.is_aggregate:
            yield from read_entries(self.path)
            return
        aggregate = aggregate_rows([self.path], notes=self.notes)
        if not aggregate.sources:
            raise UsageError(f"{self.path}: has no rollouts to compare")
        yield from entries_of(aggregate)
