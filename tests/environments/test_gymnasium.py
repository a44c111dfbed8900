"""Environments that are stepped, from end to end: blackjack, follow-ups, and those of the gymnasium package."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio
import trio.testing

import gym_trio
from gym_trio.environments.blackjack import Blackjack, Hand, value_of
from gym_trio.environments.gymnasium import Gymnasium
from gym_trio.errors import RequestRefused
from gym_trio.servers import RequestBody

SERVE = pytest.mark.parametrize("serve", ["memory", "sockets"])


def config_of(environment: str, replies: list[Any], settings: Any = None, **agent: Any) -> dict[str, Any]:
    return {
        environment: {"resources_servers": {environment: {"domain": "games", **(settings or {})}}},
        "my_agent": {
            "responses_api_agents": {
                "gymnasium_agent": {
                    "resources_server": {"type": "resources_servers", "name": environment},
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                    **agent,
                }
            }
        },
        "policy_model": {"responses_api_models": {"scripted_model": {"replies": replies}}},
    }


def acting(*names: str) -> list[list[dict[str, Any]]]:
    return [[{"role": "assistant", "content": f"<action>{name}</action>"}] for name in names]


async def results_of(config: Any, rows: Any, serve: Any = "memory") -> list[Any]:
    async with gym_trio.open_gym(config, serve=serve) as gym:
        async with gym.run_examples(rows) as rollouts:
            results = [outcome.unwrap()[1] async for outcome in rollouts]
        servers = [name for name in config if "resources_servers" in config[name]]
        for name in servers:
            assert (await gym.client.get(name, "/status")).json()["sessions"]["ready"] == 0
    return results


# --- blackjack ---


@pytest.mark.parametrize(
    ("hand", "value"),
    [
        ("2 3", 5),
        ("K Q", 20),
        ("A K", 21),
        ("A A", 12),
        ("A 9 A", 21),
        ("A K Q", 21),
        ("10 J 2", 22),
        ("A A A 8", 21),
        ("A A K", 12),
    ],
)
def test_the_value_of_a_hand(hand: str, value: int) -> None:
    """Face cards count ten; one ace may count eleven, and only within 21."""
    assert value_of(hand.split()) == value


async def play(player: str, dealer: str, said: str, seed: int = 1) -> Any:
    hand = Hand(player.split(), dealer.split(), random.Random(seed))
    response = {"output": [{"type": "message", "role": "assistant", "content": said}]}
    return hand, await Blackjack(name="b").step(hand, response, RequestBody())


@pytest.mark.parametrize(
    ("player", "dealer", "reward", "result"),
    [
        ("K Q", "10 9", 1.0, "win"),
        ("K Q", "K Q", 0.0, "draw"),
        ("K 8", "K 9", -1.0, "loss"),
        ("A K", "10 A", 0.0, "draw"),
    ],
)
async def test_a_stand_settles_the_hand(player: str, dealer: str, reward: float, result: str) -> None:
    """The higher hand wins, equal hands draw."""
    _, (observation, got, terminated, truncated, info) = await play(player, dealer, "<ACTION> Stand </ACTION>")
    assert (observation, got, terminated, truncated, info["result"]) == (None, reward, True, False, result)


@pytest.mark.parametrize("said", ["", "I hit!", "<action>split</action>", "hit", "<action>ｈｉｔ</action>"])
async def test_a_reply_without_an_action_stands(said: str) -> None:
    """What is no action in its tag is taken as a stand, so a hand always ends."""
    _, (_, reward, terminated, _, _) = await play("K Q", "10 7", said)
    assert (reward, terminated) == (1.0, True)


async def test_the_first_action_counts() -> None:
    """Two actions in one reply are not two moves."""
    hand, (_, _, terminated, _, _) = await play("2 2", "9 9", "<action>hit</action><action>stand</action>")
    assert (len(hand.player), terminated) == (3, False)


async def test_a_hit_above_21_is_bust() -> None:
    """It ends the hand at once, whatever the dealer holds."""
    hand, (observation, reward, terminated, _, info) = await play("K Q 9", "2 2", "<action>hit</action>")
    assert (observation, reward, terminated, info["result"]) == (None, -1.0, True, "bust")
    assert hand.dealer == ["2", "2"]


async def test_the_dealer_draws_below_17() -> None:
    """Over many hands the dealer ends at 17 or more, and never drew from there."""
    for seed in range(200):
        hand, _ = await play("K Q", "2 2", "<action>stand</action>", seed)
        assert value_of(hand.dealer) >= 17
        assert value_of(hand.dealer[:-1]) < 17


async def test_the_seed_fixes_the_cards_and_a_rollout_has_its_own() -> None:
    """The same seed deals the same hand; without one the rollout's id does."""
    server = Blackjack(name="b")

    async def deal(**row: Any) -> Any:
        return await server.reset(Hand(), RequestBody(row))

    assert await deal(seed=7) == await deal(seed=7, _ng_rollout_id="x")
    assert await deal(_ng_rollout_id="0-1") == await deal(_ng_rollout_id="0-1")
    assert len({await deal(_ng_rollout_id=f"0-{n}") for n in range(20)}) > 10


@SERVE
async def test_blackjack_from_end_to_end(serve: Any) -> None:
    """Standing at once gives a reward of -1, 0 or 1, says how it came about, and leaves no session."""
    rows = list(Blackjack.rows({}))
    results = await results_of(config_of("blackjack", acting("stand")), rows, serve)
    assert len(results) == len(rows)
    assert {one["reward"] for one in results} == {-1.0, 0.0, 1.0} or {one["reward"] for one in results} == {-1.0, 1.0}
    for one in results:
        assert (one["terminated"], one["truncated"]) == (True, False)
        assert one["info"]["result"] in ("win", "draw", "loss")
        assert "The dealer's open card" in one["responses_create_params"]["input"][-1]["content"]
        assert one["response"]["usage"]["total_tokens"] > 0


async def test_the_step_limit_truncates() -> None:
    """An episode that does not end by itself ends truncated, and its session is closed."""
    rows = [{"responses_create_params": {"input": "go"}, "follow_ups": ["a", "b", "c"], "expected_answer": "x"}]
    config = config_of("example_multi_turn_gymnasium", acting("x", "x", "x"), max_steps=2)
    (result,) = await results_of(config, rows)
    assert (result["terminated"], result["truncated"], result["reward"]) == (False, True, 0.0)
    roles = [item.get("role") for item in result["response"]["output"]]
    assert roles == ["assistant", "user", "assistant", "user"]


# --- follow-up questions ---


async def test_follow_ups_reward_the_last_answer_alone() -> None:
    """An early right answer is worth nothing; case does not matter; the questions are all asked."""
    row = {"responses_create_params": {"input": "q"}, "follow_ups": ["a?", "b?"], "expected_answer": "Straße"}
    for texts, reward in (("x", "y", "the STRASSE, no: straße"), 1.0), (("straße", "straße", "no"), 0.0), ("   ", 0.0):
        replies = [[{"role": "assistant", "content": text}] for text in texts]
        (result,) = await results_of(config_of("example_multi_turn_gymnasium", replies), [row])
        assert result["reward"] == reward
        asked = [item["content"] for item in result["response"]["output"] if item.get("role") == "user"]
        assert asked == ["a?", "b?"]


async def test_without_an_expected_answer_there_is_no_reward() -> None:
    """The empty text is contained in everything and must not count."""
    row = {"responses_create_params": {"input": "q"}}
    (result,) = await results_of(config_of("example_multi_turn_gymnasium", acting("x")), [row])
    assert (result["reward"], result["terminated"]) == (0.0, True)


async def test_a_row_that_does_not_fit_fails_in_the_seed_stage() -> None:
    """Follow-ups that are no texts are one failure of the seed."""
    row = {"responses_create_params": {"input": "q"}, "follow_ups": [1]}
    config = config_of("example_multi_turn_gymnasium", acting("x"))
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        (outcome,) = [outcome async for outcome in rollouts]
    assert (outcome.failure.stage, "follow_ups" in outcome.failure.body) == ("seed", True)


# --- the gymnasium package ---


@SERVE
@pytest.mark.parametrize(
    ("env_id", "moves", "reward", "options"),
    [
        ("FrozenLake-v1", "down down right right down right", 1.0, {"is_slippery": False}),
        ("FrozenLake-v1", "down right", 0.0, {"is_slippery": False}),
        ("CliffWalking-v1", "up " + "right " * 11 + "down", -13.0, {}),
        ("Blackjack-v1", "stand", None, {}),
    ],
)
async def test_toy_text_games_are_won_and_lost(env_id: str, moves: str, reward: Any, options: Any, serve: Any) -> None:
    """The rewards are the environment's own, summed over the steps, and the game's end ends the episode."""
    row = {"responses_create_params": {"input": []}, "env_id": env_id, "seed": 3, "env_options": options}
    config = config_of("gymnasium", acting(*moves.split()), max_steps=20)
    (result,) = await results_of(config, [row], serve)
    assert (result["terminated"], result["truncated"]) == (True, False)
    assert result["reward"] == reward if reward is not None else result["reward"] in (-1.0, 0.0, 1.0)


async def test_the_taxi_says_where_everyone_is(environment_class: Any) -> None:
    """What the player reads is enough to play: the passenger is fetched and brought by its words alone."""
    server = Gymnasium(name="g")
    session = await server.create_session()
    seen = await server.reset(session, RequestBody({"env_id": "Taxi-v4", "seed": 4}))
    assert isinstance(seen, str)
    assert "The taxi is at row" in seen
    assert "\x1b" not in seen
    await server.dispose_session(session)


async def test_an_illegal_move_moves_nothing_and_is_explained() -> None:
    """Junk, a wrong name, a number out of range and a boolean are answered with what is legal."""
    server = Gymnasium(name="g")
    session = await server.create_session()
    row = RequestBody({"env_id": "FrozenLake-v1", "seed": 1})
    first = await server.reset(session, row)
    for said in (
        "",
        "left",
        "<action>fly</action>",
        "<action>7</action>",
        "<action>true</action>",
        "<action>[</action>",
    ):
        response = {"output": [{"type": "message", "role": "assistant", "content": said}]}
        text, reward, terminated, truncated, _ = await server.step(session, response, row)
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert "left, down, right, up" in str(text)
    assert await server.in_thread(session.look, server.describe, 0) == first
    await server.dispose_session(session)


async def test_an_environment_that_is_not_offered_is_refused() -> None:
    """A row cannot make the server import what its settings do not name."""
    server = Gymnasium(name="g")
    with pytest.raises(RequestRefused, match="env_id"):
        await server.reset(await server.create_session(), RequestBody({"env_id": "os:Evil-v0"}))


@attrs.define
class SlowEnv:
    """An environment whose step waits until it is allowed to go on."""

    began: threading.Event = attrs.Factory(threading.Event)
    go: threading.Event = attrs.Factory(threading.Event)
    calls: list[str] = attrs.Factory(list)
    spec: Any = None
    render_mode: Any = None

    def reset(self, *, seed: int) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> Any:
        self.calls.append("step begins")
        self.began.set()
        self.go.wait(20)
        self.calls.append("step ends")
        return 1, 1.0, True, False, {}

    def close(self) -> None:
        self.calls.append("close")


class Slow(Gymnasium):
    env = SlowEnv()

    def make_env(self, env_id: str, options: Mapping[str, Any]) -> Any:
        return self.env

    def action_of(self, env: Any, text: str) -> Any:
        return text


async def test_a_step_that_was_given_up_ends_before_the_environment_is_closed() -> None:
    """A cancelled step's thread is not waited for, and the environment is never closed under it."""
    server = Slow(name="g")
    session = await server.create_session()
    await server.reset(session, RequestBody())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.step, session, {"output": []}, RequestBody())
        await trio.to_thread.run_sync(server.env.began.wait, 20)
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.dispose_session, session)
        await trio.testing.wait_all_tasks_blocked()
        assert server.env.calls == ["step begins"]
        server.env.go.set()
    assert server.env.calls == ["step begins", "step ends", "close"]


@pytest.mark.parametrize("key", ["step_timeout_seconds", "total_timeout_seconds"])
async def test_an_episode_has_its_deadlines(key: str) -> None:
    """A model call, and the whole episode, is given its time; the failure names the setting."""
    config = config_of("blackjack", acting("stand"), **{key: 0.05})
    config["policy_model"]["responses_api_models"]["scripted_model"]["delay_seconds"] = 30
    async with gym_trio.open_gym(config) as gym:
        async with gym.run_examples([{"responses_create_params": {"input": "go"}}]) as rollouts:
            (outcome,) = [outcome async for outcome in rollouts]
        assert (await gym.client.get("blackjack", "/status")).json()["sessions"]["ready"] == 0
    assert (outcome.failure.kind, outcome.failure.stage) == ("agent_timeout", "agent")
    assert key in outcome.failure.message


async def test_a_row_without_parameters_fails_in_the_seed_stage() -> None:
    """It is terminal: nothing can be asked of the model."""
    config = config_of("blackjack", acting("stand"))
    async with gym_trio.open_gym(config) as gym:
        response = await gym.post("my_agent", "/run", json={"seed": 1})
    failure = response.json()["failure"]
    assert (failure["stage"], failure["terminal"]) == ("seed", True)


def test_rows_name_environments_that_exist() -> None:
    """The rows take the environments in turn, each with a seed of its own; an unknown one is refused by its key."""
    rows = list(Gymnasium.rows({"size": 9, "seed": 5}))
    assert [row["seed"] for row in rows] == list(range(5, 14))
    assert len({row["env_id"] for row in rows}) == 4
    with pytest.raises(gym_trio.ConfigError, match="env_ids"):
        list(Gymnasium.rows({"env_ids": ["NoSuch-v0"]}))


async def test_a_reset_makes_the_environment_anew() -> None:
    """The first one is closed, the seed is the row's or the rollout's, and a wrong seed is refused."""
    server = Gymnasium(name="g")
    session = await server.create_session()
    seen = [await server.reset(session, RequestBody({"env_id": "Taxi-v4", "_ng_rollout_id": "0-1"})) for _ in range(2)]
    assert seen[0] == seen[1]
    for seed in (-1, "x", True):
        with pytest.raises(RequestRefused, match="seed"):
            await server.reset(session, RequestBody({"seed": seed}))
    await server.dispose_session(session)


@pytest.mark.parametrize(("row", "said"), [({"seed": 1.5}, "seed"), ({"seed": 3}, None), ({}, None)])
def test_blackjack_rows_are_checked(row: Any, said: Any) -> None:
    """A seed is a whole number or a text."""
    problems = list(Blackjack.row_problems(row))
    assert [said in one for one in problems] == ([True] if said else [])
