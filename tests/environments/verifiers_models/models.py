"""Models for scenes: one that answers by what it is asked, and one that does not answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from gym_trio.servers import ModelRequest, ModelServer


class Silent(ModelServer):
    """Never answers. ``asked`` and ``left`` count its calls, for the test that loaded this file."""

    async def responses(self, request: ModelRequest) -> Mapping[str, Any]:
        SEEN["asked"] += 1
        try:
            await trio.sleep_forever()
        finally:
            SEEN["left"] += 1
        raise AssertionError


SEEN = {"asked": 0, "left": 0}


class Knowing(ModelServer):
    """Says what ``ANSWERS`` has for the last thing that it was told."""

    async def responses(self, request: ModelRequest) -> Mapping[str, Any]:
        told = request["input"][-1]
        text = str(told.get("output") or told.get("content"))
        said = next((items for part, items in ANSWERS.items() if part in text), "I do not know")
        items = [{"type": "message", "role": "assistant", "content": _part(said)}] if isinstance(said, str) else said
        usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        return {"id": "resp_1", "object": "response", "created_at": 1.0, "model": "k", "output": items, "usage": usage}


def _part(text: str) -> list[dict[str, Any]]:
    return [{"type": "output_text", "text": text, "annotations": []}]


ANSWERS: dict[str, Any] = {
    "1 + 1": "it is 2",
    "2 + 2": "I think that it is 5, or perhaps more",
    "3 + 3": "it is 6",
    "Which animal": "a cat",
    "it roars": "a lion",
    "Weather in": [{"type": "function_call", "name": "lookup", "arguments": '{"city": "Oslo"}', "call_id": "call_1"}],
    "sunny": "It is sunny in Oslo, as far as I can tell",
    "sure?": "yes",
}
