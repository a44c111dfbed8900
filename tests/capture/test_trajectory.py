"""``ng_trajectory``: turns, calls and gaps, for agents that report much, little and nothing."""

from __future__ import annotations

import orjson
import pytest

from gym_trio.capture import Captured, CaptureSettings, build_trajectory, open_capture_store
from gym_trio.metrics import check_health


@pytest.fixture
def captured_of(model_call):
    """The captures of one rollout whose calls answered with these items, one second apart."""

    async def make(*answers, **more) -> Captured:
        async with open_capture_store(CaptureSettings()) as store:
            for number, items in enumerate(answers):
                usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
                response = {
                    "id": f"resp_{number}",
                    "model": "m",
                    "status": "completed",
                    "output": items,
                    "usage": usage,
                }
                store.begin("0-0")
                store.record(model_call("0-0", response, started_at=float(number), **more))
            return store.take("0-0")

    return make


def result(call_id: str):
    return {"type": "function_call_output", "call_id": call_id, "output": "done"}


def row(*output, **more):
    return {
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "_ng_rollout_id": "0-0",
        "reward": 1.0,
        "response": {"status": "completed", "output": list(output)},
        **more,
    }


def codes(trajectory) -> list[str]:
    return [gap["code"] for gap in trajectory["gaps"]]


async def test_turns_of_an_agent_that_hands_its_items_back(captured_of, items) -> None:
    """Each turn claims its call; tool calls have their turn, result and the timing that the agent reported."""
    first, second = items("look", "c1"), items("found")
    captured = await captured_of(first, second)
    reported = {"tool_calls": [{"call_id": "c1", "started_at": 0.6, "duration_ms": 20, "status": 200}]}
    finished = row(*first, result("c1"), *second)
    trajectory = build_trajectory(finished, captured, observations=reported)
    assert [turn["model_calls"][0]["response_id"] for turn in trajectory["turns"]] == ["resp_0", "resp_1"]
    (tool,) = trajectory["tool_calls"]
    assert (tool["call_id"], tool["turn_no"], tool["output"], tool["duration_ms"]) == ("c1", 0, "done", 20)
    (invocation,) = trajectory["invocations"]
    assert (invocation["started_at"], invocation["ended_at"]) == (0.0, 1.5)
    assert codes(trajectory) == []
    assert orjson.loads(orjson.dumps(trajectory)) == trajectory
    finished["response"]["usage"] = {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14}
    report = check_health([{**finished, "ng_trajectory": trajectory}])
    assert report.summary["run"]["verdicts"] == {"healthy": 1, "unhealthy": 0, "unobserved": 0}


async def test_an_opaque_agent_has_the_turns_of_its_calls(captured_of, items) -> None:
    """Where the response has none of the items, every answered call is a turn, and a gap says where they are from."""
    captured = await captured_of(items("a", "c1"), items("b"))
    trajectory = build_trajectory(row({"type": "message", "role": "assistant", "content": "mine"}), captured)
    assert [len(turn["answer"]) for turn in trajectory["turns"]] == [2, 1]
    assert [tool["call_id"] for tool in trajectory["tool_calls"]] == ["c1"]
    assert codes(trajectory) == ["turns_inferred_from_model_calls", "tool_call_timing_unavailable"]


async def test_calls_of_others_are_no_turns(captured_of, items) -> None:
    """A judge's call in the same rollout is a model call, and no turn of the agent claims it."""
    captured = await captured_of(items("a"), items("judged"))
    trajectory = build_trajectory(row(*items("a")), captured)
    assert len(trajectory["model_calls"]) == 2
    assert len(trajectory["turns"]) == 1
    assert [call["response_id"] for call in trajectory["invocations"][0]["model_calls"]] == ["resp_0"]


async def test_what_is_not_known_is_a_gap(captured_of, items) -> None:
    """No captures, no output, and turns that no captured call has said: each has its code."""
    nothing = build_trajectory(row(), Captured())
    assert codes(nothing) == ["model_calls_unavailable", "turns_unavailable"]
    captured = await captured_of(items("a"))
    strange = build_trajectory(row(*items("a"), result("x"), *items("b")), captured)
    assert codes(strange) == ["turn_model_call_scope_incomplete"]
    assert [len(turn["model_calls"]) for turn in strange["turns"]] == [1, 0]
    lost = build_trajectory(row(*items("a")), Captured(captured.calls, ({"code": "x"},)))
    assert codes(lost) == ["x"]


@pytest.mark.parametrize("api", ["chat_completions", "messages"])
async def test_answers_of_every_api_have_items(api, open_captured) -> None:
    """An agent that speaks another API to the model server has turns and tool calls like any other."""
    reply = [
        {"role": "assistant", "content": "hm", "type": "message"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x":1}'},
    ]
    path = {"chat_completions": "/v1/chat/completions", "messages": "/v1/messages"}[api]
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
    async with open_captured(replies=[reply]) as running:
        await running.ask("0-0", body, path)
        trajectory = build_trajectory(row(), running.store.take("0-0"))
    (tool,) = trajectory["tool_calls"]
    assert (tool["name"], orjson.loads(tool["arguments"])) == ("f", {"x": 1})
