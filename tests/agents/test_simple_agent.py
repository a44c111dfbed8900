"""`simple_agent` against models that get everything wrong, and tools that do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import orjson
import pytest
import trio

from gym_trio.agents.simple_agent import SimpleAgent
from gym_trio.models.scripted_model import ScriptedModelServer
from gym_trio.servers import ModelRequest, ModelServer, RequestBody, ResourcesServer, tool

SERVE = pytest.mark.parametrize("serve", ["memory", "sockets"])
ROW = {"responses_create_params": {"input": "go"}}


@attrs.define
class Bag:
    things: list[str] = attrs.Factory(list)
    running: int = 0
    most: int = 0


class Tools(ResourcesServer):
    session_type = Bag

    @tool
    async def put(self, session: Bag, thing: str) -> int:
        """Put a thing in."""
        session.running += 1
        session.most = max(session.most, session.running)
        await trio.lowlevel.checkpoint()
        session.running -= 1
        session.things.append(thing)
        return len(session.things)

    @tool
    async def crash(self, session: Bag) -> None:
        """Break."""
        raise ZeroDivisionError("bang")

    @tool
    async def hang(self, session: Bag) -> None:
        """Never end."""
        await trio.sleep_forever()

    @tool
    async def nan(self, session: Bag) -> float:
        """No number."""
        return float("nan")

    async def verify(self, session: Bag, request: RequestBody) -> dict[str, Any]:
        return {"reward": float(len(session.things)), "sizes": [len(one) for one in session.things]}


class Says(ModelServer):
    """Answers with bodies of the test's own, whatever they are: the next one after each tool output."""

    async def responses(self, request: ModelRequest) -> Mapping[str, Any]:
        await trio.sleep(self.config.get("delay", 0))
        if "answer" in self.config:
            return dict(self.config["answer"])
        answered = sum(item.get("type") == "function_call_output" for item in request["input"])
        return {"output": self.config["replies"][answered]}


async def outcome_of(open_servers: Any, model: Any, config: Any, serve: str = "memory", **settings: Any) -> Any:
    made = ((Tools, "env", {}), (model, "policy_model", config), (SimpleAgent, "agent", settings))
    async with open_servers(*made, serve=serve) as gym:
        async with gym.run_examples([ROW]) as rollouts:
            (outcome,) = [outcome async for outcome in rollouts]
        assert (await gym.client.get("env", "/status")).json()["sessions"]["ready"] == 0
    return outcome


async def result_of(open_servers: Any, *replies: Any, serve: str = "memory", **settings: Any) -> Any:
    outcome = await outcome_of(open_servers, ScriptedModelServer, {"replies": list(replies)}, serve, **settings)
    return outcome.unwrap()[1]


def outputs_of(result: Any) -> list[str]:
    return [item["output"] for item in result["response"]["output"] if item.get("type") == "function_call_output"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("put", "{", "not JSON"),
        ("put", "[1]", "must be a JSON object"),
        ("put", "3", "must be a JSON object"),
        ("put", '"x"', "must be a JSON object"),
        ("put", 7, "must be a JSON object"),
        ("put", '{"thing": 1}', "thing"),
        ("put", '{"thing": null}', "thing"),
        ("put", '{"thing": "a", "more": 1}', "more"),
        ("put", "{}", "thing"),
        ("put", None, "thing"),
        ("put", '{"thing": NaN}', "not JSON"),
        ("put", "[" * 100_000, "not JSON"),
        ("put", '{"thing": "\\ud800"}', "not JSON"),
        ("steal", "{}", "there is no tool"),
        ("", "{}", "there is no tool"),
        (None, "{}", "there is no tool"),
        (["put"], "{}", "there is no tool"),
        ("../verify", "{}", "there is no tool"),
        ("put?x=1", "{}", "there is no tool"),
        ("ｐｕｔ", "{}", "there is no tool"),
        ("x" * 100_000, "{}", "there is no tool"),
        ("verify", "{}", "there is no tool"),
        ("close_session", "{}", "there is no tool"),
        ("seed_session", "{}", "there is no tool"),
        ("aggregate_metrics", "{}", "there is no tool"),
    ],
)
async def test_what_the_model_gets_wrong_is_told_to_it(
    open_servers: Any, saying: Any, calling: Any, name: Any, arguments: Any, said: str
) -> None:
    """The call's output says what is wrong; the model goes on, and the session is untouched."""
    right = calling("put", '{"thing": "a"}')
    replies = [[calling(name, arguments)], [right], [saying("done")]]
    result = (await outcome_of(open_servers, Says, {"replies": replies})).unwrap()[1]
    wrong, fine = outputs_of(result)
    assert said in wrong
    assert len(wrong) < 1000
    assert (fine, result["reward"]) == ("1", 1.0)


async def test_arguments_that_are_an_object_already_are_taken(open_servers: Any, saying: Any, calling: Any) -> None:
    """Some servers send the arguments decoded."""
    replies = [[calling("put", {"thing": "a"})], [saying("done")]]
    assert (await outcome_of(open_servers, Says, {"replies": replies})).unwrap()[1]["reward"] == 1.0


@SERVE
async def test_ten_megabytes_of_arguments(open_servers: Any, saying: Any, calling: Any, serve: str) -> None:
    """They arrive whole."""
    arguments = orjson.dumps({"thing": "x" * 10_000_000}).decode()
    result = await result_of(open_servers, [calling("put", arguments)], [saying("done")], serve=serve)
    assert result["sizes"] == [10_000_000]


@SERVE
async def test_a_hundred_calls_at_once(open_servers: Any, saying: Any, calling: Any, serve: str) -> None:
    """All are made, side by side, and each output stands in its call's place."""
    calls = [calling("put", f'{{"thing": "{number}"}}', f"c{number}") for number in range(100)]
    result = await result_of(open_servers, calls, [saying("done")], serve=serve)
    assert result["reward"] == 100.0
    ids = [item["call_id"] for item in result["response"]["output"] if item.get("type") == "function_call_output"]
    assert ids == [f"c{number}" for number in range(100)]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [("crash", "agent_run_error", "bang"), ("hang", "agent_timeout", "hang"), ("nan", "agent_run_error", "NaN")],
)
async def test_a_tool_that_breaks_fails_the_rollout(
    open_servers: Any, calling: Any, name: str, kind: str, said: str
) -> None:
    """One failure of stage agent, also in the midst of others, and no session is left."""
    calls = [calling("put", '{"thing": "a"}'), calling(name, "{}"), calling("hang", "{}")]
    config = {"replies": [calls]}
    outcome = await outcome_of(open_servers, ScriptedModelServer, config, tool_timeout_seconds=0.2)
    assert (outcome.failure.kind, outcome.failure.stage) == (kind, "agent")
    assert said in outcome.failure.message


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"output": [{"type": "reasoning", "summary": []}], "status": "completed"}, "reasoning_only"),
        ({"output": []}, "no_output"),
        (
            {
                "output": [{"type": "function_call", "name": "put", "arguments": '{"thing": "a', "call_id": "c"}],
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
            },
            "max_output_tokens",
        ),
    ],
)
async def test_an_ending_without_an_answer_is_marked(open_servers: Any, reply: Any, reason: str) -> None:
    """Reasoning alone, nothing, and a reply that was cut end the conversation as incomplete, with the reason."""
    outcome = await outcome_of(open_servers, Says, {"answer": {"id": "r", "object": "response", **reply}})
    response = outcome.unwrap()[1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert response["output"] == reply["output"]


async def test_a_model_that_never_stops_calling_is_stopped(open_servers: Any, calling: Any) -> None:
    """A loop ends at a hundred model calls by default, as incomplete; what was done counts."""
    answer = {"output": [calling("put", '{"thing": "a"}')], "usage": {"total_tokens": 2, "x": {"y": 1}}}
    outcome = await outcome_of(open_servers, Says, {"answer": answer})
    result = outcome.unwrap()[1]
    assert result["response"]["incomplete_details"] == {"reason": "max_steps"}
    assert result["reward"] == 99.0
    assert result["response"]["usage"] == {"total_tokens": 200, "x": {"y": 100}}


@pytest.mark.parametrize("answer", [{}, {"output": None}, {"output": "hi"}, {"output": [1]}, {"output": {"a": 1}}])
async def test_a_reply_without_output_items_is_a_failure(open_servers: Any, answer: Any) -> None:
    """It names the model server, in stage agent."""
    outcome = await outcome_of(open_servers, Says, {"answer": answer})
    assert (outcome.failure.kind, outcome.failure.stage) == ("agent_run_error", "agent")
    assert "policy_model" in outcome.failure.message


@pytest.mark.parametrize(("key", "script"), [("step_timeout_seconds", "slow"), ("total_timeout_seconds", "slow")])
async def test_deadlines_fail_the_rollout(open_servers: Any, saying: Any, key: str, script: str) -> None:
    """A model call, and the whole conversation, is given its time and no more."""
    config = {"replies": [[saying("x")]], "delay_seconds": 30}
    outcome = await outcome_of(open_servers, ScriptedModelServer, config, **{key: 0.05})
    assert (outcome.failure.kind, outcome.failure.stage) == ("agent_timeout", "agent")
    assert key in outcome.failure.message


@pytest.mark.parametrize("value", [3, {"a": 1}, True])
async def test_an_input_that_is_none_is_a_failure_of_the_row(open_servers: Any, value: Any) -> None:
    """An input that is neither text nor list is terminal: trying again cannot help."""
    made = ((Tools, "env", {}), (Says, "policy_model", {"answer": {}}), (SimpleAgent, "agent", {}))
    async with (
        open_servers(*made) as gym,
        gym.run_examples([{"responses_create_params": {"input": value}}]) as rollouts,
    ):
        (outcome,) = [outcome async for outcome in rollouts]
    assert (outcome.failure.kind, outcome.failure.terminal) == ("agent_run_error", True)


@SERVE
async def test_two_rollouts_that_share_an_id(open_servers: Any, saying: Any, calling: Any, serve: str) -> None:
    """Neither sees the other's state, and none is left of either."""
    replies = [[calling("put", '{"thing": "a"}')], [saying("done")]]
    made = (
        (Tools, "env", {}),
        (Says, "policy_model", {"replies": replies, "delay": 0.1}),
        (SimpleAgent, "agent", {}),
    )
    row = {**ROW, "_ng_rollout_id": "same"}
    async with open_servers(*made, serve=serve) as gym:
        answers: list[Any] = []

        async def run() -> None:
            answers.append(await gym.post("agent", "/run", json=row))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            nursery.start_soon(run)
        assert [(answer.status, answer.json()["reward"]) for answer in answers] == [(200, 1.0), (200, 1.0)]
        assert (await gym.client.get("env", "/status")).json()["sessions"]["ready"] == 0


async def test_no_state_of_an_earlier_rollout_is_seen(open_servers: Any, saying: Any, calling: Any) -> None:
    """Twenty rollouts one after the other and side by side each begin with an empty session."""
    replies = [[calling("put", '{"thing": "a"}')], [saying("done")]]
    made = ((Tools, "env", {}), (Says, "policy_model", {"replies": replies}), (SimpleAgent, "agent", {}))
    async with open_servers(*made) as gym:
        for limit in (1, 20):
            async with gym.run_examples([ROW] * 20, max_concurrent=limit) as rollouts:
                rewards = [outcome.unwrap()[1]["reward"] async for outcome in rollouts]
            assert rewards == [1.0] * 20
