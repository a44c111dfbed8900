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


@pytest.mark.parametrize("name", sorted(set(IMPLEMENTATIONS) - {"verifiers"}))  # whose block names another's
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


def right_option(row: dict[str, Any]) -> str:
    return next(option[row["expected_answer"]] for option in row["options"] if row["expected_answer"] in option)


def numbers_of(row: dict[str, Any]) -> list[tuple[str, Any]]:
    # The first row asks for a product and a difference.
    asked = row["responses_create_params"]["input"][0]["content"].rpartition("find ")[2].rstrip(".")
    product, difference = asked.split(" and ")
    pairs = {"multiply": product.split(" * "), "subtract": difference.split(" - ")}
    return [(name, {"a": float(a), "b": float(b)}) for name, (a, b) in pairs.items()]


# What a model says or calls, step by step, that earns everything on a row.
TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "arc_agi": lambda row: f"So it is {boxed(row['expected_output'])}",
    "bunsenbench_chemistry_mcq": lambda row: f"<choice>{right_option(row)}</choice>",
    "calendar": schedule,
    "citation_if": lambda row: f"In 1931. <cite>{row['verifier']['expected_ids'][0]}</cite>",
    "equivalence_rule": lambda row: row["expected_answer"],
    "format_verification": lambda row: "* iron\n* zinc\n* lead",
    "gpqa_diamond": lambda row: f"Answer: {row['expected_answer']}",
    "graphwalks": lambda row: f"...\nFinal Answer: [{', '.join(json.loads(row['expected_answer']))}]",
    "hotpotqa_qa": lambda row: json.dumps({"answer": row["expected_answer"]}),
    "lc_niah": lambda row: f"Final Answer: {row['expected_answer']}",
    "mrcr": lambda row: row["expected_answer"],
    "proof_genselect": lambda row: f"<best_solution>{row['correct_index']}</best_solution>",
    "ruler": lambda row: " ".join(row["outputs"]),
    "ruler2": lambda row: " ".join(row["expected_answer"]),
    "spartqa": lambda row: f"Final answer: {row['target']}",
    "string_match": lambda row: f"\\boxed{{{row['expected_answer']}}}",
    "structeval": lambda row: '{"name": "Svala", "length": 9, "crew": [{"name": "Ana"}, {"role": "cook"}]}',
    "structured_outputs": lambda row: '{"title": "The Salt Road", "year": 2019, "authors": ["Ana", "Tom"]}',
}
CALLS: dict[str, Callable[[dict[str, Any]], list[tuple[str, Any]]]] = {
    "example_multi_step": lambda row: [
        *(("get_synonym_value", {"synonym": word}) for word in row["expected_synonyms"]),
        ("extract_synonym_values", {"synonym_values": row["expected_synonym_values"]}),
    ],
    "indirect_prompt_injection": lambda row: [(name, {"patient_id": "P-1"}) for name in row["required_tools"]],
    "math_advanced_calculations": lambda row: numbers_of(row),
    "single_step_tool_use_with_argument_comparison": calls_of,
    "terminal_multi_harness": calls_of,
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


@pytest.mark.parametrize(("listed", "reward"), [(["1884"], 1.0), ([], 0.0)])
async def test_hallucinations_are_told_from_end_to_end(
    environment_class: Any, scripted: Any, saying: Any, listed: list[str], reward: float
) -> None:
    """A row with a hallucination rewards the claim that there is one."""
    row = next(row for row in environment_class("ragtruth").rows({}) if row["is_halu"])
    config = scripted("ragtruth", [[saying(json.dumps({"hallucination list": listed}))]])
    assert await reward_of(config, row) == reward


@pytest.mark.parametrize(("guesses", "reward"), [(["house", None], 1.8), (["house"] * 6, 0.0)])
async def test_wordle_from_end_to_end(
    environment_class: Any, scripted: Any, calling: Any, guesses: list[str | None], reward: float
) -> None:
    """The episode ends with the word, or with the last turn."""
    row = next(row for row in environment_class("wordle").rows({}) if row["custom_target"] != "house")
    words = [row["custom_target"] if guess is None else guess for guess in guesses]
    config = scripted("wordle", [[calling("submit_guess", {"guess": word})] for word in words])
    block = config["my_agent"]["responses_api_agents"]
    block["gymnasium_agent"] = block.pop("simple_agent")
    found = await reward_of(config, row)
    assert found == pytest.approx(reward, abs=0.2)
    assert (found > 0) is (reward > 0)
