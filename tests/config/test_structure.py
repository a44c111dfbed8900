"""`structure`: from a mapping to a settings class."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs
import pytest

from gym_trio.config import (
    BLOCK_KEYS,
    InvalidSetting,
    finite_seconds,
    load_config,
    not_empty,
    not_negative_int,
    one_of,
    optional,
    positive_int,
    structure,
)
from gym_trio.errors import ConfigError


@attrs.frozen(kw_only=True)
class Inner:
    name: str
    weight: float = 1.0


@attrs.frozen(kw_only=True)
class Settings:
    steps: int = attrs.field(default=1, validator=positive_int)
    retries: int = attrs.field(default=0, validator=not_negative_int)
    timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    mode: str = attrs.field(default="a", validator=one_of(["alpha", "a"]))
    kind: Literal["x", "y", 3] = "x"
    urls: str | list[str] = "u"
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    table: dict[str, int] = attrs.Factory(dict)
    anything: Any = None
    extra: Mapping[str, Any] = attrs.Factory(dict)
    folder: pathlib.Path | None = None
    names: Sequence[str] = attrs.field(default=("n",), validator=not_empty)
    flag: bool = False
    bare: list = attrs.Factory(list)
    port: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.flag and self.port is None:
            raise InvalidSetting("flag", "needs a port")


def test_every_kind_of_field_is_made():
    """Nested classes, unions, lists, mappings, paths, and numbers that arrive as text."""
    got = structure(
        Settings,
        {
            "steps": "4",
            "timeout_seconds": "2.5",
            "flag": "True",
            "port": 8.0,
            "kind": 3,
            "urls": ["a", "b"],
            "inner": {"name": "i", "weight": 2},
            "inners": [{"name": "j"}, Inner(name="k")],
            "table": {"a": 1},
            "anything": {"x": [1]},
            "extra": {"x": None},
            "folder": "/tmp",
            "names": ["p", "q"],
            "bare": [1, "x"],
        },
    )
    assert got == Settings(
        steps=4,
        timeout_seconds=2.5,
        flag=True,
        port=8,
        kind=3,
        urls=["a", "b"],
        inner=Inner(name="i", weight=2.0),
        inners=(Inner(name="j"), Inner(name="k")),
        table={"a": 1},
        anything={"x": [1]},
        extra={"x": None},
        folder=pathlib.Path("/tmp"),
        names=("p", "q"),
        bare=[1, "x"],
    )
    assert structure(Settings, {"port": None, "inner": None}).port is None


@pytest.mark.parametrize(
    ("mapping", "key", "says"),
    [
        ({"step": 1}, "step", "unknown key; did you mean 'steps'?"),
        ({"qqq": 1}, "qqq", "unknown key; known: anything, bare"),
        ({"steps": 0}, "steps", "at least 1, not 0"),
        ({"steps": 1.5}, "steps", "must be a whole number, not 1.5"),
        ({"steps": None}, "steps", "must be a whole number, not None"),
        ({"retries": -1}, "retries", "at least 0"),
        ({"timeout_seconds": "soon"}, "timeout_seconds", "must be a number, not 'soon'"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds", "finite and not negative, not inf"),
        ({"timeout_seconds": True}, "timeout_seconds", "must be a number, not True"),
        ({"timeout_seconds": [1]}, "timeout_seconds", "must be a number or null"),
        ({"mode": "alpa"}, "mode", "must be one of alpha, a, not 'alpa'; did you mean 'alpha'?"),
        ({"kind": "z"}, "kind", "must be one of x, y, 3"),
        ({"kind": []}, "kind", "must be one of x, y, 3"),
        ({"urls": 3}, "urls", "must be a text or a list (put it in quotes), not 3"),
        ({"urls": [3]}, "urls[0]", "must be a text (put it in quotes), not 3"),
        ({"inner": 3}, "inner", "must be a mapping or null, not 3"),
        ({"inner": {}}, "inner.name", "must be given"),
        ({"inner": {"name": "a", "wait": 1}}, "inner.wait", "did you mean 'weight'?"),
        ({"inners": {"name": "a"}}, "inners", "must be a list"),
        ({"inners": [{"name": "a"}, {"name": 3}]}, "inners[1].name", "must be a text"),
        ({"inners": ["a"]}, "inners[0]", "must be a mapping, not 'a'"),
        ({"table": [1]}, "table", "must be a mapping"),
        ({"table": {"a": "x"}}, "table.a", "must be a whole number, not 'x'"),
        ({"table": {1: 1}}, "table", "the key 1 must be a text"),
        ({"names": []}, "names", "must not be empty"),
        ({"names": "abc"}, "names", "must be a list, not 'abc'"),
        ({"flag": "yes"}, "flag", "must be true or false"),
        ({"flag": True}, "flag", "needs a port"),
        ({"folder": 3}, "folder", "must be a text (put it in quotes), not 3"),
        ({"extra": 3}, "extra", "must be a mapping"),
    ],
)
def test_a_wrong_value_is_one_error_with_its_path(mapping, key, says):
    """The path goes on from the key that the caller gave, and the file is in front."""
    with pytest.raises(ConfigError) as caught:
        structure(Settings, mapping, key="a.b", file="f.yaml")
    assert caught.value.key == f"a.b.{key}"
    assert str(caught.value).startswith(f"f.yaml: a.b.{key}: ")
    assert says in str(caught.value)


def test_ignored_keys_are_allowed_and_declared_ones_are_taken():
    """A block's common keys need not be declared; a class that declares one gets it."""
    got = structure(Settings, {"entrypoint": "app.py", "domain": "math", "port": 5}, ignore=BLOCK_KEYS)
    assert got.port == 5


def test_other_validators_of_attrs_speak_for_themselves():
    """attrs' own validators raise ValueError and TypeError; both become the one error."""

    @attrs.frozen
    class Bounded:
        low: int = attrs.field(default=0, validator=attrs.validators.ge(0))
        text: Any = attrs.field(default="", validator=attrs.validators.instance_of(str))

    for wrong in ({"low": -1}, {"text": 3}):
        with pytest.raises(ConfigError, match="|".join(wrong)):
            structure(Bounded, wrong, key="k")


def test_a_block_makes_its_own_settings():
    """The source of the very key is named, be it the file or the command line."""
    block = load_config(
        {"m": {"responses_api_models": {"x": {"steps": 3, "entrypoint": "a:B"}}}},
        overrides=["++m.responses_api_models.x.mode=q", "++m.responses_api_models.x.num_workers=2"],
        env_yaml=False,
    ).server("m")
    assert (block.entrypoint, block.num_workers) == ("a:B", 2)
    with pytest.raises(ConfigError) as caught:
        block.structure(Settings)
    assert (caught.value.file, caught.value.key) == ("command line", "m.responses_api_models.x.mode")
    wrong = load_config({"m": {"responses_api_models": {"x": {"steps": "a"}}}}, env_yaml=False).server("m")
    with pytest.raises(ConfigError) as caught:
        wrong.structure(Settings)
    assert (caught.value.file, caught.value.key) == (None, "m.responses_api_models.x.steps")
