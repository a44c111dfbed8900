"""One tool: the reward is for having asked it before answering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..servers import RequestBody, ResourcesServer, Session, function_calls, tool
from ._packaged import packaged_rows

__all__ = ["SingleToolCall"]


class SingleToolCall(ResourcesServer):
    """A question about the weather. Reward 1 when the model called ``get_weather`` with a city, else 0.

    Source of the rule: NeMo Gym's ``example_single_tool_call``.
    """

    description = "Ask one weather tool before answering"
    domain = "agent"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("example_single_tool_call")

    @tool
    async def get_weather(self, session: Session, city: str) -> dict[str, str]:
        """The weather in a city right now."""
        return {"city": city, "weather_description": f"The weather in {city} is cold."}

    async def verify(self, session: Session, request: RequestBody) -> float:
        called = any(
            name == "get_weather" and arguments is not None and isinstance(arguments.get("city"), str)
            for name, arguments in function_calls(request.response)
        )
        return float(called)
