"""Responses events → Messages events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._chat_answers import id_in_form
from ._events import FINAL_EVENTS
from ._messages_answers import responses_to_messages, usage_to_messages
from ._parts import JSON
from ._sse import StreamPiece, sse

__all__ = ["MessagesWriter"]

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THINKING = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")


class MessagesWriter:
    """Turns Responses events into the events of a Messages stream.

    The form has one block open at a time. What belongs to a later block while one is open waits for its turn.
    """

    def __init__(self) -> None:
        self._index = -1
        self._open: str | None = None  # the item of the open block
        self._waiting: list[Mapping[str, Any]] = []

    def feed(self, event: Mapping[str, Any]) -> StreamPiece:
        kind = event["type"]
        if kind == "response.created":
            return StreamPiece(self._begin(event["response"]))
        if kind in FINAL_EVENTS:
            return self._end(event["response"])
        return StreamPiece(self._take(event))

    def _take(self, event: Mapping[str, Any]) -> bytes:
        item = _item_of(event)
        if self._open is not None and item != self._open:
            self._waiting.append(event)
            return b""
        content = self._write(event, item)
        if self._open is None and self._waiting:
            waiting, self._waiting = self._waiting, []
            content += b"".join(self._take(held) for held in waiting)
        return content

    def _write(self, event: Mapping[str, Any], item: str | None) -> bytes:
        kind = event["type"]
        if kind == "response.output_item.added":
            return self._added(event["item"])
        if kind == "response.output_item.done":
            return self._done(event["item"])
        text = event.get("delta")
        if not isinstance(text, str) or not text:
            return b""
        if kind in _TEXT:
            return self._delta(item, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})
        if kind in _THINKING:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            return self._delta(item, block, {"type": "thinking_delta", "thinking": text})
        if kind == "response.function_call_arguments.delta":
            return self._delta(item, None, {"type": "input_json_delta", "partial_json": text})
        return b""

    def _added(self, item: Mapping[str, Any]) -> bytes:
        if item.get("type") in ("function_call", "custom_tool_call"):
            identifier = item.get("id") or item["call_id"]
            return self._start(
                identifier, {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": {}}
            )
        return b""  # the block of a text or of thinking begins with its first word: it may stay empty

    def _done(self, item: Mapping[str, Any]) -> bytes:
        kind = item.get("type")
        content = b""
        if kind == "custom_tool_call":  # only whole is it JSON
            argument = {"type": "input_json_delta", "partial_json": _custom_input(item)}
            content = self._delta(item.get("id"), None, argument)
        if kind == "reasoning" and item.get("encrypted_content"):
            sealed = item["encrypted_content"]
            if self._open is None:
                content = self._start(item.get("id"), {"type": "redacted_thinking", "data": sealed})
            else:
                content = self._delta(item.get("id"), None, {"type": "signature_delta", "signature": sealed})
        return content + self._stop()

    def _start(self, identifier: str | None, block: JSON) -> bytes:
        self._index += 1
        self._open = identifier or ""
        return _event({"type": "content_block_start", "index": self._index, "content_block": block})

    def _delta(self, identifier: str | None, block: JSON | None, delta: JSON) -> bytes:
        content = b""
        if self._open is None and block is not None:
            content = self._start(identifier, block)
        return content + _event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event({"type": "content_block_stop", "index": self._index})

    def _begin(self, response: Mapping[str, Any]) -> bytes:
        message: JSON = {
            "id": id_in_form("msg_", response.get("id")),
            "type": "message",
            "role": "assistant",
            "model": response.get("model") or "",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_to_messages(response.get("usage")),
        }
        return _event({"type": "message_start", "message": message})

    def _end(self, response: Mapping[str, Any]) -> StreamPiece:
        content = self._stop()
        waiting, self._waiting = self._waiting, []
        content += b"".join(self._take(held) for held in waiting) + self._stop()
        whole = responses_to_messages(response)
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        content += _event({"type": "message_delta", "delta": delta, "usage": whole["usage"]})
        return StreamPiece(content + _event({"type": "message_stop"}), whole)


def _item_of(event: Mapping[str, Any]) -> str | None:
    item = event.get("item")
    if isinstance(item, Mapping):
        return item.get("id") or item.get("call_id")
    return event.get("item_id")


def _custom_input(item: Mapping[str, Any]) -> str:
    import orjson

    return orjson.dumps({"input": item.get("input") or ""}).decode()


def _event(data: JSON) -> bytes:
    return sse(data, data["type"])
