"""What can go wrong with an OpenEnv environment, and what of it is a failure, with its kind and stage."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

import gym_trio
from gym_trio.environments.openenv import OpenEnv
from gym_trio.errors import ConfigError, RequestRefused, RolloutFailure
from gym_trio.servers import RequestBody

ROW = {"responses_create_params": {"input": [{"role": "system", "content": "play"}]}}


async def fail(config: Any, row: Any = ROW) -> RolloutFailure:
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        outcome = await rollouts.receive()
    assert isinstance(outcome, gym_trio.Failed), outcome
    return outcome.failure


def shape(failure: RolloutFailure) -> tuple[str, str, bool]:
    return str(failure.kind), str(failure.stage), failure.terminal


@pytest.mark.parametrize(
    ("said", "block", "expected", "told"),
    [
        ("raise", {}, ("agent_run_error", "agent", True), "the board broke (EXECUTION_ERROR)"),
        ("unscored", {}, ("verifier_error", "verification", True), "brought no reward"),
        ("nan", {}, ("verifier_error", "verification", True), "brought no reward"),
        ("large 9000", {"max_message_bytes": 5000}, ("transport_peer_drop", "agent", False), "more than 5000 bytes"),
        ("hm", {"action_values": {"extra": 1}, "observed_errors": []}, ("agent_run_error", "agent", True), "extra"),
        ("hm", {"observation_template": "{text.x}"}, ("agent_run_error", "agent", True), "observation_template"),
    ],
)
async def test_a_step_that_fails(
    games: Any, scripted: Any, said: str, block: dict[str, Any], expected: Any, told: str
) -> None:
    """It fails its rollout, whose session is over then; none is a reward of zero."""
    failure = await fail(scripted([said, "right"], base_url=f"{games.url}/word", **block))
    assert shape(failure) == expected
    assert told in failure.message
    await games.settled()


async def test_what_the_block_lets_pass(games: Any, scripted: Any) -> None:
    """An environment that raises at illegal moves, and one that gives no reward at the end."""
    block = {"observed_errors": ["VALIDATION_ERROR", "EXECUTION_ERROR"], "missing_reward": "zero"}
    config = scripted(["raise", "warm 0.5", "nan"], base_url=f"{games.url}/word", **block)
    async with gym_trio.open_gym(config) as gym, gym.run_examples([ROW]) as rollouts:
        _, result = (await rollouts.receive()).unwrap()
    assert result["reward"] == 0.5
    assert "the board broke (EXECUTION_ERROR)" in result["response"]["output"][1]["content"]


@pytest.mark.parametrize(
    ("reset", "told"), [({"fail": True}, "no board (EXECUTION_ERROR)"), ({"over": True}, "ended before its first step")]
)
async def test_a_reset_that_fails(games: Any, scripted: Any, reset: dict[str, Any], told: str) -> None:
    """It fails in the stage of the seed."""
    failure = await fail(scripted(["right"], base_url=f"{games.url}/word"), {**ROW, "reset": reset})
    assert shape(failure) == ("agent_run_error", "seed", True)
    assert told in failure.message
    await games.settled()


@pytest.mark.parametrize("row", [{"seed": -1}, {"seed": True}, {"reset": [1]}])
async def test_a_row_that_does_not_fit_is_named(games: Any, scripted: Any, row: dict[str, Any]) -> None:
    """By its field, before a session is opened."""
    before = await games.sessions()
    failure = await fail(scripted(["right"], base_url=f"{games.url}/word"), {**ROW, **row})
    (field,) = row
    assert field in failure.message
    assert await games.sessions() == before


async def test_an_episode_of_tools_without_a_reward_is_unscored(games: Any, scripted: Any, saying: Any) -> None:
    """A model that stops calling before there was one."""
    failure = await fail(scripted(["I think it is five"], base_url=f"{games.url}/tools"))
    assert shape(failure) == ("verifier_error", "verification", True)
    await games.settled()


async def test_nobody_there(scripted: Any, unused_url: str) -> None:
    """A URL where nothing listens fails each rollout before it begins, and may be tried again."""
    failure = await fail(scripted(["right"], base_url=unused_url))
    assert shape(failure) == ("transport_unreachable", "seed", False)


async def test_a_server_that_is_no_openenv(games: Any, scripted: Any) -> None:
    """Without a schema the block must say the field; with it, the missing route is named with its status."""
    failure = await fail(scripted(["right"], base_url=games.url))
    assert "set action_field" in failure.message
    failure = await fail(scripted(["right"], base_url=games.url, action_field="word"))
    assert "403" in failure.message or "404" in failure.message
    assert shape(failure)[1] == "seed"


async def test_no_room_within_the_bound(games: Any, scripted: Any) -> None:
    """A server that others have filled is asked again, until the bound has passed."""
    block = {"base_url": f"{games.url}/single", "session_wait_seconds": 0.3}
    async with open_environment(**block) as holder, games_session(holder, {}):
        failure = await fail(scripted(["right"], **block))
    assert shape(failure) == ("provider_quota_exhausted", "seed", False)
    assert "session_wait_seconds" in failure.message
    await games.settled()


@asynccontextmanager
async def open_environment(**block: Any) -> Any:
    environment = OpenEnv(name="game", config=block)
    async with environment.lifespan():
        yield environment


@asynccontextmanager
async def games_session(environment: OpenEnv, row: dict[str, Any]) -> Any:
    session = await environment.create_session()
    try:
        await environment.reset(session, RequestBody(row))
        yield session
    finally:
        with trio.CancelScope(shield=True):
            await environment.dispose_session(session)


def replied(text: str) -> dict[str, Any]:
    return {"output": [{"type": "message", "role": "assistant", "content": text}]}


@pytest.mark.parametrize("parked", [True, False])
async def test_cancellation_at_every_step(games: Any, cancel_at_step: Any, parked: bool) -> None:
    """Reset, step, end: wherever a rollout is cut, the server sees its session end, and its place is free again."""

    async def rollout(environment: OpenEnv) -> None:
        async with games_session(environment, {}) as session:
            await environment.step(session, replied("hm"), RequestBody())
            await environment.step(session, replied("right"), RequestBody())

    step = 1
    async with open_environment(base_url=f"{games.url}/word", max_sessions=1) as environment:
        while True:
            with trio.fail_after(30), cancel_at_step(step, parked=parked) as cancelling:
                await rollout(environment)
            await games.settled()
            if not cancelling.scope.cancelled_caught:
                break
            step += 1
    assert step > 12


async def test_a_step_that_is_cut_ends_the_session_once_it_is_over(games: Any, scripted: Any) -> None:
    """Stopping does not wait for the environment's own step; the session is gone when that has ended."""
    config = scripted(["sleep 4"], base_url=f"{games.url}/word")
    async with gym_trio.open_gym(config) as gym, gym.run_examples([ROW]) as rollouts:
        await games.settled(1)
        with trio.fail_after(3.5):
            await rollouts.aclose()
    await games.settled()


async def test_a_close_that_the_server_does_not_answer_is_bounded(games: Any) -> None:
    """The environment still runs its step: the connection is closed when the bound has passed."""
    async with open_environment(base_url=f"{games.url}/word", close_timeout_seconds=0.1) as environment:
        async with trio.open_nursery() as nursery:
            session = await environment.create_session()
            await environment.reset(session, RequestBody())
            nursery.start_soon(swallow, environment.step, session, replied("sleep 4"), RequestBody())
            await trio.testing.wait_all_tasks_blocked(0.01)
            with trio.fail_after(3.5):
                await environment.dispose_session(session)
        await games.settled()


async def swallow(call: Any, *arguments: Any) -> None:
    with pytest.raises(gym_trio.TransportError):
        await call(*arguments)


async def test_a_step_before_the_reset_is_refused() -> None:
    """There is no session at the server yet."""
    environment = OpenEnv(name="game", config={"base_url": "http://127.0.0.1:9"})
    with pytest.raises(RequestRefused, match="not reset"):
        await environment.step(await environment.create_session(), replied("x"), RequestBody())


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ({}, "base_url .where one runs."),
        ({"base_url": "x y"}, "game.base_url"),
        ({"base_url": "http://h", "app": "a:b"}, "game.app: app goes without"),
        ({"app": "no_colon"}, "module:name"),
        ({"command": ["x"]}, "base_url"),
        ({"base_url": "http://h", "action": "txt"}, "action"),
        ({"base_url": "http://h", "action_pattern": "("}, "regular expression"),
        ({"base_url": "http://h", "observation_template": "{"}, "observation_template"),
        ({"base_url": "http://h", "session_wait_seconds": -1}, "session_wait_seconds"),
        ({"base_ulr": "http://h"}, "base_url"),
    ],
)
def test_a_block_that_cannot_work_is_refused_with_its_key(block: dict[str, Any], told: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=told):
        OpenEnv(name="game", config=block)
