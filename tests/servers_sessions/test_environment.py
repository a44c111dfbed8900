"""Episodes: in order, undone last first, and each failure in the contract's form."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import ConfigError, RolloutFailure
from gym_trio.gym import open_gym_of
from gym_trio.http import MemoryTransport, ServerClient
from gym_trio.servers import AgentServer, EnvironmentServer, LegacyAgentServer, RequestBody, ResourcesServer
from gym_trio.servers._body import read_body
from gym_trio.servers._cleanup import Cleanup

TASK_ID = {"taskset": "t", "task_id": "1"}
AGENT_REF = {"type": "responses_api_agents", "name": "agent"}
SHOP_REF = {"type": "resources_servers", "name": "shop"}


def request_of(rollout_id: str = "0-0", attempt: int = 0, **task_input: Any) -> dict[str, Any]:
    given = {"responses_create_params": {"input": []}, "task_data": {"answer": 42}, **task_input}
    return {
        "episode_id": {"rollout_id": rollout_id, "attempt": attempt},
        "task": {"task_id": TASK_ID, "task_input": given},
    }


class Stage:
    """What the two servers of an episode do, and the order in which they did it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fails: dict[str, list[Exception]] = {}
        self.slow: dict[str, float] = {}
        self.events: dict[str, Any] = {}

    async def does(self, what: str) -> None:
        self.log.append(what)
        await trio.sleep(self.slow.get(what, 0))
        if self.fails.get(what):
            raise self.fails[what].pop(0)


class StagedShop(ResourcesServer):
    stage: Stage

    async def seed_session(self, session: Any, row: RequestBody) -> Any:
        await self.stage.does("seed resources")
        session.row = dict(row)

    async def verify(self, session: Any, request: RequestBody) -> Any:
        await self.stage.does("verify")
        self.stage.events["verify"] = dict(request)
        return 1.0 if session.row["answer"] == 42 else 0.0

    async def dispose_session(self, session: Any) -> None:
        await self.stage.does("close resources")


class StagedAgent(AgentServer):
    stage: Stage

    async def open_session(self, seed: RequestBody) -> Any:
        await self.stage.does("seed agent")
        self.stage.events["seed"] = dict(seed)
        return {}

    async def responses(self, request: RequestBody) -> Any:
        assert request.agent_session is not None
        await self.stage.does("respond")
        request.cookies["touched"] = "yes"
        return {"output": [], "rollout": request.rollout_id}

    async def close_session(self, state: Any) -> Any:
        await self.stage.does("close agent")
        return {"turns": 1}

    async def run(self, request: RequestBody) -> Any:
        await self.stage.does("run")
        return {"row": dict(request)}


@pytest.fixture
def stage() -> Stage:
    return Stage()


@asynccontextmanager
async def open_episodes(
    stage: Stage, serve: Any = "memory", shop_type: type[StagedShop] = StagedShop, **config: Any
) -> AsyncIterator[Any]:
    client = ServerClient()
    shop, agent = shop_type(name="shop", client=client), StagedAgent(name="agent", client=client)
    shop.stage = agent.stage = stage
    block = {"resources_server": SHOP_REF, "agent_server": AGENT_REF, **config}
    environment = EnvironmentServer(name="env", config=block, client=client)
    legacy = LegacyAgentServer(name="legacy", config={"agent_server": AGENT_REF}, client=client)
    async with open_gym_of([shop, agent, environment, legacy], client, serve=serve) as gym:
        yield gym
    for server in (shop, agent):
        stage.events[server.name] = server.sessions.statistics()


async def run(gym: Any, *args: Any, **task_input: Any) -> dict[str, Any]:
    response = await gym.post("env", "/run", json=request_of(*args, **task_input))
    assert response.status == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


ORDER = ["seed resources", "seed agent", "respond", "close agent", "verify", "close resources"]


@pytest.mark.parametrize("serve", ["memory", "sockets"])
async def test_an_episode_goes_in_order(stage: Stage, serve: str) -> None:
    """Both sessions are seeded, used and closed; the result is the verify response with the agent's observations."""
    async with open_episodes(stage, serve) as gym:
        answer = await run(gym, "3-1", 2)
    assert stage.log == ORDER
    assert answer["episode_id"] == {"rollout_id": "3-1", "attempt": 2}
    assert answer["task_id"] == TASK_ID
    assert answer["result"]["reward"] == 1.0
    assert answer["result"]["ng_agent_observations"] == {"turns": 1}
    assert answer["result"]["response"]["rollout"] == "3-1-a2"
    assert set(answer) == {"episode_id", "task_id", "result"}
    access = stage.events["seed"]["tool_accesses"][0]
    assert (access["kind"], access["name"]) == ("direct_http", "shop")
    assert access["base_url"].startswith("http://")
    assert "session_id" in access["cookies"]
    assert stage.events["verify"]["answer"] == 42


@pytest.mark.parametrize(
    ("failing", "log", "at"),
    [
        ("seed resources", ["seed resources", "close resources"], "seed"),
        ("seed agent", ["seed resources", "seed agent", "close resources"], "seed"),
        ("respond", [*ORDER[:4], "close resources"], "agent"),
        ("verify", ORDER, "verification"),
    ],
)
async def test_a_failing_step_still_closes_what_was_begun(stage: Stage, failing: str, log: list[str], at: str) -> None:
    """The answer is a failure with its stage; cleanup runs last first."""
    stage.fails[failing] = [RolloutFailure("shop:broken", "it broke", stage=at, terminal=True)]
    async with open_episodes(stage) as gym:
        answer = await run(gym)
        assert stage.log == log
    failure = answer["failure"]
    assert "result" not in answer
    assert (failure["failure_kind"], failure["terminal"], failure["stage"]) == ("shop:broken", True, at)
    assert "it broke" in failure["failure_reason"]
    assert ("partial_response" in failure) == (failing == "verify")
    assert stage.events["shop"].live == stage.events["agent"].live == 0


async def test_no_reward_without_the_agents_close_which_is_tried_again(stage: Stage) -> None:
    """An agent that may still be at work fails the episode; cleanup tries once more."""
    stage.fails["close agent"] = [RuntimeError("stuck")]
    async with open_episodes(stage) as gym:
        answer = await run(gym)
        assert stage.log == [*ORDER[:4], "close agent", "close resources"]
    failure = answer["failure"]
    assert (failure["failure_kind"], failure["stage"]) == ("session_release_failed", "cleanup")
    assert failure["partial_response"]["output"] == []


async def test_a_failing_close_of_the_environment_does_not_take_the_result(stage: Stage, caplog: Any) -> None:
    """The reward is known; the error is reported, and the server's own drain closes the session."""
    stage.fails["close resources"] = [RuntimeError("stuck")]
    async with open_episodes(stage) as gym:
        assert (await run(gym))["result"]["reward"] == 1.0
    assert any("closing the environment's session" in record.getMessage() for record in caplog.records)
    assert stage.log.count("close resources") == 2


FOREIGN: dict[str, dict[str, Any]] = {
    "/seed_session": {
        "resources_tools": {"tools": [], "url_path": "/mcp", "headers": {"a": "b"}},
        "sandbox_access": {},
    },
    "/v1/agent_sessions": {"agent_session_id": "x"},
    "/v1/responses": {"output": []},
    "/v1/agent_sessions/close": {"agent_observations": {"turns": 1}, "resources_cookies": {"session": "x"}},
    "/verify": {"reward": 1.0},
    "/close_session": {"closed": True},
}
WRONG = [
    "null",
    "[]",
    "{}",
    '""',
    '"x"',
    "1.5",
    "1e999",
    "NaN",
    "true",
    "[null]",
    '{"a": null}',
    '"\\ud800"',
    '"a\\nb;c=d"',
]


def wrong_answers() -> Iterator[tuple[str, str]]:
    """A path, and an answer to it in which one thing is wrong: each value at each place, and in place of the whole."""

    def places(value: Any, way: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield way
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from places(inner, (*way, key))

    def put(value: Any, way: tuple[str, ...]) -> Any:
        return {**value, way[0]: put(value[way[0]], way[1:])} if way else "WRONG"

    for path, good in FOREIGN.items():
        for way in places(good, ()):
            for wrong in WRONG:
                yield path, json.dumps(put(good, way)).replace('"WRONG"', wrong)


async def test_whatever_another_make_answers_both_sessions_are_closed(caplog: Any) -> None:
    """An answer that is none fails the episode in one line, or is passed over; it never costs the other its close."""
    answers: dict[str, str] = {}
    asked: list[str] = []

    async def foreign(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        path = next(known for known in sorted(FOREIGN, key=len, reverse=True) if scope["path"].endswith(known))
        asked.append(path)
        content = answers[path].encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": content})

    client = ServerClient()
    for name in ("shop", "agent"):
        client.register(name, MemoryTransport(foreign), f"http://{name}")
    block = {"resources_server": SHOP_REF, "agent_server": AGENT_REF}
    async with open_gym_of([EnvironmentServer(name="env", config=block, client=client)], client) as gym:
        for path, wrong in wrong_answers():
            answers.update({known: json.dumps(good) for known, good in FOREIGN.items()} | {path: wrong})
            asked.clear()
            answer = await run(gym)
            assert asked[-1] == "/close_session", (path, wrong)
            assert ("/v1/agent_sessions" in asked) == ("/v1/agent_sessions/close" in asked), (path, wrong)
            reason = answer["failure"]["failure_reason"] if "failure" in answer else ""
            assert "\n" not in reason, (path, wrong)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_an_unexpected_error_is_a_terminal_failure(stage: Stage) -> None:
    """A protocol of the author's own that raises is answered, not crashed on."""

    class Odd(EnvironmentServer):
        async def run_episode(self, episode: Any) -> Any:
            episode.stage = "agent"
            raise KeyError("oops")

    client = ServerClient()
    async with open_gym_of([Odd(name="env", client=client)], client) as gym:
        failure = (await run(gym))["failure"]
    assert failure["terminal"] is True
    assert "KeyError" in failure["failure_reason"]
    assert failure["stage"] == "agent"


async def test_the_episodes_deadline_ends_it_and_closes_its_sessions(stage: Stage, autojump_clock: Any) -> None:
    """A failure that another attempt may help, in the stage that took too long."""
    stage.slow["respond"] = 1000
    async with open_episodes(stage, default_episode_timeout_seconds=10) as gym:
        failure = (await run(gym))["failure"]
        assert trio.current_time() == pytest.approx(10)
        assert stage.log == ["seed resources", "seed agent", "respond", "close agent", "close resources"]
    assert failure["failure_kind"] == "agent_timeout"
    assert (failure["terminal"], failure["stage"]) == (False, "agent")


async def test_a_caller_that_leaves_has_its_sessions_closed(
    stage: Stage, nursery: trio.Nursery, autojump_clock: Any
) -> None:
    """The episode is cancelled where it is; cleanup is shielded."""
    stage.slow.update({"respond": 1000, "close agent": 3, "close resources": 3})
    async with open_episodes(stage) as gym:
        with trio.move_on_after(5) as scope:
            await run(gym)
        assert scope.cancelled_caught
        assert stage.log == ["seed resources", "seed agent", "respond", "close agent", "close resources"]
        assert trio.current_time() == pytest.approx(11)
    assert stage.events["shop"].live == stage.events["agent"].live == 0


async def test_cleanup_is_bounded_and_one_that_hangs_leaves_time_for_the_rest(
    stage: Stage, autojump_clock: Any
) -> None:
    """The agent's close may take half of the time; the environment's still gets its turn."""
    stage.fails["respond"] = [RolloutFailure("x:y", "no", stage="agent")]
    stage.slow["close agent"] = 1000
    async with open_episodes(stage, cleanup_timeout_seconds=10) as gym:
        await run(gym)
        assert trio.current_time() == pytest.approx(5)
        assert stage.log[-2:] == ["close agent", "close resources"]
        stage.slow["close agent"] = 0


async def test_admission_is_bounded_and_a_full_queue_is_a_failure(
    stage: Stage, nursery: trio.Nursery, autojump_clock: Any
) -> None:
    """The third of three episodes waits for its place until the queue's own bound."""
    stage.slow["respond"] = 20
    answers: list[Any] = []

    async def one(gym: Any, number: int) -> None:
        answers.append((number, await run(gym, f"{number}-0"), trio.current_time()))

    async with (
        open_episodes(stage, max_concurrent_episodes=1, queue_timeout_seconds=30) as gym,
        trio.open_nursery() as running,
    ):
        for number in range(3):
            running.start_soon(one, gym, number)
            await wait_all_tasks_blocked()
    by_number = {number: (answer, at) for number, answer, at in answers}
    assert [at for _, at in sorted(by_number.values(), key=lambda pair: pair[1])] == [20, 30, 40]
    failure = by_number[2][0]["failure"]
    assert (failure["stage"], failure["terminal"]) == ("admission", False)
    assert "failure_kind" not in failure
    assert "within 30 s" in failure["failure_reason"]


async def test_a_place_is_given_back_by_cancelled_and_failed_episodes(stage: Stage, autojump_clock: Any) -> None:
    """Neither leaks it."""
    stage.slow["respond"] = 1000
    async with open_episodes(stage, max_concurrent_episodes=1, queue_timeout_seconds=1) as gym:
        for _ in range(3):
            with trio.move_on_after(2):
                await run(gym)
        stage.slow.clear()
        stage.fails["verify"] = [RolloutFailure("x:y", "no", stage="verification")]
        assert "failure" in await run(gym)
        assert "result" in await run(gym)


async def test_a_running_episode_can_be_stopped(stage: Stage, nursery: trio.Nursery, autojump_clock: Any) -> None:
    """Its caller gets a failure of kind cancelled, its sessions are closed."""
    stage.slow["respond"] = 1000
    answers: list[Any] = []

    async def one(gym: Any) -> None:
        answers.append(await run(gym, "3-1", 1))

    async with open_episodes(stage) as gym:
        async with trio.open_nursery() as running:
            running.start_soon(one, gym)
            await trio.sleep(1)
            assert (await gym.post("env", "/rollouts/3-1-a1/stop", json={})).json() == {"stopped": True}
        assert answers[0]["failure"]["failure_kind"] == "cancelled"
        assert stage.log[-2:] == ["close agent", "close resources"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"episode_id": {"rollout_id": "0-0"}},
        {**request_of(), "more": 1},
        {**request_of(), "episode_id": {"rollout_id": "0-0-a1"}},
        {**request_of(), "task": {"task_id": TASK_ID}},
        {**request_of(), "task": {"task_id": TASK_ID, "task_input": {}, "more": 1}},
    ],
)
async def test_what_does_not_validate_is_422(stage: Stage, body: Any) -> None:
    """Nothing is seeded for it."""
    async with open_episodes(stage) as gym:
        assert (await gym.post("env", "/run", json=body)).status == 422
    assert stage.log == []


async def test_a_task_without_parameters_fails_for_good(stage: Stage) -> None:
    """No attempt can help, and what was seeded is closed."""
    async with open_episodes(stage) as gym:
        failure = (await run(gym, responses_create_params=None))["failure"]
    assert (failure["terminal"], failure["stage"]) == (True, "seed")
    assert stage.events["shop"].live == stage.events["agent"].live == 0


async def test_metrics_come_from_the_environment_that_rewarded(stage: Stage) -> None:
    """The episode server has none of its own."""
    async with open_episodes(stage) as gym:
        response = await gym.post("env", "/aggregate_metrics", json={"verify_responses": [{"reward": 1.0}]})
    assert response.status == 200
    assert "agent_metrics" in response.json()


async def test_a_legacy_agent_gets_rows_as_they_are(stage: Stage) -> None:
    """Its answer and its errors come back unchanged."""
    stage.fails["run"] = [RuntimeError("boom")]
    async with open_episodes(stage) as gym:
        failed = await gym.post("legacy", "/run", json={"x": 1})
        assert (failed.status, "boom" in failed.text) == (500, True)
        assert (await gym.post("legacy", "/run", json={"x": 1})).json() == {"row": {"x": 1}}


async def test_a_legacy_agent_that_cannot_be_reached_is_a_transport_failure() -> None:
    """The caller sees what the relay saw."""
    from gym_trio.http import open_socket_transport

    client = ServerClient()
    legacy = LegacyAgentServer(name="legacy", config={"agent_server": AGENT_REF}, client=client)
    async with open_gym_of([legacy], client) as gym, open_socket_transport() as transport:
        client.register("agent", transport, "http://127.0.0.1:1")
        response = await gym.post("legacy", "/run", json={})
    assert response.status == 502
    assert response.json()["failure"]["failure_kind"] == "transport_unreachable"


def test_a_limit_needs_a_queue_timeout() -> None:
    """Waiting for ever for a place is not an option."""
    with pytest.raises(ConfigError, match="queue_timeout_seconds"):
        EnvironmentServer(name="env", config={"max_concurrent_episodes": 2})
    assert EnvironmentServer(name="env").settings.cleanup_timeout_seconds == 180


async def test_cleanup_undoes_each_entry_once_and_keeps_every_error(autojump_clock: Any) -> None:
    """Last first; an entry that was undone ahead is not undone again; none stops the rest."""
    log: list[str] = []
    cleanup = Cleanup("test", 9)

    async def good() -> None:
        log.append("good")

    async def bad() -> None:
        log.append("bad")
        raise RuntimeError("no")

    async def hangs() -> None:
        log.append("hangs")
        await trio.sleep_forever()

    early = cleanup.register("early", good)
    cleanup.register("bad", bad)
    cleanup.register("hangs", hangs)
    await early.close()
    with trio.CancelScope() as scope:
        scope.cancel()
        await cleanup.aclose()
    assert log == ["good", "hangs", "bad"]
    assert [name for name, _ in cleanup.errors] == ["hangs", "bad"]
    assert trio.current_time() == pytest.approx(3)
    await cleanup.aclose()
    assert log == ["good", "hangs", "bad"]


class OtherShop(StagedShop):
    """One of other make, which knows of no verdict alone."""

    async def _verify(self, request: Any) -> Any:
        request._headers = [pair for pair in request._headers if pair[0] != b"x-ng-verdict-only"]
        return await super()._verify(request)


@pytest.mark.parametrize("own", [{}, *({"_ng_verdict_only": value} for value in (True, False, "x"))])
async def test_the_result_of_an_episode_is_the_same_whoever_has_the_row(stage: Stage, own: Any) -> None:
    """Values and the order of keys, also of a row that has the key by which a verdict alone is known."""
    results = []
    for make in (StagedShop, OtherShop):
        async with open_episodes(stage, shop_type=make) as gym:
            answer = await run(gym, task_data={**own, "reward": 7, "answer": 42, "last": 1})
            results.append(answer["result"])
    assert results[0] == results[1]
    assert list(results[0]) == list(results[1])
    assert results[0]["reward"] == 1.0
    assert {key: results[0][key] for key in own} == own
