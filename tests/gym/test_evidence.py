"""Evidence: model calls, trajectory and tokens are in the result when it is received, wherever the servers are."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

import gym_trio
from gym_trio.capture import TokenStore, training_arrays
from gym_trio.environments.example_single_tool_call import SingleToolCall
from gym_trio.gym import ProcessOptions

QUIET = ProcessOptions(output=lambda line: None)


@pytest.mark.parametrize("serve", ["memory", "sockets", "processes"])
@pytest.mark.parametrize("on_disk", [True, False])
async def test_every_model_call_is_in_its_rollouts_result(
    scripted: Any, calling: Any, saying: Any, serve: Any, on_disk: bool, tmp_path: pathlib.Path
) -> None:
    """Two calls per rollout, none of another's, and a trajectory of both; on disk where a folder was given."""
    config = scripted("example_single_tool_call", [[calling("get_weather", city="Rome")], [saying("cold")]])
    config |= {"model_call_capture_dir": str(tmp_path / "calls")} if on_disk else {"observability_enabled": True}
    rows = [{**row, "_ng_task_index": n, "_ng_rollout_index": 0} for n, row in enumerate(SingleToolCall.rows({}))]
    async with gym_trio.open_gym(config, serve, processes=QUIET) as gym, gym.run_examples(rows) as rollouts:
        outcomes = [outcome async for outcome in rollouts]
    assert len(outcomes) == len(rows)
    for outcome in outcomes:
        row, result = outcome.unwrap()
        capture = result["ng_model_call_capture"]
        assert capture["gaps"] == []
        assert [call["rollout_id"] for call in capture["calls"]] == [row["_ng_rollout_id"]] * 2
        trajectory = result["ng_trajectory"]
        assert len(trajectory["model_calls"]) == 2
        [tool_call] = trajectory["tool_calls"]
        assert (tool_call["name"], tool_call["status"]) == ("get_weather", "completed")
        assert tool_call["duration_ms"] >= 0
        assert not [gap for gap in trajectory["gaps"] if "tool" in gap["code"]]
    assert (tmp_path / "calls").exists() == on_disk


async def test_without_the_keys_results_carry_no_evidence(scripted: Any, saying: Any) -> None:
    """Evidence is asked for, not forced on anyone."""
    rows = [{"responses_create_params": {"input": "?"}}]
    async with gym_trio.open_gym(scripted("mcqa", [[saying("x")]])) as gym, gym.run_examples(rows) as rollouts:
        _, result = (await rollouts.receive()).unwrap()
    assert not {"ng_model_call_capture", "ng_trajectory"} & set(result)


def tokens(item: dict[str, Any], prompt: list[int], generated: list[int]) -> dict[str, Any]:
    log_probs = [-0.5] * len(generated)
    return {**item, "prompt_token_ids": prompt, "generation_token_ids": generated, "generation_log_probs": log_probs}


async def test_a_rollouts_tokens_become_arrays_and_are_kept_until_taken(
    scripted: Any, calling: Any, saying: Any, tmp_path: pathlib.Path
) -> None:
    """The loss mask covers what the model generated in both turns, and the record is retired by its taker."""
    replies = [
        [tokens(calling("get_weather", city="Rome"), [1, 2], [3, 4])],
        [tokens(saying("cold"), [1, 2, 3, 4, 5], [6])],
    ]
    config = scripted("example_single_tool_call", replies)
    config["token_id_capture"] = {"enabled": True, "dir": str(tmp_path)}
    row = next(iter(SingleToolCall.rows({}))) | {"_ng_task_index": 7, "_ng_rollout_index": 1}
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        _, result = (await rollouts.receive()).unwrap()
    assert "mask_sample" not in result
    arrays = training_arrays(result)
    assert arrays is not None
    assert list(arrays.token_ids) == [1, 2, 3, 4, 5, 6]
    assert list(arrays.loss_mask) == [0, 0, 1, 1, 0, 1]
    assert arrays.reward == 1.0
    store = TokenStore(tmp_path)
    assert await store.waiting() == ("7-1",)
    record = await store.take("7-1")
    assert record is not None
    assert not record.mask_sample
    assert await store.take("7-1") is None


async def test_a_rollout_without_tokens_is_masked_with_the_reason(scripted: Any, saying: Any) -> None:
    """It is left out of the training data, and never silently."""
    config = scripted("mcqa", [[saying("x")]])
    config["token_id_capture"] = {"enabled": True}
    rows = [{"responses_create_params": {"input": "?"}}]
    async with gym_trio.open_gym(config) as gym, gym.run_examples(rows) as rollouts:
        _, result = (await rollouts.receive()).unwrap()
    assert result["mask_sample"] is True
    assert result["mask_reason"]
    assert training_arrays(result) is None


async def test_failed_rollouts_leave_nothing_in_the_store(scripted: Any) -> None:
    """A run of days does not gather the calls of what failed."""
    config = scripted("mcqa", [])
    config["observability_enabled"] = True
    async with gym_trio.open_gym(config) as gym:
        async with gym.run_examples([{"responses_create_params": {"input": "?"}}] * 5) as rollouts:
            outcomes = [outcome async for outcome in rollouts]
        assert all(isinstance(outcome, gym_trio.Failed) for outcome in outcomes)
        evidence = gym._evidence
        assert evidence is not None
        assert "0 rollouts" in repr(evidence.calls)


async def test_token_keys_that_are_not_supported_are_named(scripted: Any, saying: Any) -> None:
    """A key that would do nothing is an error, with its path."""
    config = scripted("mcqa", [[saying("x")]])
    config["token_id_capture"] = {"enabled": True, "sink": "somewhere"}
    with pytest.raises(gym_trio.ConfigError, match=r"token_id_capture\.sink"):
        async with gym_trio.open_gym(config):
            raise AssertionError("the gym opened")
