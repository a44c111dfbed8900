"""The real package, of both kinds, in virtual environments that the tests make once: it fits beside no others."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import gym_trio
from gym_trio.environments.verifiers import Verifiers
from gym_trio.rollouts import Failed

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.timeout(900)  # the first run downloads


@pytest.fixture(scope="session")
def python_of_tasksets(made_python: Callable[[str], str]) -> str:
    return made_python("verifiers")


@pytest.fixture(scope="session")
def python_of_classics(made_python: Callable[[str], str]) -> str:
    return made_python("classic verifiers")


def config_of(block: dict[str, Any]) -> dict[str, Any]:
    return {
        "sums": {"resources_servers": {"verifiers": {"domain": "math", **block}}},
        "sums_agent": {
            "responses_api_agents": {
                "environment_driven_agent": {
                    "resources_server": {"type": "resources_servers", "name": "sums"},
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                }
            }
        },
        "policy_model": {
            "responses_api_models": {"own": {"entrypoint": f"{HERE / 'verifiers_models' / 'models.py'}:Knowing"}}
        },
    }


async def outcomes(block: dict[str, Any], serve: Any) -> list[Any]:
    rows = list(Verifiers.rows(block))
    async with gym_trio.open_gym(config_of(block), serve=serve) as gym, gym.run_examples(rows) as rollouts:
        found = [outcome async for outcome in rollouts]
    return sorted(found, key=lambda outcome: outcome.row["_ng_rollout_id"])


def kinds_of(outcome: Any) -> list[str]:
    return [item.get("role") or item["type"] for item in outcome.result["response"]["output"]]


async def test_environments_of_load_environment(python_of_classics: str) -> None:
    """One turn, several turns with a state, tools, and a rubric that raises, in one group and one child."""
    block = {"env_id": "vf-classic", "env_args": {"system_prompt": "Add."}, "python": python_of_classics}
    block["search_path"] = [str(HERE / "verifiers_modules")]
    right, wrong, multi, tool, failing = await outcomes(block, "memory")
    assert right.row["responses_create_params"]["input"][0] == {"role": "system", "content": "Add."}
    assert right.row["example"]["answer"] == "2"
    assert (right.result["reward"], right.result["reward_components"]["right"], right.result["short"]) == (1.5, 1, 1)
    assert (wrong.result["reward"], wrong.result["right"]) == (0.0, 0.0)
    assert (multi.result["reward"], multi.result["stop_condition"]) == (1.5, "guessed")
    assert kinds_of(multi) == ["assistant", "user", "assistant"]
    assert (tool.result["reward"], tool.result["right"]) == (1.0, 1.0)
    assert kinds_of(tool) == ["function_call", "function_call_output", "assistant"]
    assert isinstance(failing, Failed)
    assert (failing.failure.kind, failing.failure.stage) == ("verifier_error", "verification")
    assert "the reward function broken raised ZeroDivisionError" in failing.failure.message


async def test_tasksets(python_of_tasksets: str) -> None:
    """A taskset with its harness, as processes: full reward, none, and a reward function that raises."""
    arguments = {"agent": {"runtime": {"type": "subprocess"}}, "taskset": {"system": "Add."}}
    block = {"env_id": "vf-tasks", "env_args": arguments, "python": python_of_tasksets}
    block["search_path"] = [str(HERE / "verifiers_modules")]
    right, wrong, failing = await outcomes(block, "processes")
    assert right.row["responses_create_params"]["input"][0] == {"role": "system", "content": "Add."}
    assert right.row["example"]["answer"] == "2"
    assert (right.result["reward"], right.result["reward_components"]) == (1.0, {"right": 1.0, "length": 7.0})
    assert kinds_of(right) == ["assistant"]
    assert (wrong.result["reward"], wrong.result["right"]) == (0.0, 0.0)
    assert isinstance(failing, Failed)
    assert (failing.failure.kind, failing.failure.stage) == ("verifier_error", "verification")
    assert "the rubric is broken" in failing.failure.message
