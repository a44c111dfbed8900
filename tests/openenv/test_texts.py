"""Replies to actions, observations to text, and answers of a server: by hand, without one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gym_trio.environments._openenv_texts import (
    Actions,
    actions_of_schema,
    describe,
    tool_definitions,
    tool_result,
)
from gym_trio.environments._openenv_wire import Refusal, Seen, is_for_tools, read_answer
from gym_trio.errors import RolloutFailure, ToolError

METADATA = {"metadata": {"type": "object"}}
TEXT = {"properties": {**METADATA, "message": {"type": "string"}}, "required": ["message"]}


@pytest.mark.parametrize(
    ("properties", "required", "field", "is_text"),
    [
        ({"a": {"type": "string"}}, ["a"], "a", True),
        ({"a": {"type": "string"}}, [], "a", True),
        ({"a": {"type": "string"}, "b": {"type": "string"}}, ["b"], "b", True),
        ({"a": {"type": "string"}, "b": {"type": "string"}}, ["a", "b"], None, True),
        ({"a": {"type": "string"}, "b": {"type": "string"}}, [], None, True),
        ({"a": {"type": "integer"}}, ["a"], "a", False),
        ({"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, [], "a", True),
        ({"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}, [], "a", False),
        ({"a": {"enum": ["left", "right"]}}, ["a"], "a", True),
        ({"a": {"enum": [1, 2]}}, ["a"], "a", False),
        ({"a": {"$ref": "#/$defs/Move"}}, ["a"], "a", False),
        ({"a": {}}, ["a"], "a", True),
        ({}, [], None, True),
    ],
)
def test_which_field_takes_the_reply(properties: Any, required: list[str], field: Any, is_text: bool) -> None:
    """The one that is required, else the one there is; metadata is none."""
    actions = actions_of_schema({"title": "Move", "properties": {**METADATA, **properties}, "required": required})
    assert (actions.field, actions.tools) == (field, False)
    assert field is None or actions.is_text is is_text


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ('{"a": 1}', {"a": 1}),
        ('I choose {"a": 1}, no: {"a": {"b": 2}}.', {"a": {"b": 2}}),
        ('{"a": 1} and { not this', {"a": 1}),
        ('<think>{"a": 2}</think>{"a": 1}', {"a": 1}),
        ("none", None),
        ("[1]", None),
        ("{" * 100_000, None),
        ('{"a":' * 100_000, None),
    ],
)
def test_the_last_object_of_a_reply(reply: str, action: Any) -> None:
    """That is not part of another; however odd the reply, the answer comes at once."""
    actions = actions_of_schema(TEXT, form="json")
    if action is None:
        with pytest.raises(ToolError, match="JSON object"):
            actions.action_of(reply)
    else:
        assert actions.action_of(reply) == action


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", '"\\ud800"', '[{"a": NaN}]', "9" * 5000])
def test_what_json_lacks_is_told_to_the_model(value: str) -> None:
    """A server that got it would end the session."""
    number = {"properties": {"a": {"type": "number"}}, "required": ["a"]}
    for actions, reply in (
        (actions_of_schema(number), value),
        (actions_of_schema(TEXT, form="json"), f'{{"x": {value}}}'),
    ):
        with pytest.raises(ToolError, match="JSON"):
            actions.action_of(reply)


def test_a_pattern_finds_the_action() -> None:
    """Its last match: the first group, or all of it; without a match the model is told the form."""
    grouped = actions_of_schema(TEXT, pattern=r"<m>(.*?)</m>")
    assert grouped.action_of("<m>a</m> <m> b\nc </m>") == {"message": "b\nc"}
    assert actions_of_schema(TEXT, pattern=r"[A-Z]{5}").action_of("CRANE or SLATE") == {"message": "SLATE"}
    with pytest.raises(ToolError, match="<m>"):
        grouped.action_of("a")


def test_what_the_block_says_comes_before_the_schema() -> None:
    """The form, the field and the fixed fields."""
    two = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
    assert actions_of_schema(two, fixed={"b": 1}).action_of("x") == {"a": "x", "b": 1}
    assert actions_of_schema(two, field="b").action_of("2") == {"b": 2}
    assert actions_of_schema(two, field="b", form="text").action_of("2") == {"b": "2"}
    assert actions_of_schema({}, field="c").action_of("2") == {"c": "2"}
    assert actions_of_schema(TEXT, form="tools").tools


@pytest.mark.parametrize(
    ("schema", "tools"),
    [
        ({"title": "CallToolAction", "properties": {"type": {"const": "call_tool"}, "tool_name": {}}}, True),
        ({"title": "Action", "properties": METADATA}, True),
        ({"title": "Move", "properties": {"type": {"const": "move"}}}, False),
        ({"title": "Action", "properties": {"x": {}}}, False),
        ({}, False),
    ],
)
def test_environments_of_tools_are_known_by_their_schema(schema: Any, tools: bool) -> None:
    """Calls, or the base of all actions."""
    assert is_for_tools(schema) is tools


@pytest.mark.parametrize(
    ("observation", "template", "text"),
    [
        ({"text": "hi", "metadata": {"x": 1}}, None, "hi"),
        ({"text": "hi", "more": None}, None, "hi"),
        ({"n": 1}, None, '{"n": 1}'),
        ({"text": "hü", "n": 1}, None, '{"text": "hü", "n": 1}'),
        ({"metadata": {"x": 1}}, None, '{"x": 1}'),
        ({"metadata": {}}, None, ""),
        ({}, None, ""),
        ({"a": {"b": [3]}}, "b is {a[b][0]}{none}", "b is 3"),
    ],
)
def test_what_the_model_sees(observation: Any, template: str | None, text: str) -> None:
    """One text alone as it is, else JSON; metadata where there is nothing else; a template over all."""
    assert describe(observation, template) == text


def test_tools_and_their_results() -> None:
    """Definitions in the form of a request; results as texts, as JSON, or what went wrong."""
    listed = {"tools": [{"name": "add", "description": None, "input_schema": {"type": "object"}}, {"name": ""}, 3]}
    (tool,) = tool_definitions(listed)
    assert (tool["name"], tool["type"], tool["parameters"]) == ("add", "function", {"type": "object"})
    texts = {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert tool_result({"result": texts}, None) == "a\nb"
    assert json.loads(tool_result({"result": {"content": [{"type": "image"}]}}, None)) == {
        "content": [{"type": "image"}]
    }
    assert tool_result({"result": "x"}, None) == "x"
    assert tool_result({"result": 0}, None) == "0"
    assert json.loads(tool_result({"result": None, "error": {"message": "no"}}, None)) == {"error": "no"}
    assert tool_result({"note": "done"}, None) == "done"


def answer(kind: str, data: Any) -> str:
    return json.dumps({"type": kind, "data": data})


def test_answers_of_a_server() -> None:
    """Observations, a reward that is not a number among them, and errors with the fields they name."""
    assert read_answer(answer("observation", {"observation": {"a": 1}, "reward": True}), "s") == Seen(
        {"a": 1}, True, False
    )
    seen = read_answer('{"type": "observation", "data": {"observation": {}, "reward": NaN, "done": true}}', "s")
    assert isinstance(seen, Seen)
    assert seen.reward != seen.reward
    refusal = read_answer(answer("error", {"code": "X", "errors": [{"loc": ["a", 0], "msg": "no"}]}), "s")
    assert str(refusal) == "a.0: no (X)"
    assert read_answer(answer("error", {"max_sessions": 3}), "s") == Refusal("no code", "no message", "", 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{}",
        "{" * 10_000,
        "[" * 100_000,
        answer("state", {}),
        answer("observation", {"observation": 1}),
        answer("error", 3),
    ],
)
def test_what_is_no_answer_fails_the_rollout(text: str) -> None:
    """And names what came."""
    with pytest.raises(RolloutFailure, match="not OpenEnv's") as raised:
        read_answer(text, "s")
    assert raised.value.terminal


def test_the_form_is_explained_where_any_text_would_not_do() -> None:
    """JSON with its schema; a text with its field's description; nothing where neither is needed."""
    assert actions_of_schema(TEXT).explanation == ""
    assert "metadata" not in actions_of_schema(TEXT, form="json").explanation
    assert Actions(tools=True).explanation == ""
