"""What verifiers read from a response, and from the metrics of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ..servers import message_texts

__all__ = ["arguments_of", "text_parts", "token_means"]


def text_parts(response: Mapping[str, Any]) -> list[str]:
    """Each text of the assistant's messages, in order. Reasoning, tool calls and refusals have no text."""
    return [text for texts in message_texts(response) for text in texts]


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
