"""``gym-trio eval aggregate | profile | compare | health-check``: what is read from the files of finished runs."""

from __future__ import annotations

import os
import pathlib
from typing import Annotated, Literal

from cyclopts import Parameter

from ..collection import aggregate_files, compare_files, health_check_dir, profile_files
from ..config import GymConfig, RunSettings, load_config
from ._console import print_json, print_line, tell
from ._metrics import hooks_of
from ._report import show_metrics

__all__ = ["aggregate", "compare", "health_check", "profile"]

AsJson = Annotated[bool, Parameter(name="--json", negative=())]


def aggregate(
    *patterns: str,
    input_glob: Annotated[list[str] | None, Parameter(name=["--input-glob", "-i"], negative=())] = None,
    output: Annotated[pathlib.Path | None, Parameter(name=["--output", "-o"])] = None,
    config: Annotated[list[pathlib.Path] | None, Parameter(negative=())] = None,
    count_failure_classes_as_zero: Annotated[list[str] | None, Parameter(negative=())] = None,
    count_missing_rollouts_as_zero: Annotated[bool, Parameter(negative=())] = False,
    no_merge: Annotated[bool, Parameter(negative=())] = False,
    as_json: AsJson = False,
) -> None:
    """Aggregate metrics of one or more rollout files: of a run, or of the shards of one.

    Parameters
    ----------
    patterns
        Rollout files or globs.
    input_glob
        The same, as an option; may be given several times.
    output
        The rollout file that the result is named after; the shards are merged into it. Nothing is written without it.
    config
        A configuration whose environments' own metrics (compute_metrics, get_key_metrics) are added.
    count_failure_classes_as_zero
        A failure class that counts as reward 0; may be given several times.
    count_missing_rollouts_as_zero
        Rollouts without a result count as reward 0.
    no_merge
        Write the metrics only.
    as_json
        Print the metrics as JSON.
    """
    loaded = load_config(config, env=os.environ) if config else GymConfig(servers=(), settings={}, run=RunSettings())
    made = aggregate_files(
        [*patterns, *(input_glob or ())],
        output=output,
        merge=not no_merge,
        hooks=hooks_of(loaded),
        count_failure_classes_as_zero=count_failure_classes_as_zero or (),
        count_missing_rollouts_as_zero=count_missing_rollouts_as_zero,
    )
    for note in made.notes:
        tell(note)
    if as_json:
        print_json({"metrics": made.entries, "coverage": made.line, "path": _text(made.path), "notes": made.notes})
        return
    for entry in made.entries:
        show_metrics(entry)
    print_line(f"coverage: {made.line}")
    for label, path in (("metrics", made.path), ("rollouts", made.merged)):
        if path is not None:
            print_line(f"{label}: {path}")


def profile(
    rollouts: pathlib.Path,
    *,
    inputs: pathlib.Path | None = None,
    allow_partial_rollouts: Annotated[bool, Parameter(negative=())] = False,
    as_json: AsJson = False,
) -> None:
    """Per-task statistics of a run, in three files beside its rollouts.

    Parameters
    ----------
    rollouts
        The rollout file.
    inputs
        The materialised inputs; by default those beside the rollouts.
    allow_partial_rollouts
        Profile what is there when some are missing.
    as_json
        Print where the files are, and the completion, as JSON.
    """
    made = profile_files(rollouts, inputs=inputs, allow_partial=allow_partial_rollouts)
    for note in made.notes:
        tell(note)
    completion = made.profile.completion
    if as_json:
        print_json({"completion": completion, "paths": [str(path) for path in made.paths]})
        return
    for key, value in completion.items():
        print_line(f"{key}: {value:g}" if isinstance(value, int | float) else f"{key}: {value}")
    for path in made.paths:
        print_line(str(path))


def compare(
    baseline: pathlib.Path,
    candidates: pathlib.Path,
    *,
    baseline_agg_metrics: pathlib.Path | None = None,
    candidates_agg_metrics: pathlib.Path | None = None,
    agent: str | None = None,
    baseline_agent: str | None = None,
    candidate_agents: str | None = None,
    output_dir: Annotated[pathlib.Path | None, Parameter(name=["--output-dir", "-o"])] = None,
    report_format: Literal["md", "json", "both"] = "both",
    as_json: AsJson = False,
) -> None:
    """Compare two runs: difference with its interval, and the tasks that flipped.

    Parameters
    ----------
    baseline
        The rollout file of the one run.
    candidates
        The rollout file of the other.
    baseline_agg_metrics
        Its aggregate metrics, when they are not beside it.
    candidates_agg_metrics
        Its aggregate metrics, when they are not beside it.
    agent
        The agent to compare, when there are several.
    baseline_agent
        The agent of the baseline, when the two have other names.
    candidate_agents
        The agent of the candidate, when the two have other names.
    output_dir
        Where to write compare_report.md and compare_report.json.
    report_format
        Which of the two to write.
    as_json
        Print JSON in place of Markdown.
    """
    made = compare_files(
        baseline,
        candidates,
        baseline_metrics=baseline_agg_metrics,
        candidate_metrics=candidates_agg_metrics,
        agent=agent,
        baseline_agent=baseline_agent,
        candidate_agent=candidate_agents,
        output_dir=output_dir,
        report_format=report_format,
    )
    for note in made.notes:
        tell(note)
    if as_json:
        from ..metrics import to_json

        print_json(to_json(made.comparison))
    else:
        print_line(made.markdown)
    for path in made.paths:
        tell(str(path))


def health_check(
    run_dir: pathlib.Path,
    *,
    rollouts_file: pathlib.Path | None = None,
    ignore: Annotated[list[str] | None, Parameter(name=["--ignore", "--ignore-checks"], negative=())] = None,
    as_json: AsJson = False,
) -> None:
    """Find rollouts whose evidence is broken: quality_summary.json and rollout_verdicts.jsonl.

    Unhealthy rollouts do not change the exit code.

    Parameters
    ----------
    run_dir
        The folder of a run, or its rollout file.
    rollouts_file
        The rollout file in the folder; all of them by default.
    ignore
        A check to leave out; may be given several times, or as a,b.
    as_json
        Print the summary as JSON.
    """
    made = health_check_dir(run_dir, rollouts_file=rollouts_file, ignored=ignore)
    if len(made.inputs) > 1:
        names = ", ".join(path.name for path in made.inputs[:5]) + (", …" if len(made.inputs) > 5 else "")
        tell(f"{len(made.inputs)} files were taken as one run ({names}); --rollouts-file NAME checks one of them")
    if as_json:
        print_json(made.report.summary)
        return
    print_line(made.report.line)
    for check, count in sorted(made.report.summary["run"]["issues"].items()):
        if count:
            print_line(f"  {check}: {count}")
    for path in made.paths:
        print_line(str(path))


def _text(path: pathlib.Path | None) -> str | None:
    return None if path is None else str(path)
