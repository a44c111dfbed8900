"""Rollouts of OpenEnv environments, from end to end against OpenEnv's own server."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

import gym_trio
from gym_trio.cli._app import run_command
from gym_trio.environments.openenv import OpenEnv

ROW = {"responses_create_params": {"input": [{"role": "system", "content": "play"}]}}


async def play(config: Any, rows: Any = (ROW,), serve: Any = "memory") -> list[dict[str, Any]]:
    async with gym_trio.open_gym(config, serve) as gym, gym.run_examples(list(rows)) as rollouts:
        return [outcome.unwrap()[1] async for outcome in rollouts]


def texts_of(result: dict[str, Any], role: str) -> list[str]:
    items = [*result["responses_create_params"]["input"], *result["response"]["output"]]
    return [item["content"] for item in items if item.get("role") == role]


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "call_id": call_id, "arguments": json.dumps(arguments)}


@pytest.mark.parametrize("serve", ["memory", "sockets"])
async def test_full_reward_and_none(games: Any, scripted: Any, serve: str) -> None:
    """The game is won or lost, the same wherever the servers live; each rollout has a session of its own."""
    rows = list(OpenEnv.rows({"size": 4, "resets": [{}, {"answer": "left"}]}))
    before = await games.sessions()
    results = await play(scripted(["hm", "right"], base_url=f"{games.url}/word"), rows, serve)
    results.sort(key=lambda one: one["seed"])
    assert [one["reward"] for one in results] == [1.0, 0.0, 1.0, 0.0]
    assert all(one["terminated"] and not one["truncated"] for one in results)
    assert (await games.settled())["made"] - before["made"] == 4


@pytest.mark.parametrize(("reward", "total"), [("sum", 1.75), ("last", 1.0)])
async def test_rewards_of_many_steps(games: Any, scripted: Any, reward: str, total: float) -> None:
    """They are added, or the last one counts; the model sees each observation after its own reply."""
    config = scripted(["hm", "warm 0.25", "warm 0.5", "right"], base_url=f"{games.url}/word/", reward=reward)
    (result,) = await play(config, [{**ROW, "seed": 4, "reset": {"level": 2}}])
    assert result["reward"] == total
    first, *others = texts_of(result, "user")
    assert first.startswith("Your answer is the word: one word of five letters\n\nseed 4 options {'level': 2}")
    assert others == ["step 1", "warmer", "warmer", "yes"]


async def test_the_step_limit_truncates(games: Any, scripted: Any) -> None:
    """The agent's own, and what was earned by then counts."""
    config = scripted(["warm 0.25"] * 3, {"max_steps": 3}, base_url=f"{games.url}/word")
    (result,) = await play(config)
    assert (result["reward"], result["terminated"], result["truncated"]) == (0.75, False, True)
    await games.settled()


async def test_more_than_one_field_is_a_json_object(games: Any, scripted: Any) -> None:
    """The schema goes to the model; the last object in the reply is the action; one that does not fit is told."""
    said = ["no idea", 'first {"row": 9} then {"row": 1, "column": 7}', '```json\n{"row": 1, "column": 1}\n```']
    (result,) = await play(scripted(said, base_url=f"{games.url}/pair"))
    first, none, refused, last = texts_of(result, "user")
    assert '"required": ["row", "column"]' in first
    assert first.endswith('{"board": [0, 1]}')
    assert "metadata" not in first
    assert "no JSON object" in none
    assert "column: Input should be less than or equal to 2 (VALIDATION_ERROR)" in refused
    assert json.loads(last) == {"board": [1, 1], "hint": "1 and 1"}
    assert result["reward"] == 1.0


async def test_one_field_that_is_no_text(games: Any, scripted: Any) -> None:
    """The reply is its JSON value, without the thoughts; an observation of metadata alone is shown."""
    (result,) = await play(scripted(["<think>{7}</think>seven", "7"], base_url=f"{games.url}/number"))
    first, told, _ = texts_of(result, "user")
    assert '"range": [1, 9], "episode_id": "0-0' in first
    assert "'seven' is no JSON value" in told
    assert result["reward"] == 1.0


async def test_the_block_may_say_how_to_read_and_what_to_show(games: Any, scripted: Any) -> None:
    """A pattern, fixed fields and a template take the place of the schema's defaults."""
    config = scripted(
        ["<move>0</move> or rather <move>1</move>"],
        base_url=f"{games.url}/pair",
        action_field="row",
        action_pattern="<move>(.*?)</move>",
        action_values={"column": 1},
        explain_action=False,
        observation_template="You see {board[1]}, {hint}.",
    )
    (result,) = await play(config)
    assert texts_of(result, "user") == ["You see 1, None.", "You see 1, 1 and 1."]
    assert result["reward"] == 1.0


async def test_an_environment_of_tools(games: Any, scripted: Any) -> None:
    """Its tools are offered, calls are steps in order, none is made after the end; errors go to the model."""
    calls = [
        [call("add", "a", a=2, b=3), call("nothing", "b"), {**call("add", "c"), "arguments": "{"}],
        [call("submit", "d", number=5), call("add", "e", a=1, b=1)],
    ]
    (result,) = await play(scripted(calls, base_url=f"{games.url}/tools"))
    offered = result["responses_create_params"]["tools"]
    assert [one["name"] for one in offered] == ["add", "submit"]
    assert offered[0]["parameters"]["required"] == ["a", "b"]
    outputs = {
        one["call_id"]: one["output"] for one in result["response"]["output"] if one["type"] == "function_call_output"
    }
    assert outputs["a"] == "5"
    assert "Unknown tool" in outputs["b"]
    assert "no JSON object" in outputs["c"]
    assert outputs["d"] == "noted"
    assert "not made" in outputs["e"]
    assert (result["reward"], result["terminated"]) == (1.0, True)
    await games.settled()


async def test_a_server_with_room_for_one_serves_all_in_turn(games: Any, scripted: Any) -> None:
    """OpenEnv's default is one session: the others wait for their turn, and none fails."""
    results = await play(scripted(["hm", "right"], base_url=f"{games.url}/single"), [ROW] * 8)
    assert [one["reward"] for one in results] == [1.0] * 8
    await games.settled()


def test_eval_run_needs_no_file_of_rows(
    games: Any, scripted: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``size`` rows are made from the block, with its seeds, its resets in turn and its prompt."""
    monkeypatch.chdir(tmp_path)
    block = {"size": 5, "seed": 10, "resets": [{"level": 1}, {"level": 2}], "prompt": "Guess the word."}
    pathlib.Path("config.yaml").write_text(json.dumps(scripted(["right"], base_url=f"{games.url}/word", **block)))
    assert run_command(["eval", "run", "--config", "config.yaml", "--output", "out/r.jsonl"]) == 0
    rows = [json.loads(line) for line in pathlib.Path("out/r.jsonl").read_text().splitlines()]
    rows.sort(key=lambda row: row["seed"])
    assert [(row["seed"], row["reset"]["level"], row["reward"]) for row in rows] == [
        (10 + position, position % 2 + 1, 1.0) for position in range(5)
    ]
    assert texts_of(rows[0], "system") == ["Guess the word."]


async def test_the_session_contract(games: Any) -> None:
    """As by any environment, and the server's own sessions end with ours."""
    block = {"base_url": f"{games.url}/word"}
    await gym_trio.testing.check_session_contract(lambda: OpenEnv(name="word", config=block))
    await games.settled()
