"""Sums of usage, and a request's input as items."""

from __future__ import annotations

from typing import Any

import pytest

from gym_trio.errors import RolloutFailure
from gym_trio.servers import add_usage, function_calls, input_items, output_text
from gym_trio.servers._response import reply_items


@pytest.mark.parametrize(
    ("total", "more", "expected"),
    [
        (None, None, None),
        ({"a": 1}, None, {"a": 1}),
        ({"a": 1}, "junk", {"a": 1}),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1, "d": {"x": 2}}, {"a": 2, "d": {"x": 3, "y": 1}}, {"a": 3, "d": {"x": 5, "y": 1}}),
        ({"a": "odd"}, {"a": 2}, {"a": 2}),
        ({"d": 1}, {"d": {"x": 1}}, {"d": {"x": 1}}),
        ({"a": 1}, {"a": None, "b": True}, {"a": 1, "b": True}),
    ],
)
def test_usage_adds_up(total: Any, more: Any, expected: Any) -> None:
    """Counts add up at every depth, and whatever else a server sends breaks nothing."""
    assert add_usage(total, more) == expected


def test_input_as_items() -> None:
    """A text is one user message, a list is a copy, nothing is nothing, and the rest is refused."""
    assert input_items("hi") == [{"role": "user", "content": "hi"}]
    given = [{"role": "user"}]
    assert input_items(given) == given
    assert input_items(given) is not given
    assert input_items(None) == []
    with pytest.raises(RolloutFailure, match="input"):
        input_items({"a": 1})


@pytest.mark.parametrize(
    "odd", [None, 5, {"a": 1}, ["hi"], [None], [{"type": "output_text"}], [{"text": 5}], [{"text": []}]]
)
def test_what_a_model_writes_in_place_of_a_text_says_nothing(odd: Any) -> None:
    """It is passed over, and the texts beside it are read."""
    said = [{"type": "message", "content": odd}, {"type": "message", "role": "assistant", "content": [{"text": "so"}]}]
    assert output_text({"output": said}) == "so"


@pytest.mark.parametrize("odd", [None, 5, ["a"], {"a": 1}])
def test_what_a_model_writes_in_place_of_a_call_is_a_call_of_nothing(odd: Any) -> None:
    """A name that is no text and arguments that are no JSON object are told as such."""
    call = {"type": "function_call", "name": odd, "arguments": odd or "[]"}
    assert list(function_calls({"output": [call]})) == [("", None)]


@pytest.mark.parametrize("odd", [None, {}, ["hi"], [{"type": ["message"]}], [{"type": 3}]])
def test_a_reply_that_is_no_list_of_items_names_its_server(odd: Any) -> None:
    """It is the model's failure, whatever an agent does with items."""
    with pytest.raises(RolloutFailure, match="policy answered with no list of output items"):
        reply_items({"output": odd}, "policy")
    assert reply_items({"output": [{"role": "assistant"}]}, "policy") == [{"role": "assistant"}]
