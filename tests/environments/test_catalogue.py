"""The whole catalogue: the contract's rewards, rows of its own, and rollouts from end to end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import gym_trio
from gym_trio.environments import IMPLEMENTATIONS
from gym_trio.environments._office import OPERATIONS
from gym_trio.servers import RequestBody, verify_response

RECORDED = [
    "arc_agi",
    "calendar",
    "equivalence_rule",
    "example_multi_step",
    "example_single_tool_call",
    "example_tool_call_multireward",
    "graphwalks",
    "hotpotqa_qa",
    "mcqa",
    "mrcr",
    "reasoning_gym",
    "single_step_tool_use_with_argument_comparison",
    "string_match",
    "structured_outputs",
    "workplace_assistant",
    "xlam_fc",
]


@pytest.mark.parametrize("name", RECORDED)
async def test_recorded_rewards_come_out_again(environment_class: Any, recorded: Any, name: str) -> None:
    """Every recorded row gets exactly the reward that NeMo Gym's own verifier gave it."""
    environment = environment_class(name)(name=name, config={})
    for row in recorded(name):
        request = RequestBody({key: value for key, value in row.items() if key != "reward"})
        answer = await environment.verify(await environment.create_session(), request)
        place = (name, row["_ng_task_index"], row["_ng_rollout_index"])
        assert verify_response(answer)["reward"] == pytest.approx(row["reward"], abs=1e-9), place


@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
def test_every_environment_brings_rows(environment_class: Any, name: str) -> None:
    """There are rows, all of them JSON, the same every time, each with an input for the model."""
    rows = list(environment_class(name).rows({}))
    assert rows
    assert json.dumps(list(environment_class(name).rows({}))) == json.dumps(rows)
    assert all(row["responses_create_params"]["input"] for row in rows)
    assert environment_class(name).description


def boxed(value: Any) -> str:
    return f"\\boxed{{{json.dumps(value)}}}"


def calls_of(row: dict[str, Any]) -> list[tuple[str, Any]]:
    action = row["expected_action"]
    calls = action["calls"] if action["type"] == "function_call_batch" else [action]
    return [(call["name"], call["arguments"]) for call in calls]


def schedule(row: dict[str, Any]) -> str:
    # One event after the other from 9am fits the first row, whose only event is fixed.
    events = [
        {"event_id": event["event_id"], "event_name": "x", "start_time": "09:30", "duration": event["duration"]}
        for event in row["exp_cal_state"].values()
    ]
    return json.dumps(events)


# What a model says or calls, step by step, that earns everything on a row.
TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "arc_agi": lambda row: f"So it is {boxed(row['expected_output'])}",
    "calendar": schedule,
    "equivalence_rule": lambda row: row["expected_answer"],
    "graphwalks": lambda row: f"...\nFinal Answer: [{', '.join(json.loads(row['expected_answer']))}]",
    "hotpotqa_qa": lambda row: json.dumps({"answer": row["expected_answer"]}),
    "mrcr": lambda row: row["expected_answer"],
    "string_match": lambda row: f"\\boxed{{{row['expected_answer']}}}",
    "structured_outputs": lambda row: '{"title": "The Salt Road", "year": 2019, "authors": ["Ana", "Tom"]}',
}
CALLS: dict[str, Callable[[dict[str, Any]], list[tuple[str, Any]]]] = {
    "example_multi_step": lambda row: [
        *(("get_synonym_value", {"synonym": word}) for word in row["expected_synonyms"]),
        ("extract_synonym_values", {"synonym_values": row["expected_synonym_values"]}),
    ],
    "single_step_tool_use_with_argument_comparison": calls_of,
    "workplace_assistant": lambda row: [(call["name"], call["arguments"]) for call in row["ground_truth"]],
    "xlam_fc": lambda row: [(call["name"], call["arguments"]) for call in row["expected_answers"]],
}


async def reward_of(config: Any, row: Any) -> float:
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        (reward,) = [outcome.unwrap()[1]["reward"] async for outcome in rollouts]
    return float(reward)


@pytest.mark.parametrize("name", sorted({*TEXTS, *CALLS}))
async def test_a_model_earns_everything_or_nothing(
    environment_class: Any, scripted: Any, saying: Any, calling: Any, name: str
) -> None:
    """A whole rollout with the right answer earns 1, one with another answer earns 0."""
    row = next(iter(environment_class(name).rows({})))
    if name in TEXTS:
        replies = [[saying(TEXTS[name](row))]]
    else:
        replies = [*([calling(*step)] for step in CALLS[name](row)), [saying("Done.")]]
    assert await reward_of(scripted(name, replies), row) == 1.0
    assert await reward_of(scripted(name, [[saying("I would rather not.")]]), row) == 0.0


async def test_every_task_of_the_company_can_be_fulfilled(
    environment_class: Any, judge: Any, saying: Any, calling: Any
) -> None:
    """On each row the right calls earn 1; none, and all but the last, earn 0."""
    for row in environment_class("workplace_assistant").rows({"size": 21}):
        right = [calling(call["name"], call["arguments"]) for call in row["ground_truth"]]
        assert (await judge("workplace_assistant", row, *right))["reward"] == 1.0
        assert (await judge("workplace_assistant", row, *right[:-1], saying("done")))["reward"] == 0.0


def test_the_company_has_a_tool_for_each_operation(environment_class: Any) -> None:
    """What can be done can be called, under the same name."""
    environment = environment_class("workplace_assistant")(name="x", config={})
    assert set(environment.tools) == set(OPERATIONS)
    assert len(OPERATIONS) == 27
