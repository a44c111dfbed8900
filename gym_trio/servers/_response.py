"""Reading a Responses object: what verifiers and agents ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any

import orjson

from ..errors import FailureKind, RolloutFailure, Stage

__all__ = ["add_usage", "function_calls", "input_items", "message_texts", "output_text", "reply_items"]


def input_items(value: Any) -> list[Any]:
    """The ``input`` of a Responses request as a list of items.

    **Errors**: `RolloutFailure` (terminal) when it is neither a text nor a list.
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if value is None or isinstance(value, list):
        return list(value or ())
    raise RolloutFailure(
        FailureKind.AGENT_RUN_ERROR,
        f"input must be a text or a list of items, not {value!r:.100}",
        stage=Stage.AGENT,
        terminal=True,
    )


def reply_items(reply: Mapping[str, Any], server: str) -> list[dict[str, Any]]:
    """The ``output`` of a model's reply.

    **Errors**: `RolloutFailure` (stage ``agent``) that names ``server`` when it is no list of objects.
    """
    items = reply.get("output")
    if isinstance(items, list) and all(
        [isinstance(item, dict) and isinstance(item.get("type"), (str, NoneType)) for item in items]
    ):
        return items
    raise RolloutFailure(
        FailureKind.AGENT_RUN_ERROR,
        f"{server} answered with no list of output items: {items!r:.200}",
        stage=Stage.AGENT,
    )


def add_usage(total: Mapping[str, Any] | None, more: Any) -> dict[str, Any] | None:
    """The sum of two ``usage`` objects, nested counts included. What is no number is left as it was first."""
    if not more or not isinstance(more, (dict, Mapping)):
        return None if total is None else dict(total)
    if not total:
        return dict(more)
    summed = dict(total)
    for key, value in more.items():
        old = summed.get(key)
        if type(value) is int and (old is None or type(old) is int):  # nearly always, and cheaper to find out
            summed[key] = value if old is None else old + value
        elif isinstance(value, (dict, Mapping)):
            summed[key] = add_usage(old if isinstance(old, (dict, Mapping)) else None, value) or {}
        elif isinstance(value, int | float) and not isinstance(value, bool):
            summed[key] = (old if isinstance(old, int | float) else 0) + value
        else:
            summed.setdefault(key, value)
    return summed


def output_text(response: Mapping[str, Any], *, last_only: bool = False) -> str:
    """The assistant's text in ``response``: of all its messages, or of the last one. Reasoning is not text."""
    texts = ["".join(parts) for parts in message_texts(response)]
    return texts[-1] if last_only and texts else "".join(texts)


def message_texts(response: Mapping[str, Any]) -> Iterator[list[str]]:
    """The texts of each of the assistant's messages, in order. Reasoning, tool calls and refusals have none.

    They are a model's own words: whatever it put there that is no text says nothing, and is no fault of a verifier.
    """
    for item in response.get("output") or ():
        if item.get("type") == "message" and item.get("role", "assistant") == "assistant":
            content = item.get("content")
            parts = [{"text": content}] if isinstance(content, str) else content if isinstance(content, list) else []
            yield [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]


def function_calls(response: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Each function call in ``response`` as name and arguments; ``None`` where these are no JSON object.

    A name that is no text is an empty one.
    """
    for item in response.get("output") or ():
        if item.get("type") == "function_call":
            try:
                arguments = orjson.loads(item.get("arguments") or "{}")
            except orjson.JSONDecodeError:
                arguments = None
            name = item.get("name")
            yield name if isinstance(name, str) else "", arguments if isinstance(arguments, dict) else None
