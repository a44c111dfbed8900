"""The rows that environments bring: enough of them, all different, each with a right answer that earns everything."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import gym_trio
from gym_trio.environments import IMPLEMENTATIONS
from gym_trio.environments.calendar import minutes_of
from gym_trio.environments.citation_if import FORMS

Row = dict[str, Any]
Saying = Callable[[str], dict[str, Any]]
Calling = Callable[[str, Any], dict[str, Any]]

# Their rows come from a package that a block names, or depend on what is installed.
FOREIGN = {"openenv", "verifiers", "textarena"}
LEAST = 20

# One reply to each row of ``format_verification``, in their order.
FORMATTED = (
    "* iron\n* zinc\n* lead",
    "Rhine = Germany\nPo = Italy",
    "1) Boil water.\n2) Put the egg in.\n3) Wait.\n4) Take it out.",
    "Oslo is in Norway [ref:1] and Rome in Italy [ref:2].",
    "Say «über» and «Straße».",
    "- North Sea\n- Baltic\n- Red Sea",
    "2031-05-02\n1999-12-31",
    "## SALT\nIt is white.\n## PEPPER\nIt is black.",
    "| robin | red |\n| crow | black |\n| swan | white |",
    "A. leek\nB. kale\nC. beet\nD. chard",
    "- [ ] read\n- [x] write\n- [ ] rest",
    "HOST=here\nPORT=80\nLOG_LEVEL=low",
    "ANA: Hello.\nTOM: Hello.\nANA: Rain?\nTOM: No.",
    "A volcano is a vent that lets out molten rock. [END]",
    "Oslo (08:15)\nRome (08:15)\nCairo (09:15)",
    "> Haste makes waste.\n> Still waters run deep.",
    "Leaves are green because their **chlorophyll** throws green light back.",
    "In Python a `list` keeps things in order.",
    "Copper conducts [ref:4], glass does not [ref:5].",
    "The Nile (s1) and the Rhine (s2) flow north.",
    "Dear {{name}},\non {{date}} I shall come.\nYours",
    "«Καλημέρα» and 「おはよう」!",
    "<answer>8</answer>",
)


def rows_of(environment_class: Any, name: str) -> list[Row]:
    return list(environment_class(name).rows({}))


@pytest.mark.parametrize("name", sorted(set(IMPLEMENTATIONS) - FOREIGN))
def test_there_are_enough_rows(environment_class: Any, name: str) -> None:
    """Every environment brings at least twenty different rows, none of which breaks its own schema."""
    try:
        rows = rows_of(environment_class, name)
    except gym_trio.ConfigError as error:
        pytest.skip(str(error))  # an extra is not there
    assert len({json.dumps(row, sort_keys=True) for row in rows}) >= LEAST
    assert [problem for row in rows for problem in environment_class(name).row_problems(row)] == []


def letter_text(row: Row) -> str:
    return next(option[row["expected_answer"]] for option in row["options"] if row["expected_answer"] in option)


def plan(row: Row) -> str:
    """A calendar that keeps the row's wishes, found by trying."""
    placed: list[dict[str, Any]] = []
    wishes = sorted(row["exp_cal_state"].values(), key=lambda wish: (wish["constraint"] is None, wish["event_id"]))

    def place(number: int) -> bool:
        if number == len(wishes):
            return True
        wish = wishes[number]
        for start in range(9 * 60, 17 * 60 - wish["duration"] + 1, 15):
            end = start + wish["duration"]
            free = all(end <= other["at"] or start >= other["at"] + other["duration"] for other in placed)
            if free and keeps(wish["constraint"] or "", start, end):
                placed.append({"event_id": wish["event_id"], "at": start, "duration": wish["duration"]})
                if place(number + 1):
                    return True
                placed.pop()
        return False

    assert place(0), "there is no calendar that keeps all wishes"
    events = [{**event, "start_time": f"{event['at'] // 60:02}:{event['at'] % 60:02}"} for event in placed]
    return json.dumps(events) if events else "Good morning!"


def keeps(wish: str, start: int, end: int) -> bool:
    kind, _, times = wish.partition(" ")
    bounds = [minutes_of(time) for time in times.split(" and ")] if kind else []
    return {
        "": True,
        "at": bool(bounds) and start == bounds[0],
        "before": bool(bounds) and end <= bounds[0],
        "after": bool(bounds) and start >= bounds[0],
        "between": len(bounds) == 2 and start >= bounds[0] and end <= bounds[-1],
    }[kind]


def cited(row: Row) -> str:
    wanted = row["verifier"]
    if wanted["mode"] == "no_cite":
        return "The sources do not tell."
    shown = FORMS[wanted["grammar"]].shown
    marks = [shown.replace("ID", each).replace("claim", "so it was") for each in wanted["expected_ids"]]
    return "So it was. " + " And ".join(marks)


def document(row: Row) -> str:
    """A document that has every path of a ``structeval`` row, in its form."""
    kind, paths = row["output_type"], row["raw_output_metric"]
    if kind == "CSV":
        return ",".join(path.removeprefix("csv::") for path in paths) + "\n" + ",".join("1" for _ in paths)
    tree: Any = {}
    for path in paths:
        steps = [step.strip("`") for step in re.findall(r"`[^`]+`|\[\d+\]|[^.\[\]`]+", path)]
        grow(tree, ["[0]" if step == "*" else step for step in steps])
    return as_xml(tree) if kind == "XML" else as_toml(tree) if kind == "TOML" else json.dumps(tree)


def grow(node: Any, steps: list[str]) -> None:
    for step, following in itertools.pairwise([*steps, ""]):
        fresh: Any = [] if following.startswith("[") else {} if following else "1"
        if step.startswith("["):
            place = int(step[1:-1])
            while len(node) <= place:
                node.append("1" if not following else {})
            if fresh == [] and node[place] == {}:
                node[place] = []
            node = node[place]
        else:
            node = node.setdefault(step, fresh)


def as_toml(tree: Mapping[str, Any]) -> str:
    def value(node: Any) -> str:
        if isinstance(node, dict):
            return "{" + ", ".join(f"{name} = {value(inner)}" for name, inner in node.items()) + "}"
        return "[" + ", ".join(map(value, node)) + "]" if isinstance(node, list) else json.dumps(node)

    return "\n".join(f"{name} = {value(node)}" for name, node in tree.items())


def as_xml(tree: Mapping[str, Any]) -> str:
    def element(name: str, node: Any) -> str:
        if isinstance(node, list):
            return "".join(element(name, entry) for entry in node)
        if not isinstance(node, dict):
            return f"<{name}>{node}</{name}>"
        attributes = "".join(f' {key[1:]}="1"' for key in node if key.startswith("@"))
        inner = "".join(element(key, value) for key, value in node.items() if not key.startswith("@"))
        return f"<{name}{attributes}>{inner}</{name}>"

    return "".join(element(name, node) for name, node in tree.items())


def instance(schema: Mapping[str, Any]) -> Any:
    """What is valid against a schema of ``structured_outputs``."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: instance(inner) for name, inner in schema["properties"].items()}
    if schema["type"] == "array":
        return [instance(schema["items"])] * 2
    return {"string": "T-1234", "integer": 7, "number": 7.5, "boolean": True}[schema["type"]]


def as_csv(table: list[dict[str, Any]]) -> str:
    lines = [",".join(table[0]), *(",".join(json.dumps(value).strip('"') for value in row.values()) for row in table)]
    return "\n".join(lines)


def structured(row: Row, say: Saying, call: Calling) -> list[dict[str, Any]]:
    found = instance(json.loads(row["schema_str"]))
    if row["response_mode"] == "tool_call":
        key = row.get("tool_payload_key")
        return [call(row["tool_name"], {key: found} if key else found)]
    kind = row["schema_type"]
    writers: Mapping[str, Callable[[Any], str]] = {"csv": as_csv, "toml": as_toml, "xml": as_xml}
    return [say(writers.get(kind, json.dumps)(found))]


def acted(row: Row, say: Saying, call: Calling) -> list[dict[str, Any]]:
    action = row["expected_action"]
    if action["type"] == "message":
        return [say(action["content"])]
    return [call(each["name"], each["arguments"]) for each in action.get("calls", [action])]


def short(row: Row) -> str:
    shape = {"boxed": "So \\boxed{{{}}}.", "final_answer": "Well.\nAnswer: {}", "last_line": "Well.\n{}"}
    return shape.get(row["extraction_mode"], "{}").format(row["expected_answer"])


# What a model says on a row that earns everything.
TEXTS: dict[str, Callable[[Row], str]] = {
    "bunsenbench_chemistry_mcq": lambda row: f"<choice>{letter_text(row)}</choice>",
    "calendar": plan,
    "citation_if": cited,
    "equivalence_rule": lambda row: row["expected_answer"],
    "gpqa_diamond": lambda row: f"Answer: {row['expected_answer']}",
    "hotpotqa_qa": lambda row: json.dumps({"answer": row["expected_answer"]}),
    "mcqa": lambda row: f"\\boxed{{{row['expected_answer']}}}",
    "proof_genselect": lambda row: f"<best_solution>{row['correct_index']}</best_solution>",
    "ragtruth": lambda row: json.dumps({"hallucination list": ["this"] if row["is_halu"] else []}),
    "string_match": short,
    "structeval": document,
}
ITEMS: dict[str, Callable[[Row, Saying, Calling], list[dict[str, Any]]]] = {
    "example_multi_step": lambda row, say, call: [
        call("extract_synonym_values", {"synonym_values": row["expected_synonym_values"]})
    ],
    "example_single_tool_call": lambda row, say, call: [call("get_weather", {"city": "Riga"})],
    "example_tool_call_multireward": lambda row, say, call: [call("get_weather", row["expected_call"]["arguments"])],
    "single_step_tool_use_with_argument_comparison": acted,
    "structured_outputs": structured,
    "terminal_multi_harness": acted,
    "xlam_fc": lambda row, say, call: (
        [call(each["name"], each["arguments"]) for each in row["expected_answers"]] or [say("You are welcome.")]
    ),
}
FULL = {"example_tool_call_multireward": 3.0}
REFUSED = {"structeval": 0.2}  # any line is a document in YAML
# Rows on which anything that is said, or not called, is right.
FREE: dict[str, Callable[[Row], bool]] = {
    "calendar": lambda row: not row["exp_cal_state"],
    "citation_if": lambda row: row["verifier"]["mode"] == "no_cite",
    "ragtruth": lambda row: not row["is_halu"],
    "single_step_tool_use_with_argument_comparison": lambda row: row["expected_action"]["type"] == "message",
    "terminal_multi_harness": lambda row: row["expected_action"]["type"] == "message",
    "xlam_fc": lambda row: not row["expected_answers"],
}


@pytest.mark.parametrize("name", sorted({*TEXTS, *ITEMS}))
async def test_the_key_of_each_row_is_right(
    environment_class: Any, judge: Any, saying: Saying, calling: Calling, name: str
) -> None:
    """On each row the answer that its key tells earns everything, and a polite refusal earns nothing."""
    for row in rows_of(environment_class, name):
        items = [saying(TEXTS[name](row))] if name in TEXTS else ITEMS[name](row, saying, calling)
        verdict = await judge(name, row, *items)
        assert verdict["reward"] == FULL.get(name, 1.0), (verdict, row)
        if not FREE.get(name, lambda _: False)(row):
            assert (await judge(name, row, saying("I would rather not.")))["reward"] <= REFUSED.get(name, 0.0), row


async def test_each_form_can_be_kept(environment_class: Any, judge: Any, saying: Saying) -> None:
    """Each row that asks for a form has a reply that keeps it, and does not take that of the row before."""
    rows = rows_of(environment_class, "format_verification")
    for row, reply, other in zip(rows, FORMATTED, (FORMATTED[-1], *FORMATTED), strict=False):
        assert (await judge("format_verification", row, saying(reply)))["reward"] == 1.0, row
        assert (await judge("format_verification", row, saying(other)))["reward"] == 0.0, row
    assert len(rows) == len(FORMATTED)


def told_steps(row: Row) -> Iterator[int]:
    told = row["responses_create_params"]["input"][0]["content"]
    for verb, number in re.findall(r"(lower it|raise it|Raise the counter|then) by (-?\d+)", told):
        yield -int(number) if verb == "lower it" else int(number)


async def test_each_counter_can_be_raised(
    environment_class: Any, scripted: Any, saying: Saying, calling: Calling
) -> None:
    """Doing what a row's text says, number by number, ends at the expected count; a step too many does not."""
    for row in rows_of(environment_class, "example_session_state_mgmt"):
        steps = [calling("increment_counter", {"count": step}) for step in told_steps(row)]
        for number, step in enumerate(steps):
            step["call_id"] = f"call_{number}"
        for extra, reward in ([], 1.0), ([calling("increment_counter", {"count": 1})], 0.0):
            config = scripted("example_session_state_mgmt", [[step] for step in (*steps, *extra)] + [[saying("Done.")]])
            assert await reward_of(config, row) == reward, row


async def test_each_chain_of_questions_can_be_answered(environment_class: Any, scripted: Any, saying: Saying) -> None:
    """The expected answer to the last question earns 1; given to all but the last, it earns 0."""
    for row in rows_of(environment_class, "example_multi_turn_gymnasium"):
        before = [[saying("I see.")] for _ in row["follow_ups"]]
        for last, reward in (f"It is {row['expected_answer']}.", 1.0), ("I cannot tell.", 0.0):
            config = scripted("example_multi_turn_gymnasium", [*before, [saying(last)]])
            block = config["my_agent"]["responses_api_agents"]
            block["gymnasium_agent"] = block.pop("simple_agent")
            assert await reward_of(config, row) == reward, row


async def reward_of(config: Any, row: Any) -> float:
    async with gym_trio.open_gym(config) as gym, gym.run_examples([row]) as rollouts:
        (reward,) = [outcome.unwrap()[1]["reward"] async for outcome in rollouts]
    return float(reward)
