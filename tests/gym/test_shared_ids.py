"""Two rollouts that share an id: the second is one failure, and the first knows nothing of it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import gym_trio
from gym_trio.environments.example_session_state_mgmt import SessionStateManagement
from gym_trio.gym import ProcessOptions
from gym_trio.rollouts import next_attempt
from gym_trio.testing import open_fake_gym

QUIET = ProcessOptions(output=lambda line: None)


@pytest.mark.parametrize("own", [{"_ng_rollout_id": "same"}, {"_ng_task_index": 3, "_ng_rollout_index": 1}])
async def test_the_second_fails_at_admission_and_the_first_completes(own: Any) -> None:
    """It names the id, says that nothing was sent, and runs when the first has ended; so does a next attempt."""
    gate = trio.Event()
    seen: list[int] = []

    async def run(row: Any) -> dict[str, Any]:
        seen.append(row["i"])
        if row["i"] == 0:
            await gate.wait()
        return {"reward": 1.0, "i": row["i"]}

    async with open_fake_gym(run) as gym:
        async with gym.run_examples([{"i": 0, **own}]) as one:
            await trio.testing.wait_all_tasks_blocked()
            async with gym.run_examples([{"i": 1, **own}, {"i": 2, **own}]) as two:
                outcomes = [outcome async for outcome in two]
            for outcome in outcomes:
                assert isinstance(outcome, gym_trio.Failed)
                failure = outcome.failure
                assert (failure.kind, failure.stage, failure.terminal) == ("agent_request_failed", "admission", False)
                assert failure.delivery == "not_sent"
                assert outcome.row["_ng_rollout_id"] in failure.message
            again = next_attempt(outcomes[0].row)
            async with gym.run_examples([{**again, "i": 3}]) as three:
                assert isinstance(await three.receive(), gym_trio.Completed)
            gate.set()
            first = await one.receive()
            assert isinstance(first, gym_trio.Completed)
            assert first.result["i"] == 0
        async with gym.run_examples([{"i": 4, **own}]) as after:
            assert isinstance(await after.receive(), gym_trio.Completed)
    assert seen == [0, 3, 4]


async def test_an_id_is_free_again_when_its_rollout_was_cancelled() -> None:
    """Closing the stream gives it back."""

    async def run(row: Any) -> dict[str, Any]:
        await trio.sleep_forever()
        return {}

    row = {"_ng_rollout_id": "same"}
    async with open_fake_gym(run) as gym:
        for _ in range(2):
            async with gym.run_examples([row]) as rollouts:
                await trio.testing.wait_all_tasks_blocked()
                assert rollouts.statistics().in_flight == 1


@pytest.mark.parametrize("serve", ["memory", "sockets", "processes"])
async def test_state_and_captures_of_the_first_are_its_own(
    scripted: Any, calling: Any, saying: Any, serve: Any
) -> None:
    """With an environment that counts and a model that is captured, of three rollouts at once with one id one is
    completed, with its own two model calls; a rollout with another id is not touched."""
    script = [[calling("increment_counter", count=2)], [calling("get_counter_value")], [saying("done")]]
    config = scripted("example_session_state_mgmt", script) | {"observability_enabled": True}
    row = {**next(iter(SessionStateManagement.rows({}))), "initial_count": 1, "expected_count": 3}
    rows = [{**row, "_ng_rollout_id": name} for name in ("same", "same", "other", "same")]
    async with gym_trio.open_gym(config, serve, processes=QUIET) as gym:
        async with gym.run_examples(rows) as rollouts:
            outcomes = [outcome async for outcome in rollouts]
        status = (await gym.client.get("example_session_state_mgmt", "/status")).json()
        assert status["sessions"]["ready"] == 0
    completed = {one.row["_ng_rollout_id"]: one.result for one in outcomes if isinstance(one, gym_trio.Completed)}
    assert sorted(completed) == ["other", "same"]
    assert len(outcomes) == 4
    for result in completed.values():
        assert result["reward"] == 1.0
        assert len(result["ng_model_call_capture"]["calls"]) == 3
