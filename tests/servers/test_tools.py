"""Tools: the signature is the schema and the check."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest

from gym_trio.errors import ConfigError, ToolError
from gym_trio.servers import ResourcesServer, tool, tools_of


@attrs.define
class Place:
    city: str
    country: str = "IT"


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


class Weather(ResourcesServer):
    @tool
    async def get_weather(
        self,
        session: Any,
        city: Annotated[str, msgspec.Meta(description="Where")],
        days: int = 3,
        unit: Unit = Unit.CELSIUS,
        mode: Literal["short", "long"] | None = None,
    ) -> dict[str, Any]:
        """The weather.

        In a city.
        """
        return {"city": city, "days": days}

    @tool
    async def at(self, session: Any, place: Place, tags: list[str]) -> Any:
        """At a place."""
        return place

    @tool
    async def now(self, session: Any) -> int:
        """No arguments."""
        return 0


class Better(Weather):
    @tool
    async def now(self, session: Any, zone: str) -> int:
        """With a zone."""
        return 1


def test_the_schema_has_types_defaults_descriptions_and_what_is_required() -> None:
    """A tool's wire definition says all that its signature and docstring say."""
    definition = tools_of(Weather)["get_weather"].definition
    assert definition["type"] == "function"
    assert definition["description"] == "The weather.\n\nIn a city."
    schema = definition["parameters"]
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["city"] == {"type": "string", "description": "Where"}
    assert schema["properties"]["days"] == {"type": "integer", "default": 3}
    assert "title" not in schema


def test_arguments_arrive_as_python_values_with_defaults() -> None:
    """Checked arguments are typed, and defaults are filled in."""
    tools = tools_of(Weather)
    assert tools["get_weather"].check({"city": "Rome", "unit": "kelvin"}) == {
        "city": "Rome",
        "days": 3,
        "unit": Unit.KELVIN,
        "mode": None,
    }
    assert tools["at"].check({"place": {"city": "Bari"}, "tags": []}) == {"place": Place("Bari"), "tags": []}
    assert tools["now"].check({}) == {}


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("get_weather", {}, "city"),
        ("get_weather", {"city": 1}, "city"),
        ("get_weather", {"city": "x", "days": "3"}, "days"),
        ("get_weather", {"city": "x", "days": True}, "days"),
        ("get_weather", {"city": "x", "extra": 1}, "extra"),
        ("get_weather", {"city": "x", "unit": "rankine"}, "unit"),
        ("at", {"place": {"city": 3}, "tags": []}, "place.city"),
        ("at", {"place": {"city": "a"}, "tags": ["a", 1]}, "tags[1]"),
        ("now", {"x": 1}, "x"),
    ],
)
def test_wrong_arguments_are_named(name: str, arguments: dict[str, Any], said: str) -> None:
    """The error goes to the model: it names the argument, and its status is a client's mistake."""
    with pytest.raises(ToolError) as caught:
        tools_of(Weather)[name].check(arguments)
    assert said in str(caught.value)
    assert caught.value.status == 422


def test_a_subclass_replaces_a_tool() -> None:
    """An override has its own schema; the others are inherited, in order."""
    tools = tools_of(Better)
    assert list(tools) == ["get_weather", "at", "now"]
    assert tools["now"].parameters["required"] == ["zone"]


def test_a_tool_that_cannot_be_one_is_refused_by_name() -> None:
    """*args and types without a schema are named at the class."""

    class Star(ResourcesServer):
        @tool
        async def add(self, session: Any, *x: int) -> int:
            return 1

    class Odd(ResourcesServer):
        @tool
        async def add(self, session: Any, x: complex) -> int:
            return 1

    for cls, said in ((Star, "no schema"), (Odd, "schema")):
        with pytest.raises(ConfigError, match=said) as caught:
            tools_of(cls)
        assert caught.value.key == f"{cls.__name__}.add"
