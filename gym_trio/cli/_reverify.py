"""``gym-trio eval reverify``: new rewards for recorded rollouts, without a model."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import attrs
import trio
from cyclopts import Parameter

from ..collection import (
    PreparedRun,
    Progress,
    Reverified,
    StopRequest,
    aggregate_run,
    options_from,
    prepare_run,
    reverify_rollouts,
    whole_rows,
)
from ..config import GymConfig, load_config
from ..errors import UsageError
from ..gym import find_implementation, open_gym
from ..servers import ResourcesServer, failure_from_wire
from ..sessions import check_seconds
from ._app import Exit
from ._configure import ELSEWHERE, environment_blocks
from ._console import print_json, print_line, tell
from ._metrics import hooks_of
from ._preflight import check_at_least_one, check_servers
from ._progress import open_display
from ._report import report_as_json, show_report
from ._signals import open_interrupts

__all__ = ["reverify"]

Switch = Parameter(negative=())

ROWS_LOOKED_AT = 100
OF_EVERY_ROW = frozenset({"responses_create_params", "agent_ref"})


def reverify(
    rollouts: Annotated[pathlib.Path, Parameter(name=["--rollouts", "--inputs"])],
    *,
    environment: Annotated[str | None, Parameter(name=["--environment", "-e"])] = None,
    output: Annotated[pathlib.Path, Parameter(name=["--output", "-o"])],
    config: Annotated[list[pathlib.Path] | None, Switch] = None,
    concurrency: int = 64,
    limit: int | None = None,
    rollout_timeout_seconds: float | None = 600.0,
    drain_grace_seconds: float = 5.0,
    force: Annotated[bool, Switch] = False,
    resume: Annotated[bool, Switch] = False,
    disable_aggregation: Annotated[bool, Switch] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Compute the rewards of recorded rollouts again with the present verifier.

    Parameters
    ----------
    rollouts
        A rollout file: rows with their response.
    environment
        The environment whose verifier is used (gym-trio list), or its folder.
    output
        The rollout file to write; the earlier reward stands in each row as _ng_previous_reward.
    config
        A configuration in place of a named environment, or besides it.
    concurrency
        How many verifications are in flight at most.
    limit
        The first so many rows.
    rollout_timeout_seconds
        The most that one verification may take.
    drain_grace_seconds
        What verifications in flight get when the run is stopped.
    force
        Verify again even where the environment says that its reward depends on state, and rows that seem to be another
        environment's.
    resume
        Go on with an earlier reverification.
    disable_aggregation
        Write no aggregate metrics.
    as_json
        Print the report as JSON.
    """
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr, format="%(message)s")
    check_at_least_one("--concurrency", concurrency)
    check_at_least_one("--limit", limit)
    if rollout_timeout_seconds is not None:
        check_seconds("--rollout-timeout-seconds", rollout_timeout_seconds)
    check_seconds("--drain-grace-seconds", drain_grace_seconds)
    loaded, name = _environment_of(environment, config or [])
    _check_mode(loaded, name, force)
    if not force:
        _check_fields(loaded, name, rollouts)
    check_servers(loaded)
    options = options_from(
        loaded, rows=rollouts, output=output, recorded=True, agents=(), agent=name, limit=limit, resume=resume or None
    )
    bounds: dict[str, Any] = {
        "max_concurrent": concurrency,
        "timeout_seconds": rollout_timeout_seconds,
        "grace_seconds": drain_grace_seconds,
    }
    if not disable_aggregation:
        bounds["aggregate"] = functools.partial(aggregate_run, hooks=hooks_of(loaded))
    with prepare_run(options) as prepared:
        for note in prepared.notes:
            tell(note)
        done, exit_code = trio.run(_reverify, prepared, loaded, name, bounds, as_json)
    _show(done, as_json)
    raise Exit(exit_code)


def _environment_of(environment: str | None, configs: list[pathlib.Path]) -> tuple[GymConfig, str]:
    if environment is None and not configs:
        raise UsageError("name the environment whose verifier is to be used: --environment NAME (gym-trio list)")
    sources: list[Any] = [*configs]
    if environment is not None:
        blocks = environment_blocks(environment)
        if isinstance(blocks, Mapping):
            blocks = {key: value for key, value in blocks.items() if "resources_servers" in value}
        sources.append(blocks)
    # Nothing asks a model, and a folder's agent, which is left out below, may refer to one.
    loaded = load_config([*sources, ELSEWHERE], env=os.environ)
    verifiers = loaded.of_type("resources_servers")
    named = [block for block in verifiers if block.name == environment] or list(verifiers)
    if len(named) != 1:
        names = ", ".join(block.name for block in verifiers) or "none"
        raise UsageError(f"say with --environment which verifier of the configuration to use: {names}")
    return attrs.evolve(loaded, servers=(named[0],)), named[0].name


def _check_mode(config: GymConfig, name: str, force: bool) -> None:
    cls = find_implementation(config.server(name))
    mode = cls.reverify_mode if issubclass(cls, ResourcesServer) else "unknown"
    if mode == "unsupported" and not force:
        raise UsageError(
            f"{name}: its reward depends on the state of the session, which a recorded rollout does not hold; "
            "--force verifies all the same"
        )


def _check_fields(config: GymConfig, name: str, rollouts: pathlib.Path) -> None:
    """Another environment's rows would all be judged wrong, and their zeros believed."""
    block = config.server(name)
    cls = find_implementation(block)
    brought = itertools.islice(cls.rows(block.settings), ROWS_LOOKED_AT) if issubclass(cls, ResourcesServer) else ()
    kept_by_all = [row.keys() - OF_EVERY_ROW for row in brought]
    own = set.intersection(*kept_by_all) if kept_by_all else set()
    found = [row.keys() for _, row in itertools.islice(whole_rows(rollouts, []), ROWS_LOOKED_AT)]
    if own and found and all(own.isdisjoint(keys) for keys in found):
        fields = ", ".join(sorted(own))
        raise UsageError(
            f"{rollouts}: its rows are not {name}'s: none has any of the fields by which it judges ({fields}); "
            "name the environment that they come from, or verify all the same with --force"
        )


async def _reverify(
    prepared: PreparedRun, config: GymConfig, name: str, bounds: dict[str, Any], quiet: bool
) -> tuple[Reverified, int]:
    stop, progress = StopRequest(), Progress()
    async with open_interrupts(stop.drain, stop.cut) as interrupts, open_gym(config) as gym:

        async def verify(row: Mapping[str, Any]) -> dict[str, Any]:
            response = await gym.post(name, "/verify", json=row)
            if response.status >= 400:
                failure = failure_from_wire(name, response.status, response.body)
                if failure is not None:
                    raise failure
                response.raise_for_status()
            answer: dict[str, Any] = response.json()
            return answer

        with open_display(progress, quiet=quiet) as update:
            done = await reverify_rollouts(prepared, verify, progress=progress, stop=stop, on_outcome=update, **bounds)
    return done, interrupts.exit_code


def _show(done: Reverified, as_json: bool) -> None:
    if as_json:
        changes = [attrs.asdict(change) for change in done.changes]
        reward = {"same": done.same, "changed": done.changed, "changes": changes}
        print_json({**report_as_json(done.report, None), "rewards": reward})
        return
    show_report(done.report, None, as_json=False)
    print_line(f"rewards: {done.same} as before, {done.changed} changed")
    for change in done.changes[:10]:
        print_line(f"  task {change.task} repeat {change.rollout}: {change.before} → {change.after}")
