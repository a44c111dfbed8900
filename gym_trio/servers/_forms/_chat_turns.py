"""Responses items ↔ chat messages.

A Responses conversation is a flat list of items; a chat has one assistant message for what the model said in one turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from ...errors import FormError
from ._parts import JSON, part_from_chat, part_to_chat, parts_of, pick, text_of

__all__ = [
    "TOKEN_KEYS",
    "ChatTurns",
    "arguments_text",
    "assistant_items",
    "call_to_item",
    "messages_to_items",
    "reasoning_text_of",
    "split_thinking",
]

# The exact tokens of one model call; they stand on its last output item and on its chat message.
TOKEN_KEYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")

_THINKING = re.compile(r"^\s*<think>(.*?)</think>\s*", re.DOTALL)


def split_thinking(text: str) -> tuple[str, str]:
    """``(reasoning, rest)`` of a text that opens with ``<think>...</think>``."""
    found = _THINKING.match(text)
    if found is not None:
        return found.group(1), text[found.end() :]
    # Templates that open the tag themselves leave only its end in the answer.
    head, tag, rest = text.partition("</think>")
    return (head, rest.lstrip()) if tag and "<think>" not in head else ("", text)


def reasoning_text_of(item: Mapping[str, Any]) -> str:
    """The readable text of a reasoning item: its content, else its summary."""
    return text_of(item.get("content")) or "\n\n".join(part.get("text") or "" for part in item.get("summary") or ())


class ChatTurns:
    """Builds chat messages from Responses items."""

    def __init__(self, *, reasoning_in_content: bool = False) -> None:
        self.messages: list[JSON] = []
        self._reasoning_in_content = reasoning_in_content
        self._turn: JSON | None = None  # the assistant message under construction
        self._turn_is_whole = False  # its model call is known to be complete
        self._pictures: list[JSON] = []  # parts of tool results that a tool message cannot carry

    def extend(self, items: Any) -> None:
        """Add ``items``, or one user message when it is a string."""
        if isinstance(items, str):
            self.messages.append({"role": "user", "content": items})
            return
        for position, item in enumerate(items or ()):
            kind = item.get("type") or ("message" if "role" in item else None)
            handler = _ITEMS.get(kind)
            if handler is None:
                raise FormError(
                    f"input[{position}]: an item of type {kind!r} has no place in the Chat Completions form"
                )
            handler(self, item)

    def finish(self) -> list[JSON]:
        self._end_turn()
        self._show_pictures()
        return self.messages

    def _message(self, item: JSON) -> None:
        if item["role"] == "assistant":
            self._assistant_text(item)
            return
        self._end_turn()
        self._show_pictures()
        content = item.get("content")
        if not isinstance(content, str):
            content = [part_to_chat(part) for part in parts_of(content)]
        self.messages.append({"role": item["role"], "content": content})

    def _assistant_text(self, item: JSON) -> None:
        turn = self._open_turn(splits=("content",))
        parts = parts_of(item.get("content"))
        if any(part.get("type") == "refusal" for part in parts):
            turn["refusal"] = "".join(part.get("refusal") or "" for part in parts)
        text = text_of(parts)
        turn["content"] = (turn.get("content") or "") + text if text or not turn.get("refusal") else turn.get("content")
        self._take_tokens(turn, item)

    def _reasoning(self, item: JSON) -> None:
        text = reasoning_text_of(item)
        turn = self._open_turn(splits=("content",))
        if text:
            turn["reasoning_content"] = turn.get("reasoning_content", "") + text
        self._take_tokens(turn, item)

    def _function_call(self, item: JSON) -> None:
        turn = self._open_turn(splits=())
        function = {"name": item["name"], "arguments": item.get("arguments") or "{}"}
        turn.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "function", "function": function})
        self._take_tokens(turn, item)

    def _custom_call(self, item: JSON) -> None:
        turn = self._open_turn(splits=())
        custom = {"name": item["name"], "input": item.get("input") or ""}
        turn.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "custom", "custom": custom})
        self._take_tokens(turn, item)

    def _call_output(self, item: JSON) -> None:
        self._end_turn()
        output = item.get("output")
        content: Any = output if isinstance(output, str) else ""
        if not isinstance(output, str):
            parts = [part_to_chat(part) for part in parts_of(output)]
            content = [part for part in parts if part["type"] == "text"]
            self._pictures += [part for part in parts if part["type"] != "text"]
        self.messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})

    def _open_turn(self, splits: tuple[str, ...]) -> JSON:
        # Once a turn has tool calls everything until their results belongs to it: between a call and its result a
        # chat has room for nothing.
        turn = self._turn
        grows = turn is not None and ("tool_calls" in turn or not any(turn.get(key) for key in splits))
        if turn is not None and grows and not self._turn_is_whole:
            return turn
        self._end_turn()
        self._show_pictures()
        self._turn = turn = {"role": "assistant", "content": None}
        return turn

    def _take_tokens(self, turn: JSON, item: JSON) -> None:
        tokens = pick(item, *TOKEN_KEYS)
        if tokens:
            turn.update(tokens)
            self._turn_is_whole = True

    def _end_turn(self) -> None:
        turn, self._turn, self._turn_is_whole = self._turn, None, False
        if turn is None:
            return
        if self._reasoning_in_content and turn.get("reasoning_content"):
            turn["content"] = f"<think>{turn.pop('reasoning_content')}</think>{turn['content'] or ''}"
        if len(turn) > 2 or turn["content"] is not None:
            self.messages.append(turn)

    def _show_pictures(self) -> None:
        if self._pictures:
            self.messages.append({"role": "user", "content": self._pictures})
            self._pictures = []


_ITEMS: dict[str | None, Callable[[ChatTurns, JSON], None]] = {
    "message": ChatTurns._message,
    "reasoning": ChatTurns._reasoning,
    "function_call": ChatTurns._function_call,
    "custom_tool_call": ChatTurns._custom_call,
    "function_call_output": ChatTurns._call_output,
    "custom_tool_call_output": ChatTurns._call_output,
}


def messages_to_items(messages: Iterable[JSON]) -> list[JSON]:
    """The Responses items of chat messages."""
    items = [item for message in messages for item in _message_items(message)]
    custom = {item["call_id"] for item in items if item.get("type") == "custom_tool_call"}
    for item in items:
        if item.get("type") == "function_call_output" and item["call_id"] in custom:
            item["type"] = "custom_tool_call_output"
    return items


def _message_items(message: JSON) -> list[JSON]:
    role = message["role"]
    content = message.get("content")
    if role in ("tool", "function"):
        output = content if isinstance(content, str) else [part_from_chat(part) for part in content or ()]
        call_id = message.get("tool_call_id") or message.get("name")
        return [{"type": "function_call_output", "call_id": call_id, "output": output}]
    if role != "assistant":
        if not isinstance(content, str):
            content = [part_from_chat(part) for part in content or ()]
        return [{"role": role, "content": content}]
    return assistant_items(message)


def assistant_items(message: JSON) -> list[JSON]:
    """The Responses items of one assistant message."""
    items: list[JSON] = []
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": reasoning}]})
    content, refusal = message.get("content"), message.get("refusal")
    if content is not None and not isinstance(content, str | list):
        raise FormError(f"an assistant message's content is a {type(content).__name__}")
    if isinstance(content, str) and content and not refusal:
        items.append({"role": "assistant", "content": content})
    elif content or refusal:
        parts = [part_from_chat(part, output=True) for part in content] if isinstance(content, list) else []
        if isinstance(content, str) and content:
            parts.append({"type": "output_text", "text": content, "annotations": []})
        if refusal:
            parts.append({"type": "refusal", "refusal": refusal})
        items.append({"type": "message", "role": "assistant", "content": parts})
    items += [call_to_item(call) for call in message.get("tool_calls") or ()]
    if message.get("function_call"):
        call = message["function_call"]
        items.append({"type": "function_call", "call_id": call["name"], **pick(call, "name", "arguments")})
    if items:
        items[-1].update(pick(message, *TOKEN_KEYS))
    return items


def call_to_item(call: JSON) -> JSON:
    """A chat tool call as a Responses item."""
    if call.get("type", "function") == "custom":
        custom = call["custom"]
        return {"type": "custom_tool_call", "call_id": call["id"], "name": custom["name"], "input": custom["input"]}
    function = call["function"]
    arguments = function.get("arguments")
    return {
        "type": "function_call",
        "call_id": call["id"],
        "name": function["name"],
        "arguments": "{}" if arguments is None else arguments_text(arguments),
    }


def arguments_text(arguments: Any) -> str:
    """The arguments of a call as the text that they must be; some servers write the object itself."""
    return arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
