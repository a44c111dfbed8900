"""``eval profile`` and ``eval compare`` over files."""

from __future__ import annotations

import datetime
import os
import pathlib
from collections.abc import Iterator
from typing import Any, Literal

import attrs
import orjson

from ..errors import UsageError
from ..metrics import Comparison, Profile, compare, profile, to_json, to_markdown
from ._aggregate import aggregate_rows
from ._jsonl import dump_json, open_to_read, write_rows, write_whole
from ._paths import RunFiles
from ._shards import whole_rows


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
    notes: list[str] = []
    made = profile(
        _rows(materialized, notes),
        _rows(files.output, notes),
        allow_partial=allow_partial,
        default_agent=default_agent,
    )
    write_rows(files.profile, made.reward_rows())
    write_whole(files.agent_metrics, dump_json(made.agent_metrics()))
    write_whole(files.repeat_metrics, dump_json(made.repeat_level_metrics()))
    return Profiled(profile=made, paths=(files.profile, files.agent_metrics, files.repeat_metrics), notes=tuple(notes))


def _rows(path: pathlib.Path, notes: list[str]) -> Iterator[dict[str, Any]]:
    return (row for _, row in whole_rows(path, notes))


@attrs.frozen(kw_only=True)
class Compared:
    """A comparison, and the reports that were written of it."""

    comparison: Comparison
    markdown: str
    paths: tuple[pathlib.Path, ...]


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
    found = [_metrics(path, given) for path, given in zip(paths, (baseline_metrics, candidate_metrics), strict=True)]
    made = compare(
        *(entries for entries, _ in found),
        agent=agent,
        baseline_agent=baseline_agent,
        candidate_agent=candidate_agent,
        labels=_labels(*paths),
    )
    provenance = {
        "baseline": str(found[0][1]),
        "candidate": str(found[1][1]),
        "generated_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    markdown = to_markdown(made, provenance)
    written = []
    if output_dir is not None:
        folder = pathlib.Path(output_dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be made ({error.strerror})") from None
        for form, content in (("md", markdown.encode()), ("json", dump_json(to_json(made, provenance)))):
            if report_format in (form, "both"):
                written.append(folder / f"compare_report.{form}")
                write_whole(written[-1], content)
    return Compared(comparison=made, markdown=markdown, paths=tuple(written))


def _labels(baseline: pathlib.Path, candidate: pathlib.Path) -> tuple[str, str]:
    if baseline.name != candidate.name:
        return baseline.stem, candidate.stem
    return (str(baseline), str(candidate)) if baseline != candidate else ("baseline", "candidate")


def _metrics(rollouts: pathlib.Path, given: str | os.PathLike[str] | None) -> tuple[list[dict[str, Any]], pathlib.Path]:
    """Aggregate metrics: from the file that was given, the one beside the rollouts, or the rollouts themselves."""
    beside = RunFiles(rollouts).aggregate
    path = pathlib.Path(given) if given is not None else beside
    if given is None and rollouts.suffix == ".json":
        path = rollouts
    elif given is None and not beside.is_file():
        return aggregate_rows([rollouts], notes=[]).to_json(), rollouts
    with open_to_read(path) as file:
        try:
            entries = orjson.loads(file.read())
        except orjson.JSONDecodeError as error:
            raise UsageError(f"{path}: is not JSON ({error.msg} at line {error.lineno})") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{path}: holds no aggregate metrics (a list with an entry for each agent)")
    return entries, path
