"""``gym-trio env test`` and ``env validate``: does an environment do what its author says, and do its rows fit it?"""

from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import attrs
import trio
from cyclopts import Parameter

from ..collection import read_jsonl
from ..config import GymConfig, ServerBlock, load_config
from ..errors import UsageError
from ..gym import build_server, find_implementation, open_gym
from ..rollouts import Completed, Failed
from ..servers import ResourcesServer, tools_of
from ._app import Exit
from ._configure import environment_blocks, rows_of, with_agent
from ._console import print_json, print_line, tell

__all__ = ["env_test", "env_validate", "load_environment"]

SCRIPTED = "policy_model"
OWN_TESTS = "the environment's own tests"
NOT_TASK_DATA = ("responses_create_params", "agent_ref")


@attrs.frozen
class Check:
    """One thing that was looked at."""

    name: str
    passed: bool
    detail: str = ""


def env_test(name: str, *, as_json: Annotated[bool, Parameter(name="--json", negative=())] = False) -> None:
    """Run an environment's own tests, its fixtures, and the checks that every environment must pass.

    A fixture (a line of fixtures.jsonl) is a row, the replies of a scripted model, and the reward they must earn. Each
    is run twice, side by side with the others: a reward that differs is no reward.

    Parameters
    ----------
    name
        An environment's folder, or a built-in environment.
    as_json
        Print the checks as JSON.
    """
    config, block = load_environment(name)
    checks = [*_row_checks(config), *trio.run(_contract_checks, config, block)]
    folder = pathlib.Path(name)
    if (folder / "fixtures.jsonl").is_file():
        fixtures = [row for _, row in read_jsonl(folder / "fixtures.jsonl")]
        checks += trio.run(_fixture_checks, name, fixtures)
    elif folder.is_dir():
        tell(f"{folder}: there is no fixtures.jsonl, so the verifier was not tried")
    if folder.is_dir() and any(folder.glob("test_*.py")):
        checks.append(_author_tests(folder))
    if as_json:
        print_json([attrs.asdict(check) for check in checks])
    else:
        for check in checks:
            print_line(
                f"{'ok    ' if check.passed else 'FAILED'} {check.name}{': ' + check.detail if check.detail else ''}"
            )
    failed = sum(not check.passed for check in checks)
    tell(f"{len(checks) - failed} passed, {failed} failed")
    raise Exit(1 if failed else 0)


def env_validate(name: str, *, input: Annotated[pathlib.Path | None, Parameter(name=["--input", "-i"])] = None) -> None:
    """Check rows against an environment: each row that does not fit is named, with the field.

    Parameters
    ----------
    name
        An environment's folder, or a built-in environment.
    input
        A JSONL file of rows; by default those that the environment brings.
    """
    config, _ = load_environment(name)
    problems: list[str] = []
    where = None
    for where, row in _numbered(config, input):
        problems += [f"{where}: {problem}" for problem in row_problems(config, row)]
    if where is None:
        raise UsageError(f"{input}: has no rows")
    for problem in problems:
        print_line(problem)
    if problems:
        raise UsageError(f"{len(problems)} of the rows' fields do not fit {name}")
    print_line("every row fits")


def load_environment(name: str) -> tuple[GymConfig, ServerBlock]:
    """The configuration of the environment ``name``, built in or a folder, with a scripted model; and its block.

    **Errors**: `UsageError` when it has none, or several.
    """
    config = _with_model(name, [[]])
    environments = config.of_type("resources_servers")
    if len(environments) != 1:
        raise UsageError(f"{name}: its configuration must have exactly one environment, not {len(environments)}")
    return config, environments[0]


def _with_model(environment: str, replies: Any) -> GymConfig:
    model = {SCRIPTED: {"responses_api_models": {"scripted_model": {"replies": replies}}}}
    return load_config([environment_blocks(environment), model], env=os.environ)


def _numbered(config: GymConfig, path: pathlib.Path | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if path is not None:
        yield from ((f"{path}:{line}", row) for line, row in read_jsonl(path))
    else:
        yield from ((f"row {number}", row) for number, row in enumerate(rows_of(config), 1))


def row_problems(config: GymConfig, row: Mapping[str, Any]) -> list[str]:
    """What of ``row`` does not fit: its parameters, its tools, and the fields that the environment checks itself."""
    problems = []
    params = row.get("responses_create_params")
    if not isinstance(params, Mapping):
        return ["responses_create_params: must be an object"]
    if not isinstance(params.get("input"), str | list):
        problems.append("responses_create_params.input: must be a text or a list of items")
    for block in config.of_type("resources_servers"):
        cls = find_implementation(block)
        if not issubclass(cls, ResourcesServer):
            continue
        known = tools_of(cls)
        for tool in params.get("tools") or ():
            if known and tool.get("name") not in known:
                problems.append(f"responses_create_params.tools: there is no tool {tool.get('name')!r}")
        problems.extend(cls.row_problems(row))
    return problems


def _row_checks(config: GymConfig) -> Iterator[Check]:
    count, problems = 0, []
    for where, row in _numbered(config, None):
        count += 1
        problems += [f"{where}: {problem}" for problem in row_problems(config, row)]
    yield Check("rows", not problems, problems[0] if problems else f"{count} rows fit")


async def _contract_checks(config: GymConfig, block: ServerBlock) -> list[Check]:
    from ..testing import check_session_contract

    factory = functools.partial(build_server, block, None)
    try:
        await check_session_contract(factory, seed=_seed(config))
    except AssertionError as error:
        return [Check("session contract", False, str(error))]
    return [Check("session contract", True)]


def _seed(config: GymConfig) -> dict[str, Any]:
    """A seed for the environment's first row: what its seed_session may count on."""
    row = next((row for _, row in _numbered(config, None)), {})
    return {"task_data": {name: value for name, value in row.items() if name not in NOT_TASK_DATA}}


async def _fixture_checks(environment: str, fixtures: list[dict[str, Any]]) -> list[Check]:
    checks = []
    for number, fixture in enumerate(fixtures, 1):
        name = f"fixture {fixture.get('name') or number}"
        found = [await _reward_of(environment, fixture) for _ in range(2)]
        if any(isinstance(one, str) for one in found):
            checks.append(Check(name, False, str(next(one for one in found if isinstance(one, str)))))
        elif found[0] != found[1]:
            checks.append(Check(name, False, f"not deterministic: {found[0]} and then {found[1]}"))
        else:
            wanted = fixture.get("reward")
            checks.append(Check(name, found[0] == wanted, f"reward {found[0]}, expected {wanted}"))
    return checks


async def _reward_of(environment: str, fixture: Mapping[str, Any]) -> float | str:
    config = _with_model(environment, fixture["replies"])
    agent = config.of_type("responses_api_agents")[0].name
    async with open_gym(config) as gym, gym.run_examples([with_agent(fixture["row"], agent)]) as rollouts:
        outcome = await rollouts.receive()
    if isinstance(outcome, Completed):
        return float(outcome.result["reward"])
    return outcome.failure.message if isinstance(outcome, Failed) else outcome.reason


def _author_tests(folder: pathlib.Path) -> Check:
    if importlib.util.find_spec("pytest") is None:
        return Check(OWN_TESTS, False, "pytest, which runs them, is not installed: pip install pytest")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr.strip()[-300:]]
    if done.returncode:
        print_line(done.stdout)
    return Check(OWN_TESTS, done.returncode == 0, last[0])
