"""What a run is asked to do, in one frozen record."""

from __future__ import annotations

import math
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import attrs

from ..config import GymConfig, InvalidSetting, positive_int
from ..errors import UsageError
from ._keys import MOST_ROLLOUTS
from ._paths import output_path
from ._run_keys import check_run_keys

DEFAULT_MAX_ATTEMPTS = 3
_SHARD = re.compile(r"(\d+)/(\d+)")


def _repeats(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    for count in value.values() if isinstance(value, Mapping) else [value]:
        positive_int(instance, attribute, count)
        if count > MOST_ROLLOUTS:
            raise InvalidSetting(attribute.name, f"must be at most {MOST_ROLLOUTS}, not {count}")


def _finite(instance: Any, attribute: attrs.Attribute[Any], value: Mapping[str, Any]) -> None:
    for name, given in value.items():
        if isinstance(given, float) and not math.isfinite(given):
            raise InvalidSetting(f"{attribute.name}.{name}", f"must be finite, not {given}")


@attrs.frozen(kw_only=True)
class RunOptions:
    """Rows, where they go, how often, and what counts.

    ``rows`` is a JSONL file, or an iterable of dicts that can be gone through more than once.
    """

    output: pathlib.Path = attrs.field(converter=output_path)
    rows: str | os.PathLike[str] | Iterable[Mapping[str, Any]] = attrs.field(repr=False)

    # Whom a row may go to. `agents` empty: any name is taken.
    agents: Collection[str] = ()
    task_sources: Mapping[str, str] = attrs.Factory(dict)  # `task_source` → the one agent in front of it
    agent: str | None = None  # for rows that name none
    agent_map: Mapping[str, str] = attrs.Factory(dict)  # name or task source → agent; "_default" for all others
    fan_out: Mapping[str, Collection[str]] = attrs.Factory(dict)

    # Environment servers: each with the agent behind it. With a name or routes, rows go to them and not to agents.
    environments: Mapping[str, str | None] = attrs.Factory(dict)
    environment: str | None = None
    environment_routes: Mapping[str, str] = attrs.Factory(dict)  # taskset → environment server

    # Which rows, how often, in what order
    limit: int | None = None
    num_repeats: int | Mapping[str, int] = attrs.field(default=1, validator=_repeats)
    num_repeats_add_seed: bool = False
    interleave_repeats: bool = False
    shard: tuple[int, int] | None = None  # (I, N): the tasks whose index is I modulo N
    longest_first: bool = False  # on resume, by what was measured

    # What is added to a row
    prompt_config: pathlib.Path | None = None
    responses_create_params: Mapping[str, Any] = attrs.field(factory=dict, validator=_finite)
    skills: str | None = None

    # Resume
    resume: bool = False
    max_attempts: int = attrs.field(default=DEFAULT_MAX_ATTEMPTS, validator=positive_int)
    retry_terminal_timeouts: bool = False
    retry_invalid_judge_responses: bool = False
    config: GymConfig | None = attrs.field(default=None, repr=False)  # its identity is checked, its secrets are hidden

    # What counts
    require_complete: bool = False
    count_failure_classes_as_zero: Collection[str] = ()
    count_missing_rollouts_as_zero: bool = False

    fsync: bool = False
    recorded: bool = False  # the rows are rollouts that were recorded: each must have its response


def parse_shard(text: str) -> tuple[int, int]:
    """``"I/N"``. The tasks are dealt out by their index modulo N, so 1/N … N/N and 0/N … N-1/N are both all of them.

    **Errors**: `UsageError` that shows the form.
    """
    match = _SHARD.fullmatch(text.strip())
    if match is None or int(match[2]) < 1 or int(match[1]) > int(match[2]):
        raise UsageError(f"--shard {text}: must be I/N, such as 1/4, with I from 1 to N")
    number, count = int(match[1]), int(match[2])
    return number % count, count


def options_from(config: GymConfig, **given: Any) -> RunOptions:
    """Options from a configuration's run keys; ``given`` (without its Nones) comes on top, and must have ``rows``."""
    run = config.run
    check_run_keys(config)
    agents = [block.name for block in config.of_type("responses_api_agents")]
    default = run.agent_map.get("_default")
    if run.agent_name and default and default != run.agent_name:
        raise UsageError(f"agent_map._default is {default!r}, and --agent is {run.agent_name!r}; give one of them")
    options: dict[str, Any] = {
        "output": run.output_jsonl_fpath,
        "rows": run.input_jsonl_fpath,
        "agents": agents,
        "agent": agents[0] if len(agents) == 1 else None,
        "task_sources": _task_sources(config),
        "agent_map": {**run.agent_map, **({"_default": run.agent_name} if run.agent_name else {})},
        "fan_out": run.fan_out,
        "environments": _environments(config),
        "environment": run.environment_server_name,
        "environment_routes": run.environment_server_routes,
        "limit": run.limit,
        "num_repeats": run.num_repeats,
        "num_repeats_add_seed": run.num_repeats_add_seed,
        "interleave_repeats": run.interleave_repeats,
        "shard": parse_shard(run.shard) if run.shard else None,
        "longest_first": run.dispatch_longest_first,
        "prompt_config": pathlib.Path(run.prompt_config) if run.prompt_config else None,
        "responses_create_params": run.responses_create_params,
        "skills": run.skills.path if run.skills else None,
        "resume": run.resume_from_cache,
        "max_attempts": run.max_rollout_attempts or DEFAULT_MAX_ATTEMPTS,
        "retry_terminal_timeouts": run.retry_terminal_timeouts,
        "retry_invalid_judge_responses": run.retry_invalid_judge_responses,
        "config": config,
        "require_complete": run.require_complete,
        "count_failure_classes_as_zero": run.count_failure_classes_as_zero,
        "count_missing_rollouts_as_zero": run.count_missing_rollouts_as_zero,
        "fsync": run.fsync,
    }
    options |= {name: value for name, value in given.items() if value is not None}
    for name, flag in (("rows", "--input"), ("output", "--output")):
        if options[name] is None:
            raise UsageError(f"a run needs {flag}")
    try:
        return RunOptions(**options)
    except InvalidSetting as error:
        raise UsageError(f"{error.field}: {error}") from None


def stream_arguments(config: GymConfig, **given: Any) -> dict[str, Any]:
    """The keyword arguments of ``gym.run_examples`` that a configuration's run keys stand for, ``given`` on top.

    **Errors**: `UsageError` for a dispatch budget without a bound on the rollouts in flight: all rows would be sent
    before the budget is looked at again.
    """
    run = config.run
    arguments: dict[str, Any] = {
        "max_concurrent": run.num_samples_in_parallel,
        "max_resident_tasks": run.max_resident_rollout_tasks,
        "rollout_timeout_seconds": run.rollout_timeout_seconds,
        "dispatch_budget_seconds": run.dispatch_budget_s,
        "drain_margin_seconds": run.drain_margin_s,
    }
    arguments |= {name: value for name, value in given.items() if value is not None}
    if arguments["dispatch_budget_seconds"] is not None and arguments["max_concurrent"] is None:
        raise UsageError("dispatch_budget_s needs a bound on rollouts in flight: --concurrency N")
    return arguments


def _environments(config: GymConfig) -> dict[str, str | None]:
    references = {block.name: block.settings.get("agent_server") for block in config.of_type("environment_servers")}
    return {name: ref.get("name") if isinstance(ref, Mapping) else None for name, ref in references.items()}


def _task_sources(config: GymConfig) -> dict[str, str]:
    """Each environment that exactly one agent works on, and that agent."""
    agents: dict[str, list[str]] = {}
    for block in config.of_type("responses_api_agents"):
        reference = block.settings.get("resources_server")
        if isinstance(reference, Mapping) and isinstance(reference.get("name"), str):
            agents.setdefault(reference["name"], []).append(block.name)
    return {source: names[0] for source, names in agents.items() if len(names) == 1}
