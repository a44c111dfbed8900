"""``scripted_model``: a model server that answers from a script."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs
import trio

from ..errors import FailureKind, ModelCallError
from ..servers import ModelRequest, ModelServer

__all__ = ["ScriptedModelServer"]

CHARACTERS_PER_TOKEN = 4


@attrs.frozen
class ScriptedModelSettings:
    """``replies[n]`` is the answer to the n-th call of every rollout: a list of Responses output items.

    ``delay_seconds`` passes before each answer. ``model`` is the name that answers carry.
    """

    replies: list[list[dict[str, Any]]]
    delay_seconds: float = 0
    model: str = "scripted"


class ScriptedModelServer(ModelServer):
    """Gives the n-th call of each rollout the n-th reply of its script.

    Rollouts are told apart by their id. A call without one is placed by its conversation: the number of turns that the
    model has already had in it. Its tokens are four characters long.

    **Errors**: a rollout that calls once more than there are replies gets a 500 that says so.
    """

    settings_type = ScriptedModelSettings
    remembered_rollouts: ClassVar[int] = 65_536  # one that was silent while this many others called has ended
    keeps_sessions = True  # it counts each rollout's calls, which another worker would not know of

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._replies = [_Reply.of(items) for items in self.settings.replies]
        self._calls: dict[str, int] = {}
        self._numbers = itertools.count(1)

    async def responses(self, request: ModelRequest) -> Mapping[str, Any]:
        """The reply whose turn it is."""
        turn = self._next_turn(request)
        if turn >= len(self._replies):
            raise ModelCallError(
                f"model server {self.name}: the script has {len(self._replies)} replies, and "
                f"{'rollout ' + request.rollout_id if request.rollout_id else 'a conversation'} makes call {turn + 1}",
                status=500,
                kind=FailureKind.AGENT_RUN_ERROR,
                terminal=True,
            )
        if self.settings.delay_seconds:
            await trio.sleep(self.settings.delay_seconds)
        return self._answer(request, self._replies[turn])

    def _next_turn(self, request: ModelRequest) -> int:
        if request.rollout_id is None:
            return turns_in(request.get("input"))
        turn = self._calls.pop(request.rollout_id, 0)
        self._calls[request.rollout_id] = turn + 1
        if len(self._calls) > self.remembered_rollouts:
            del self._calls[next(iter(self._calls))]
        return turn

    def _answer(self, request: ModelRequest, reply: _Reply) -> dict[str, Any]:
        read = _characters_in(request.get("input")) // CHARACTERS_PER_TOKEN + 1
        return {
            "id": f"resp_{self.name}_{next(self._numbers)}",
            "object": "response",
            "created_at": time.time(),
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "model": self.settings.model,
            "output": reply.items,
            "parallel_tool_calls": request.get("parallel_tool_calls", True),
            "tool_choice": request.get("tool_choice") or "auto",
            "tools": request.get("tools") or [],
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": reply.tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": read + reply.tokens,
            },
        }


@attrs.frozen
class _Reply:
    """One reply and its length."""

    items: list[dict[str, Any]]
    tokens: int

    @classmethod
    def of(cls, items: Iterable[dict[str, Any]]) -> _Reply:
        made = [_whole_item(item) for item in items]
        return cls(made, _characters_in(made) // CHARACTERS_PER_TOKEN + 1)


def _whole_item(item: dict[str, Any]) -> dict[str, Any]:
    """``item``; a message with plain text for content gets the parts that an answer's message has."""
    if "role" not in item or not isinstance(item.get("content"), str):
        return item
    part = {"type": "output_text", "text": item["content"], "annotations": []}
    return {"type": "message", "status": "completed", **item, "content": [part]}


def turns_in(items: Any) -> int:
    """How many turns of the model a conversation holds; items in a row are one turn."""
    turns, in_turn = 0, False
    for item in items if isinstance(items, list) else ():
        mine = item.get("role") == "assistant" or item.get("type") in ("function_call", "custom_tool_call", "reasoning")
        turns += mine and not in_turn
        in_turn = mine
    return turns


def _characters_in(items: Any) -> int:
    if isinstance(items, str):
        return len(items)
    count = 0
    for item in items or ():
        for key in ("content", "arguments", "output"):
            value = item.get(key)
            if value:
                count += len(value) if type(value) is str else _characters_of_parts(value)
    return count


def _characters_of_parts(value: Any) -> int:
    texts = [part.get("text") for part in value if isinstance(part, dict)] if isinstance(value, list) else ()
    return sum([len(text) for text in texts if isinstance(text, str)])
