"""One tool call, rewarded for three things at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..servers import RequestBody, ResourcesServer, Session, tool
from ._packaged import packaged_rows
from ._reply import arguments_of

__all__ = ["ToolCallMultiReward"]


class ToolCallMultiReward(ResourcesServer):
    """A single expected call. Three rewards of 0 or 1, and their sum.

    ``correctness``: some call has the name of ``expected_call`` and each of its arguments with an equal value.
    ``schema_valid``: the first call's arguments are an object with all that the tool of its name requires.
    ``format``: there is exactly one call, and no message.

    Source of the rule: NeMo Gym's ``example_tool_call_multireward``.
    """

    description = "One tool call, rewarded for correctness, schema and format"
    domain = "agent"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("example_tool_call_multireward")

    @tool
    async def get_weather(self, session: Session, city: str) -> dict[str, str]:
        """The weather in a city right now."""
        return {"city": city, "weather_description": f"The weather in {city} is sunny."}

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        items = request.response.get("output") or ()
        calls = [(item.get("name"), arguments_of(item)) for item in items if item.get("type") == "function_call"]
        messages = any(item.get("type") == "message" for item in items)
        components = {
            "correctness": float(any(_matches(*call, request.get("expected_call")) for call in calls)),
            "schema_valid": float(bool(calls) and _is_valid(*calls[0], request)),
            "format": float(len(calls) == 1 and not messages),
        }
        return {
            "reward": sum(components.values()),
            "reward_components": components,
            **components,
            "predicted_calls": [{"name": name, "arguments": arguments or {}} for name, arguments in calls],
        }


def _matches(name: Any, arguments: Mapping[str, Any] | None, expected: Any) -> bool:
    if not isinstance(expected, Mapping) or not expected or name != expected.get("name"):
        return False
    given = arguments or {}
    return all(given.get(key) == value for key, value in (expected.get("arguments") or {}).items())


def _is_valid(name: Any, arguments: Mapping[str, Any] | None, request: RequestBody) -> bool:
    tools = (request.get("responses_create_params") or {}).get("tools") or ()
    required = next(
        ((found.get("parameters") or {}).get("required") for found in tools if found.get("name") == name), ()
    )
    missing = [key for key in required or () if arguments is None or key not in arguments]
    return arguments is not None and not missing
