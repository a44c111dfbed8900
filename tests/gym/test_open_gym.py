"""A configuration becomes a gym, in memory and on sockets, with the same results."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

import gym_trio
from gym_trio.environments.example_session_state_mgmt import SessionStateManagement
from gym_trio.environments.example_single_tool_call import SingleToolCall
from gym_trio.environments.mcqa import MultipleChoice

SERVE = pytest.mark.parametrize("serve", ["memory", "sockets"])


async def rewards_of(config: Any, rows: Any, serve: Any) -> list[float]:
    async with gym_trio.open_gym(config, serve=serve) as gym, gym.run_examples(rows, max_concurrent=3) as rollouts:
        return [outcome.unwrap()[1]["reward"] async for outcome in rollouts]


@SERVE
async def test_a_tool_call_earns_the_reward(scripted: Any, calling: Any, saying: Any, serve: str) -> None:
    """The rollout goes agent → seed → model → tool → model → verify, over whichever transport."""
    rows = list(SingleToolCall.rows({}))
    good = scripted("example_single_tool_call", [[calling("get_weather", city="Rome")], [saying("cold")]])
    assert await rewards_of(good, rows, serve) == [1.0] * len(rows)
    lazy = scripted("example_single_tool_call", [[saying("no idea")]])
    assert await rewards_of(lazy, rows, serve) == [0.0] * len(rows)


@SERVE
async def test_state_is_kept_per_rollout(scripted: Any, calling: Any, saying: Any, serve: str) -> None:
    """Each rollout's counter starts at its own row's value and sees its own calls only."""
    script = [
        [calling("increment_counter", count=2), calling("increment_counter", count=5)],
        [calling("get_counter_value")],
        [saying("done")],
    ]
    rows = list(SessionStateManagement.rows({}))
    expected = [float(row["expected_count"] == row["initial_count"] + 7) for row in rows]
    assert 0.0 < sum(expected) < len(expected)
    config = scripted("example_session_state_mgmt", script)
    async with gym_trio.open_gym(config, serve=serve) as gym, gym.run_examples(rows) as rollouts:
        found = {}
        async for outcome in rollouts:
            row, result = outcome.unwrap()
            found[row["expected_count"], row["initial_count"]] = result["reward"]
    assert [found[row["expected_count"], row["initial_count"]] for row in rows] == expected


@SERVE
async def test_multiple_choice_rewards_the_right_letter(scripted: Any, saying: Any, serve: str) -> None:
    """A model that always says B earns what B is right for."""
    rows = list(MultipleChoice.rows({}))
    config = scripted("mcqa", [[saying("I think it is \\boxed{B}")]])
    rewards = await rewards_of(config, rows, serve)
    assert sum(rewards) == sum(row["expected_answer"] == "B" for row in rows) > 0


async def test_results_in_memory_and_over_sockets_are_equal(scripted: Any, calling: Any, saying: Any) -> None:
    """Nothing of a result but its times and the number of the call depends on the transport."""
    config = scripted("example_single_tool_call", [[calling("get_weather", city="Rome")], [saying("cold")]])
    rows = [{**row, "_ng_task_index": n, "_ng_rollout_index": 0} for n, row in enumerate(SingleToolCall.rows({}))]

    async def results(serve: Any) -> list[Any]:
        async with gym_trio.open_gym(config, serve=serve) as gym, gym.run_examples(rows) as rollouts:
            found = [outcome.unwrap()[1] async for outcome in rollouts]
        for result in found:
            del result["response"]["id"], result["response"]["created_at"], result["ng_perf"]
            del result["ng_agent_observations"]
        return sorted(found, key=lambda result: result["_ng_task_index"])

    assert await results("memory") == await results("sockets")


async def test_post_gives_status_headers_json_and_body(scripted: Any, saying: Any) -> None:
    """`Gym.post` reaches any server by name and raises on no status."""
    async with gym_trio.open_gym(scripted("mcqa", [[saying("x")]])) as gym:
        response = await gym.post("mcqa", "/seed_session", json={})
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {}
        assert response.body == b"{}"
        assert (await gym.post("mcqa", "/nowhere", json={})).status == 404
        with pytest.raises(gym_trio.UsageError, match="mcqa"):
            await gym.post("mcqb", "/verify", json={})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"agent_ref": {"name": "my_agnet"}}, "my_agnet.*did you mean 'my_agent'"),
        ({}, None),
    ],
)
async def test_a_row_for_an_unknown_agent_is_named(scripted: Any, saying: Any, row: Any, said: str | None) -> None:
    """A row's agent is checked when the row is pulled; the only agent is the default."""
    params = {"responses_create_params": {"input": "hi"}}
    async with gym_trio.open_gym(scripted("mcqa", [[saying("x")]])) as gym, gym.run_examples([row | params]) as stream:
        if said is None:
            outcome = await stream.receive()
            assert outcome.unwrap()[1]["reward"] == 0.0
        else:
            with pytest.raises(gym_trio.RowError, match=said):
                await stream.receive()


async def test_two_agents_and_a_row_that_names_none(scripted: Any, saying: Any) -> None:
    """With several agents somebody must choose: the row, or the caller."""
    config = scripted("mcqa", [[saying("x")]])
    config["other_agent"] = config["my_agent"]
    row = {"responses_create_params": {"input": "hi"}}
    async with gym_trio.open_gym(config) as gym:
        async with gym.run_examples([row]) as stream:
            with pytest.raises(gym_trio.RowError, match="my_agent, other_agent"):
                await stream.receive()
        async with gym.run_examples([row], agent="other_agent") as stream:
            assert isinstance(await stream.receive(), gym_trio.Completed)
        with pytest.raises(gym_trio.RowError, match="third"):
            async with gym.run_examples([row], agent="third"):
                pass


async def test_connect_gym_reaches_servers_by_url() -> None:
    """A trainer uses servers that someone else serves; nothing is sent before the first request."""

    class Echo(gym_trio.AgentServer):
        async def run(self, request: Any) -> Any:
            return {"reward": 1.0, "echo": request["text"]}

    async with (
        gym_trio.open_server(Echo(name="echo").app) as server,
        gym_trio.connect_gym({"echo": server.url}) as gym,
        gym.run_examples([{"text": str(n)} for n in range(10)], max_concurrent=4) as rollouts,
    ):
        results = sorted([outcome.unwrap()[1]["echo"] async for outcome in rollouts])
    assert results == [str(n) for n in range(10)]


async def test_connect_gym_to_nobody_gives_failures_not_a_crash() -> None:
    """A server that is not there fails each rollout with kind `transport_unreachable`."""
    async with (
        gym_trio.connect_gym({"echo": "http://127.0.0.1:9"}) as gym,
        gym.run_examples([{"a": 1}], agent="echo") as rollouts,
    ):
        outcome = await rollouts.receive()
    assert isinstance(outcome, gym_trio.Failed)
    assert outcome.failure.kind == "transport_unreachable"


@pytest.mark.parametrize(
    "listed",
    [
        *(None, {}, "x", 1, [None], [1], ["x"], [[]], [{}]),
        *([{"name": name, "url": "http://h"}] for name in (None, 1, [])),
        *(
            [{"name": "a", "url": url}]
            for url in (None, 1, "", "x", "http://", "http://h:99999", "http://h/?q", "ftp://h")
        ),
    ],
)
async def test_a_list_of_a_head_server_that_is_none_is_named(listed: Any) -> None:
    """Whatever another program answers there is an error that says who answered it."""

    async def head(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(listed).encode()})

    async with gym_trio.open_server(head) as server, gym_trio.connect_gym(server.url) as gym:
        with pytest.raises(gym_trio.ConfigError, match="head_server"):
            await gym.post("a", "/run", json={})


@pytest.mark.parametrize("serve", ["memory", "sockets"])
async def test_leaving_the_block_ends_the_handlers(serve: Any) -> None:
    """Handlers begun equal handlers ended when the stream's block is left with rollouts in flight."""
    begun, ended = 0, 0

    async def run(row: dict[str, Any]) -> dict[str, Any]:
        nonlocal begun, ended
        begun += 1
        try:
            await trio.sleep_forever()
        finally:
            ended += 1
        raise AssertionError

    async with gym_trio.testing.open_fake_gym(run, serve=serve) as gym:
        async with gym.run_examples([{"i": i} for i in range(50)]):
            with trio.fail_after(20):
                while begun < 50:
                    await trio.lowlevel.checkpoint()
        with trio.fail_after(20):
            while ended < 50:
                await trio.lowlevel.checkpoint()
    assert (begun, ended) == (50, 50)


async def test_streams_of_one_gym_have_ids_of_their_own(scripted: Any, calling: Any, saying: Any) -> None:
    """Two streams side by side, and a third after them: each rollout gets its own script from its first line."""
    config = scripted("example_single_tool_call", [[calling("get_weather", city="Rome")], [saying("cold")]])
    rows = list(SingleToolCall.rows({}))
    ids: list[str] = []
    async with gym_trio.open_gym(config) as gym:
        async with gym.run_examples(rows) as one, gym.run_examples(rows) as two:
            outcomes = [outcome async for outcome in one] + [outcome async for outcome in two]
        async with gym.run_examples(rows) as three:
            outcomes += [outcome async for outcome in three]
    for outcome in outcomes:
        row, result = outcome.unwrap()
        assert result["reward"] == 1.0
        ids.append(row["_ng_rollout_id"])
    assert len(set(ids)) == len(ids) == 3 * len(rows)
