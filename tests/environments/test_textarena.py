"""The games of the textarena package."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

import gym_trio
from gym_trio.environments.textarena import GAMES, TextArena
from gym_trio.errors import ConfigError, RequestRefused
from gym_trio.servers import RequestBody

pytest.importorskip("textarena", reason="the textarena extra is not installed")

HANOI = ["[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"]


async def play(row: dict[str, Any], *moves: str) -> list[Any]:
    server = TextArena(name="t")
    session = await server.create_session()
    seen: list[Any] = [await server.reset(session, RequestBody(row))]
    for move in moves:
        response = {"output": [{"type": "message", "role": "assistant", "content": move}]}
        seen.append(await server.step(session, response, RequestBody(row)))
        if seen[-1][2]:
            break
    return seen


async def test_a_solved_tower_earns_everything_and_a_broken_game_does_not() -> None:
    """The game's own reward ends the episode; a move that is not legal is answered, then loses."""
    row = {"env_id": "TowerOfHanoi-v0", "seed": 1}
    won = await play(row, *(f"<think>[B A]</think> I say {move}" for move in HANOI))
    assert won[-1][1:4] == (1.0, True, False)
    lost = await play(row, "[B A]", "[B A]", "[B A]", "")
    assert "invalid" in lost[1][0].lower()
    assert lost[-1][1] < 1.0
    assert lost[-1][2] is True


@pytest.mark.parametrize("env_id", GAMES)
async def test_a_seed_fixes_the_game_whatever_goes_on_beside(env_id: str) -> None:
    """Two sessions of one seed see the same, with others between them; Python's own numbers are left alone."""
    random.seed(5)
    expected = random.Random(5).random()
    row, other = {"env_id": env_id, "seed": 7}, {"env_id": env_id, "seed": 8}
    moves = ("[1 1]", "[2 2]", "[continue]")
    seen: list[Any] = []

    async def run() -> None:
        seen.append(await play(row, *moves))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        nursery.start_soon(play, other, *moves)
        nursery.start_soon(run)
    assert seen[0] == seen[1]
    assert random.random() == expected


async def test_games_that_there_are_not() -> None:
    """Are refused: in a block when rows are made, in a row when it is seeded."""
    with pytest.raises(ConfigError, match="Nothing-v0"):
        list(TextArena.rows({"env_ids": ["Nothing-v0"]}))
    for row in ({"env_id": "Chess-v0"}, {"seed": -1}):
        with pytest.raises(RequestRefused):
            await play(row)


@pytest.mark.parametrize(("moves", "reward"), [(HANOI, 1.0), (["[B A]"] * 4, 0.0)])
async def test_textarena_from_end_to_end(scripted: Any, saying: Any, moves: list[str], reward: float) -> None:
    """A whole rollout earns what the game gives."""
    config = scripted("textarena", [[saying(move)] for move in moves])
    block = config["my_agent"]["responses_api_agents"]
    block["gymnasium_agent"] = block.pop("simple_agent")
    row = next(row for row in TextArena.rows({}) if row["env_id"] == "TowerOfHanoi-v0")
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        (found,) = [outcome.unwrap()[1]["reward"] async for outcome in rollouts]
    assert found == reward or (reward == 0.0 and found <= 0.0)
