"""Rows that go through an environment server: as episodes, or handed on as they are."""

from __future__ import annotations

from typing import Any

import pytest

import gym_trio
from gym_trio.environments.mcqa import MultipleChoice
from gym_trio.errors import FailureKind, RolloutFailure
from gym_trio.gym._episodes import episode_of, result_of_episode

SERVE = pytest.mark.parametrize("serve", ["memory", "sockets"])


def with_environment(config: dict[str, Any], implementation: str, **keys: Any) -> dict[str, Any]:
    agent = {"type": "responses_api_agents", "name": "my_agent"}
    resources = {"type": "resources_servers", "name": "mcqa"}
    own = {} if implementation == "legacy_agent" else {"resources_server": resources}
    return {**config, "front": {"environment_servers": {implementation: {"agent_server": agent, **own, **keys}}}}


@SERVE
@pytest.mark.parametrize("implementation", ["single_agent", "legacy_agent"])
async def test_an_environment_server_gives_the_rewards_that_its_agent_gives(
    scripted: Any, saying: Any, serve: Any, implementation: str
) -> None:
    """The same rows, the same rewards, whoever stands in front of the agent."""
    config = with_environment(scripted("mcqa", [[saying("\\boxed{B}")]]), implementation)
    rows = [{**row, "_ng_task_index": at, "_ng_rollout_index": 0} for at, row in enumerate(MultipleChoice.rows({}))]
    found = []
    for through in ({}, {"_ng_environment_server": "front"}):
        async with (
            gym_trio.open_gym(config, serve=serve) as gym,
            gym.run_examples([{**row, **through} for row in rows], max_concurrent=3) as rollouts,
        ):
            rewards = {}
            async for outcome in rollouts:
                row, result = outcome.unwrap()
                rewards[row["_ng_task_index"]] = result["reward"]
        found.append(rewards)
    assert found[0] == found[1]
    assert 0 < sum(found[0].values()) < len(rows)


async def test_a_failed_episode_is_the_failure_that_it_tells_of(scripted: Any, saying: Any) -> None:
    """Kind, stage and whether another attempt can help come through."""
    config = with_environment(
        scripted("mcqa", [[saying("\\boxed{B}")]]), "single_agent", default_episode_timeout_seconds=1e-9
    )
    row = {**next(iter(MultipleChoice.rows({}))), "_ng_environment_server": "front"}
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        outcome = await rollouts.receive()
    assert isinstance(outcome, gym_trio.Failed)
    assert outcome.failure.kind == FailureKind.AGENT_TIMEOUT


async def test_a_row_that_was_recorded_behind_another_environment_server_goes_to_its_agent(
    scripted: Any, saying: Any
) -> None:
    """A server of that name is not here; the row's agent is."""
    config = scripted("mcqa", [[saying("\\boxed{B}")]])
    row = {**next(iter(MultipleChoice.rows({}))), "_ng_environment_server": "elsewhere"}
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        assert "reward" in (await rollouts.receive()).unwrap()[1]


async def test_a_row_that_names_a_server_of_another_kind_is_told_so(scripted: Any, saying: Any) -> None:
    """The error has the row's key, the server, what the server is, and what to write."""
    config = scripted("mcqa", [[saying("\\boxed{B}")]])
    row = {**next(iter(MultipleChoice.rows({}))), "_ng_environment_server": "mcqa"}
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        with pytest.raises(gym_trio.RowError, match=r"_ng_environment_server: 'mcqa' is one of resources_servers"):
            await rollouts.receive()


def test_a_row_becomes_an_episode() -> None:
    """Its own task id, else one of the server's; the attempt apart from the rollout; data without the run's keys."""
    row = {
        "responses_create_params": {"input": "hi"},
        "agent_ref": {"name": "a"},
        "answer": 4,
        "_ng_task_index": 3,
        "_ng_task_id": {"taskset": "shop:train", "task_id": "t17"},
    }
    episode = episode_of(row, "3-1-a2", "front")
    assert episode == {
        "episode_id": {"rollout_id": "3-1", "attempt": 2},
        "task": {
            "task_id": {"taskset": "shop:train", "task_id": "t17"},
            "task_input": {"responses_create_params": {"input": "hi"}, "task_data": {"answer": 4}},
        },
    }
    del row["_ng_task_id"]
    plain = episode_of(row, "3-1", "front")
    assert plain["episode_id"] == {"rollout_id": "3-1", "attempt": 0}
    assert plain["task"]["task_id"] == {"taskset": "front", "task_id": "3"}
    assert episode_of({**row, "_ng_task_id": 5}, "3-1", "front")["task"]["task_id"]["task_id"] == "5"


def test_an_answer_is_a_result_or_a_failure() -> None:
    """Anything else is the server's error."""
    assert result_of_episode("front", {"result": {"reward": 1}}, 200) == {"reward": 1}
    told = {"failure_reason": "no", "terminal": True, "stage": "seed", "failure_kind": "x:y", "partial_response": {}}
    with pytest.raises(RolloutFailure, match="no") as caught:
        result_of_episode("front", {"failure": told}, 200)
    failure = caught.value
    assert (failure.kind, failure.stage, failure.terminal) == ("x:y", "seed", True)
    assert failure.details == {"partial_response": {}}
    with pytest.raises(RolloutFailure, match="neither a result nor a failure"):
        result_of_episode("front", {"reward": 1}, 200)


@pytest.mark.parametrize("wrong", [None, 1.5, True, [], [None], {}, {"a": 1}, ""])
@pytest.mark.parametrize("key", ["failure_kind", "failure_reason", "http_status", "stage", "terminal"])
def test_a_failure_that_is_told_wrongly_is_a_failure_all_the_same(key: str, wrong: Any) -> None:
    """Its kind, status and stage are what rows are counted by: one of another type ends no run."""
    told = {"failure_kind": "x:y", "failure_reason": "r", "http_status": 409, "stage": "seed", "terminal": False}
    with pytest.raises(RolloutFailure) as info:
        result_of_episode("env", {"failure": {**told, key: wrong}}, 200)
    found = info.value
    assert (found.kind, found.stage, found.status) == (
        FailureKind.AGENT_RUN_ERROR if key == "failure_kind" else "x:y",
        "agent" if key == "stage" else "seed",
        None if key == "http_status" else 409,
    )
    assert type(found.message) is str
    assert found.terminal is (key == "terminal" and bool(wrong))
