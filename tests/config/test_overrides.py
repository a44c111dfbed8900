"""Overrides, as they are written on a command line."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym_trio.config._overrides import parse_override, parse_value
from gym_trio.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", ""),
        ("plain text", "plain text"),
        ("12:30", "12:30"),
        ("http://a:80/v1?x=1", "http://a:80/v1?x=1"),
        ("'3'", "3"),
        ('"a, \\"b\\""', 'a, "b"'),
        ("[1, a, [b], {c: d}]", [1, "a", ["b"], {"c": "d"}]),
        ("[]", []),
        ("{}", {}),
        ("{a:1,b: x y,'c d':[true]}", {"a": 1, "b": "x y", "c d": [True]}),
        ("{url:http://x:80}", {"url": "http://x:80"}),
        ("${a.b}", "${a.b}"),
        ("[${a:1,2},3]", ["${a:1,2}", 3]),
        ("1.2.3", "1.2.3"),
        ("-inf", -math.inf),
    ],
)
def test_a_value_is_read_as_it_looks(text, value):
    """Numbers, words, quoted and plain text, lists and mappings to any depth."""
    got = parse_value(text)
    assert got == value
    assert type(got) is type(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just("x y"),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab c", max_size=3), inner, max_size=4),
    )
)
def test_json_is_a_value(value):
    """Whatever JSON says, an override says too."""
    assert parse_value(json.dumps(value)) == value


@given(st.text("ab[]{}:,'\"$\\ 1", max_size=12))
def test_any_text_is_read_or_refused_and_never_hangs(text):
    """A broken value is a ConfigError, nothing else."""
    with contextlib.suppress(ConfigError):
        parse_value(text)


def test_the_verbs_set_change_and_delete(load):
    """``++`` and ``+`` set, no sign changes, ``~`` deletes; lists are reached by number."""
    agent = {"responses_api_agents": {"x": {"steps": [1, 2], "keep": 1, "drop": 1}}}
    at = "a.responses_api_agents.x"
    overrides = [
        f"++{at}.new.deep=1",
        f"+{at}.plus=2",
        f"{at}.keep=3",
        f"~{at}.drop",
        f"{at}.steps[0]=9",
        f"++{at}.steps.2=7",
    ]
    got = load({"a": agent}, *overrides).server("a").settings
    assert got == {"steps": [9, 2, 7], "keep": 3, "new": {"deep": 1}, "plus": 2}
    assert load({"a": agent}, f"~{at}.steps.0").server("a").settings["steps"] == [2]
    assert load({"a": agent}, "~a").servers == ()


def test_a_mapping_is_laid_over_what_is_there(load):
    """An override with a mapping changes the keys that it names and no other."""
    assert load(
        {"responses_create_params": {"a": 1, "b": 1}}, "responses_create_params={b: 2}"
    ).run.responses_create_params == {
        "a": 1,
        "b": 2,
    }


def test_an_override_is_taken_apart():
    """Path, value and verb of one override."""
    override = parse_override(" ++a.b[1].c = 3")
    assert (override.path, override.value, override.key) == (("a", "b", "1", "c"), 3, "a.b.1.c")
