"""``gym-trio eval run``: rollouts of an environment, scored, written and summarised."""

from __future__ import annotations

import logging
import pathlib
import sys
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal

import attrs
import trio
from cyclopts import Parameter

from ..capture import check_mask_fraction
from ..collection import (
    RunOptions,
    RunReport,
    check_trackers,
    health_check_dir,
    keys_without_effect,
    options_from,
    prepare_run,
    read_jsonl,
    rollouts_of,
    stream_arguments,
    track_run,
)
from ..config import GymConfig
from ..metrics import normalize_ignored
from ..sessions import check_seconds
from ._app import Exit
from ._configure import ModelFlags, configure, rows_of, split_words
from ._console import print_line, tell
from ._preflight import check_endpoints, check_head, check_servers
from ._report import show_report
from ._run import RunPlan, carry_out
from ._telemetry import check_telemetry, open_telemetry

__all__ = ["eval_run"]

Switch = Parameter(negative=())
CONCURRENCY = 16
ROLLOUTS = "rollouts.jsonl"


def eval_run(
    *words: str,
    config: Annotated[list[pathlib.Path] | None, Parameter(name=["--config"], negative=())] = None,
    model_type: str | None = None,
    model_url: str | None = None,
    model: Annotated[str | None, Parameter(name=["--model", "-m"])] = None,
    model_api_key: str | None = None,
    input: Annotated[pathlib.Path | None, Parameter(name=["--input", "-i"])] = None,
    output: Annotated[pathlib.Path | None, Parameter(name=["--output", "-o"])] = None,
    agent: Annotated[str | None, Parameter(name=["--agent", "-a"])] = None,
    limit: int | None = None,
    num_repeats: str | None = None,
    interleave_repeats: Annotated[bool, Switch] = False,
    prompt_config: pathlib.Path | None = None,
    shard: str | None = None,
    split: Literal["train", "validation", "benchmark", "example"] | None = None,
    concurrency: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_output_tokens: int | None = None,
    rollout_timeout_seconds: float | None = None,
    drain_grace_seconds: float = 5.0,
    serve: Literal["memory", "sockets", "processes"] = "memory",
    no_serve: Annotated[bool, Switch] = False,
    resume: Annotated[bool, Switch] = False,
    disable_aggregation: Annotated[bool, Switch] = False,
    no_health_check: Annotated[bool, Switch] = False,
    health_check_ignore: Annotated[list[str] | None, Switch] = None,
    fsync: Annotated[bool, Switch] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative=())] = False,
) -> None:
    """Run rollouts of an environment and score them.

    Ctrl-C, or SIGTERM, stops the run: what has finished is written, what is in flight gets the drain grace, the report
    is printed, and the exit code is 130 or 143. A second one cuts the grace. --resume goes on where a run ended.

    Parameters
    ----------
    words
        The environment's name (gym-trio list) or its folder, and any number of ++key=value overrides.
    config
        A configuration file in NeMo Gym's form; may be given several times.
    model_type
        local (a small model in this machine), openai_model, vllm_model or scripted_model.
    model_url
        The base URL of an OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1.
    model
        The model's name at the endpoint.
    model_api_key
        The endpoint's key; better in env.yaml (policy_api_key) or in POLICY_API_KEY or OPENAI_API_KEY.
    input
        A JSONL file of rows, in place of those that the environment brings.
    output
        The rollout file; its siblings are named after it. By default results/rollouts.jsonl.
    agent
        The agent for rows that name none.
    limit
        Run the first so many rows.
    num_repeats
        Run each row so often: a number, or {agent: number, ...}.
    interleave_repeats
        All rows once, then all again, in place of each row's repeats in a row.
    prompt_config
        A YAML file with the system and user prompt to wrap around each row.
    shard
        I/N: run the I-th of N parts.
    split
        Which datasets of the configuration to run.
    concurrency
        How many rollouts are in flight at most; 16 by default.
    temperature
        Overrides the rows' own.
    top_p
        Overrides the rows' own.
    max_output_tokens
        Overrides the rows' own.
    rollout_timeout_seconds
        The most that one rollout may take.
    drain_grace_seconds
        What rollouts in flight get to finish when the run is stopped.
    serve
        Servers in this process without sockets, each on a loopback port of it, or each a process.
    no_serve
        Use the servers of a running fleet (gym-trio env start) at the configuration's head server.
    resume
        Go on with an earlier run of the same output.
    disable_aggregation
        Write no aggregate metrics.
    no_health_check
        Write no health check.
    health_check_ignore
        A health check to leave out; may be given several times, or as a,b.
    fsync
        Force every row to the disk.
    as_json
        Print the report as JSON.
    verbose
        Log what the servers do.
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, stream=sys.stderr, format="%(message)s")
    name, overrides = split_words(words)
    flags = {
        "limit": limit,
        "num_repeats": num_repeats,
        "interleave_repeats": interleave_repeats or None,
        "prompt_config": prompt_config,
        "shard": shard,
        "split": split,
        "agent_name": agent,
        "num_samples_in_parallel": concurrency,
        "rollout_timeout_seconds": rollout_timeout_seconds,
        "resume_from_cache": resume or None,
        "disable_aggregation": disable_aggregation or None,
        "fsync": fsync or None,
        "responses_create_params.temperature": temperature,
        "responses_create_params.top_p": top_p,
        "responses_create_params.max_output_tokens": max_output_tokens,
    }
    chosen = [f"++{key}={_spelled(value)}" for key, value in flags.items() if value is not None]
    model_flags = ModelFlags(model_type=model_type, model_url=model_url, model=model, model_api_key=model_api_key)
    loaded = configure(name, config or [], model_flags, [*overrides, *chosen], need_model=not no_serve)
    if loaded.run.verbose:
        logging.getLogger().setLevel(logging.INFO)
    as_json = as_json or loaded.run.json
    for warning in (*loaded.warnings, *keys_without_effect(loaded)):
        tell(f"warning: {warning}")
    rows = input or loaded.run.input_jsonl_fpath or BroughtRows(loaded, split)
    options = options_from(
        loaded,
        rows=rows,
        output=output or loaded.run.output_jsonl_fpath or pathlib.Path(loaded.run.results_dir or "results", ROLLOUTS),
        agents=() if no_serve else None,
    )
    plan = RunPlan(
        config=loaded,
        serve=serve,
        connect=no_serve,
        stream_arguments=stream_arguments(loaded, max_concurrent=loaded.run.num_samples_in_parallel or CONCURRENCY),
        grace_seconds=drain_grace_seconds,
        aggregate=not loaded.run.disable_aggregation,
        quiet=as_json,
    )
    ignored = None if no_health_check else normalize_ignored(health_check_ignore)
    check_plan(plan, rows)
    if loaded.run.dry_run:
        print_line(f"dry run: {rollouts_of(options)} rollouts would be made; no server was started, no file written")
        return
    report, exit_code = run_prepared(options, plan)
    raise Exit(finish(report, loaded, exit_code, ignored_checks=ignored, as_json=as_json))


def check_plan(plan: RunPlan, rows: str | pathlib.Path | BroughtRows) -> None:
    """Preparing moves an earlier run's files out of the way: whatever can be wrong is found before.

    **Errors**: `UsageError`, `RowError`, `MissingExtraError`: what would end the run later.
    """
    check_seconds("--drain-grace-seconds", plan.grace_seconds)
    check_telemetry(plan.config)
    first_row(rows)
    check_trackers(plan.config.run)
    if not plan.connect:
        check_servers(plan.config)


def run_prepared(options: RunOptions, plan: RunPlan) -> tuple[RunReport, int]:
    """Prepare the run and carry it out, once its endpoints, or its head server, are seen to be there."""
    loaded = plan.config
    look = check_head if plan.connect else check_endpoints
    if not loaded.run.resume_from_cache:
        look(loaded)
    with prepare_run(options) as prepared:
        for note in prepared.notes:
            tell(note)
        if loaded.run.resume_from_cache:
            if prepared.pending:
                look(loaded)
            else:
                tell(f"{options.output}: nothing is left to run")
        with open_telemetry(loaded):
            return trio.run(carry_out, prepared, plan)


def finish(
    report: RunReport, loaded: GymConfig, exit_code: int, *, ignored_checks: Collection[str] | None, as_json: bool
) -> int:
    """Check the health of the rollouts (not with None), show the report, tell the trackers; the exit code of it all."""
    health = None
    if ignored_checks is not None and report.files.output.exists():
        name = report.files.output.name
        health = health_check_dir(report.files.folder, rollouts_file=name, ignored=ignored_checks)
    show_report(report, health, as_json=as_json)
    for note in track_run(report, loaded.run, loaded.redacted()):
        tell(note)
    tokens = loaded.run.token_id_capture
    if tokens.enabled:
        check_mask_fraction(report.coverage.masked, report.coverage.expected, tokens.max_mask_fraction)
    if not exit_code and loaded.run.require_complete and not report.complete:
        return 1
    return exit_code


def first_row(rows: str | pathlib.Path | BroughtRows) -> None:
    """**Errors**: those of a file that is not there, or of an environment that cannot make its rows."""
    source = iter(rows) if isinstance(rows, BroughtRows) else read_jsonl(pathlib.Path(rows))
    next(source, None)


def _spelled(value: Any) -> str:
    return "true" if value is True else str(value)


@attrs.frozen
class BroughtRows:
    """The rows that come with a configuration, as something that can be gone through more than once."""

    config: GymConfig
    split: str | None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return rows_of(self.config, self.split)
