"""From the model calls of one rollout to one Responses object, as if one agent had made them in a loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ...errors import FormError
from ...servers import add_usage, forms, input_items

__all__ = ["Transcript"]

Json = dict[str, Any]

_ASKED: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "responses": lambda request: request,
    "chat_completions": forms.chat_request_to_responses,
    "messages": forms.messages_request_to_responses,
}
_SAID: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "responses": lambda answer: answer,
    "chat_completions": forms.chat_to_responses,
    "messages": forms.messages_to_responses,
}


@attrs.define
class Transcript:
    """What was said in a rollout's model calls, in their order.

    A call that goes on where the one before it was brings what came in between: tool outputs, the environment's turns.
    One that does not (another conversation, of a second role perhaps) adds its answer alone.
    """

    outputs: list[Any] = attrs.field(factory=list)
    usage: Json | None = None
    _last: Json = attrs.field(factory=dict)
    _asked: list[Any] | None = None  # the input of the call before

    def add(self, form: str, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """A call that brought an answer, both in ``form``. What cannot be read as such is left out."""
        try:
            asked = input_items(_ASKED[form](request).get("input"))
            said = dict(_SAID[form](answer))
        except FormError:
            return
        known = self._asked
        if known is not None and asked[: len(known)] == known:
            self.outputs += [item for item in asked[len(known) :] if not _is_the_models(item)]
        self.outputs += said.get("output") or ()
        self.usage = add_usage(self.usage, said.get("usage"))
        self._asked, self._last = asked, said

    def response(self) -> Json:
        """The whole."""
        empty = {"object": "response", "created_at": time.time(), "status": "completed", "model": ""}
        return {**(self._last or empty), "output": self.outputs, "usage": self.usage}


def _is_the_models(item: Mapping[str, Any]) -> bool:
    kinds = ("function_call", "custom_tool_call", "reasoning")
    return item.get("role") == "assistant" or item.get("type") in kinds
