"""Responses object ↔ message of the Messages form."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ._chat_answers import echo_request, id_in_form
from ._chat_turns import TOKEN_KEYS
from ._messages_blocks import block_of_item, item_of_block
from ._parts import JSON, make_id, pick

__all__ = ["messages_to_responses", "responses_to_messages", "stop_reason_of", "usage_to_messages"]


def usage_to_messages(usage: Mapping[str, Any] | None) -> JSON:
    usage = usage or {}
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": max(0, (usage.get("input_tokens") or 0) - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.get("output_tokens") or 0,
    }


def _usage_from_messages(usage: Mapping[str, Any]) -> JSON:
    cached = usage.get("cache_read_input_tokens") or 0
    read = (usage.get("input_tokens") or 0) + cached + (usage.get("cache_creation_input_tokens") or 0)
    written = usage.get("output_tokens") or 0
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def stop_reason_of(response: Mapping[str, Any]) -> str:
    """Why the model stopped, in the Messages form's words."""
    reason = (response.get("incomplete_details") or {}).get("reason")
    if reason == "content_filter":
        return "refusal"
    if reason is not None or response.get("status") == "incomplete":
        return "max_tokens"
    output = response.get("output") or ()
    if any(item.get("type") in ("function_call", "custom_tool_call") for item in output):
        return "tool_use"
    parts = (part for item in output if item.get("type", "message") == "message" for part in item.get("content") or ())
    return "refusal" if any(part.get("type") == "refusal" for part in parts) else "end_turn"


def responses_to_messages(response: Mapping[str, Any]) -> JSON:
    """A Responses object as a message. The exact tokens of the call, where known, stand on the message itself."""
    content: list[JSON] = []
    tokens: JSON = {}
    for item in response.get("output") or ():
        content += block_of_item(item)
        tokens.update(pick(item, *TOKEN_KEYS))
    return {
        "id": id_in_form("msg_", response.get("id")),
        "type": "message",
        "role": "assistant",
        "model": response.get("model") or "",
        "content": content,
        "stop_reason": stop_reason_of(response),
        "stop_sequence": None,
        "usage": usage_to_messages(response.get("usage")),
        **tokens,
    }


def messages_to_responses(message: Mapping[str, Any], request: Mapping[str, Any] | None = None) -> JSON:
    """A message as a Responses object; ``request`` is the Responses request that it answers."""
    cut = {"max_tokens": "max_output_tokens", "model_context_window_exceeded": "max_output_tokens"}.get(
        message.get("stop_reason") or ""
    )
    status = "incomplete" if cut else "completed"
    output: list[JSON] = []
    for block in message.get("content") or ():
        item = item_of_block(block)
        if "role" in item:
            refused = message.get("stop_reason") == "refusal"
            part: JSON = {"type": "output_text", "text": item["content"], "annotations": [], "logprobs": []}
            if refused:
                part = {"type": "refusal", "refusal": item["content"]}
            item = {"type": "message", "role": "assistant", "status": status, "content": [part]}
        elif item["type"] == "function_call":
            item["status"] = status
        prefix = {"message": "msg", "reasoning": "rs"}.get(item["type"], "fc")
        output.append({"id": make_id(prefix), **item})
    if output:
        output[-1].update(pick(message, *TOKEN_KEYS))
    return {
        "id": id_in_form("resp_", message.get("id")),
        "object": "response",
        "created_at": time.time(),
        "status": status,
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "model": message.get("model") or "",
        "output": output,
        "usage": _usage_from_messages(message.get("usage") or {}),
        **echo_request(request or {}),
    }
