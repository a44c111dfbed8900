"""Answers that are made to keep a verifier busy: the rule is applied in a time in proportion to their length."""

from __future__ import annotations

import inspect
import random
import re
import subprocess
import sys
from typing import Any

import pytest

from gym_trio.environments import IMPLEMENTATIONS
from gym_trio.environments._spans import without_spans
from gym_trio.environments.calendar import list_in
from gym_trio.errors import ConfigError
from gym_trio.servers import GymnasiumServer, RequestBody, verify_response

# In a process of its own, whose processor time is bounded: an expression that never ends cannot be interrupted. Two
# hundred thousand letters take milliseconds where the time grows with the length, and hours where it grows with the
# square.
JUDGE = """
import importlib, inspect, resource, sys, trio
from gym_trio.environments import IMPLEMENTATIONS
from gym_trio.servers import RequestBody

resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
name, opening, end, letters = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
module, _, found = IMPLEMENTATIONS[name].partition(":")
server = getattr(importlib.import_module(module), found)(name=name, config={})
text = opening * (letters // len(opening)) + end
said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

async def main():
    rewards = set()
    kinds = {}
    for row in server.rows({}):
        kinds.setdefault(row.get("match_type") or row.get("output_type"), row)
    for row in kinds.values():
        answer = server.verify(await server.create_session(), RequestBody({**row, "response": {"output": [said]}}))
        rewards.add((await answer if inspect.isawaitable(answer) else answer)["reward"])
    print(max(rewards) < 0.5)

trio.run(main)
"""


@pytest.mark.parametrize(
    ("name", "opening", "end"),
    [
        ("calendar", "[{", "!"),
        ("calendar", "[{}", "!"),
        ("string_match", "\\boxed{", "!"),
        ("string_match", "\\text{", "!"),
        ("bunsenbench_chemistry_mcq", "<choice>", "!"),
        ("bunsenbench_chemistry_mcq", "\n", "!"),
        ("structeval", "[{},", "!"),
        ("structeval", "{", "!"),
        ("ruler2", "Document 1:\n", "!"),
        ("spartqa", "<think>", "!"),
        ("spartqa", "<|channel>thought ", "!"),
    ],
)
def test_a_hostile_answer_earns_nothing_in_time(name: str, opening: str, end: str) -> None:
    """Openings without end, in each rule that looks for what is between two marks."""
    command = [sys.executable, "-c", JUDGE, name, opening, end, "200000"]
    judged = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert judged.stdout.strip() == "True", (judged.returncode, judged.stderr[-2000:])


def test_the_list_that_is_found_is_the_expressions() -> None:
    """On texts that are short enough for it, the search gives what the regular expression of the rule matches."""
    among = r"(?:[^\[\]]|\{[^}]*\})*"
    rule = re.compile(rf"\[{among}\{{{among}\}}{among}\]")
    chance = random.Random(1)
    for _ in range(5000):
        text = "".join(chance.choices("[]{}a\n", k=chance.randint(0, 12)))
        match = rule.search(text)
        assert list_in(text) == (match.group() if match else None), text


def test_parts_without_an_end_stay() -> None:
    """What has an end goes, up to the first; of two kinds each has ends of its own."""
    angles, braces = (re.compile("<"), re.compile(">")), (re.compile(r"\{"), re.compile(r"\}"))
    assert without_spans("a<b<c>d>e{f<g}h<i{j", angles, braces) == "ad>eh<i{j"
    assert without_spans("{<}>x", angles, braces) == ">x"
    assert without_spans("", angles) == ""


WORDS: list[Any] = [
    None,
    "plain",
    5,
    {"a": 1},
    ["hi"],
    [None],
    [{}],
    [{"text": 5}],
    [{"type": "refusal", "refusal": 1}],
]
ARGUMENTS: list[Any] = [None, "", "null", "[]", "{", 5, {"a": 1}, ["x"], '"x"', '{"a": [{"b": null}]}', '{"a": 1e999}']
ODD_ITEMS: list[Any] = [
    {},
    {"type": None},
    *({"type": "message", "role": "assistant", "content": content} for content in WORDS),
    *({"type": "function_call", "name": name, "arguments": "{}"} for name in (None, 3, ["a"], {"a": 1})),
]


@pytest.mark.parametrize("name", sorted(set(IMPLEMENTATIONS) - {"verifiers", "openenv", "human_eval"}))
async def test_an_answer_of_odd_items_is_judged_like_any_other(environment_class: Any, name: str) -> None:
    """What a model puts in place of a text, a name or arguments never makes a verifier raise."""
    cls = environment_class(name)
    try:
        rows = list(cls.rows({}))
    except ConfigError as error:
        pytest.skip(str(error))  # an extra is not there
    for row in (rows[0], rows[-1]):
        tools = [tool["name"] for tool in row["responses_create_params"].get("tools") or ()] or ["x"]
        calls = [
            {"type": "function_call", "name": tool, "arguments": arguments, "call_id": "c"}
            for tool in tools[:3]
            for arguments in ARGUMENTS
        ]
        for item in (*ODD_ITEMS, *calls):
            environment, request = cls(name=name, config={}), RequestBody({**row, "response": {"output": [item]}})
            session = await environment.create_session()
            if isinstance(environment, GymnasiumServer):
                await environment.reset(session, RequestBody(row))
                await environment.step(session, request.response, RequestBody(row))
                continue
            await environment.seed_session(session, RequestBody(row))
            answer = environment.verify(session, request)
            answer = await answer if inspect.isawaitable(answer) else answer
            assert verify_response(answer)["reward"] <= 3, item
