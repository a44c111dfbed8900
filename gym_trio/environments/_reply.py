"""What verifiers read from a response, and from the metrics of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

__all__ = ["arguments_of", "text_parts", "token_means"]


def text_parts(response: Mapping[str, Any]) -> list[str]:
    """Each text of the assistant's messages, in order. Reasoning, tool calls and refusals have no text."""
    found: list[str] = []
    for item in response.get("output") or ():
        if item.get("type") == "message" and item.get("role", "assistant") == "assistant":
            content = item.get("content")
            parts = [{"text": content}] if isinstance(content, str) else content if isinstance(content, list) else []
            found += [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return found


def arguments_of(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a function call as an object; ``None`` where they are none."""
    arguments = item.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return None
    return arguments if isinstance(arguments, dict) else None


def token_means(agent_metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The means of the token counts, where the agent has them."""
    return {name: agent_metrics[name] for name in ("mean/input_tokens", "mean/output_tokens") if name in agent_metrics}
