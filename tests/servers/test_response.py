"""Sums of usage, and a request's input as items."""

from __future__ import annotations

from typing import Any

import pytest

from gym_trio.errors import RolloutFailure
from gym_trio.servers import add_usage, input_items


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
