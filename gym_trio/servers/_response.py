"""Reading a Responses object: what verifiers and agents ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

__all__ = ["function_calls", "output_text"]


def output_text(response: Mapping[str, Any], *, last_only: bool = False) -> str:
    """The assistant's text in ``response``: of all its messages, or of the last one. Reasoning is not text."""
    texts = [
        content if isinstance(content, str) else "".join(part.get("text") or "" for part in content or ())
        for item in response.get("output") or ()
        if item.get("type") == "message" and item.get("role", "assistant") == "assistant"
        for content in (item.get("content"),)
    ]
    return texts[-1] if last_only and texts else "".join(texts)


def function_calls(response: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Each function call in ``response`` as name and arguments; ``None`` where these are no JSON object."""
    for item in response.get("output") or ():
        if item.get("type") == "function_call":
            try:
                arguments = orjson.loads(item.get("arguments") or "{}")
            except orjson.JSONDecodeError:
                arguments = None
            yield item.get("name") or "", arguments if isinstance(arguments, dict) else None
