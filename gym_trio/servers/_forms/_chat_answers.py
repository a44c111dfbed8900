"""Responses object ↔ chat completion."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from ...errors import FormError
from ._chat_turns import TOKEN_KEYS, assistant_items, reasoning_text_of, split_thinking
from ._parts import JSON, make_id, pick

__all__ = [
    "chat_to_responses",
    "echo_request",
    "id_in_form",
    "responses_to_chat",
    "seconds_of",
    "usage_from_chat",
    "usage_to_chat",
]

_ECHOED = ("instructions", "metadata", "temperature", "top_p", "max_output_tokens", "reasoning", "text", "user")


def id_in_form(prefix: str, identifier: str | None) -> str:
    """``resp_x``, ``chatcmpl-x`` and ``msg_x``: one call keeps one id in all forms."""
    bare = identifier or uuid.uuid4().hex
    for known in ("resp_", "chatcmpl-", "msg_"):
        bare = bare.removeprefix(known)
    return prefix + bare


def echo_request(request: Mapping[str, Any]) -> JSON:
    """The keys of a Responses object that repeat its request."""
    return {
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        **{name: request[name] for name in _ECHOED if name in request},
    }


def seconds_of(stamp: Any) -> float:
    """The Unix time that an answer says it was made at; now, where it says nothing that can be one."""
    return float(stamp) if isinstance(stamp, int | float) and 0 < stamp < 2**53 else time.time()


def usage_from_chat(usage: Mapping[str, Any] | None) -> JSON | None:
    if not usage:
        return None
    read, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    prompt, completion = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": prompt.get("cached_tokens") or 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": completion.get("reasoning_tokens") or 0},
        "total_tokens": usage.get("total_tokens") or read + written,
    }


def usage_to_chat(usage: Mapping[str, Any] | None) -> JSON | None:
    if not usage:
        return None
    read, written = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
    prompt, completion = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": usage.get("total_tokens") or read + written,
        "prompt_tokens_details": {"cached_tokens": prompt.get("cached_tokens") or 0},
        "completion_tokens_details": {"reasoning_tokens": completion.get("reasoning_tokens") or 0},
    }


def chat_to_responses(
    chat: Mapping[str, Any], request: Mapping[str, Any] | None = None, *, split_think_tags: bool = False
) -> JSON:
    """A chat completion as a Responses object; ``request`` is the Responses request that it answers.

    ``split_think_tags`` makes a reasoning item of a leading ``<think>...</think>``.

    **Errors**: `FormError` when there is no choice.
    """
    choices = chat.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0].get("message"), dict):
        raise FormError("the chat completion has no choices[0].message")
    choice = choices[0]
    message: JSON = dict(choice["message"])
    if split_think_tags and isinstance(message.get("content"), str) and not message.get("reasoning_content"):
        reasoning, message["content"] = split_thinking(message["content"])
        message["reasoning_content"] = reasoning or None
    if message.get("tool_calls"):  # a call without an id cannot be answered
        message["tool_calls"] = [{**call, "id": call.get("id") or make_id("call")} for call in message["tool_calls"]]
    reason = choice.get("finish_reason")
    cut = _INCOMPLETE.get(reason)
    output = finish_items(
        assistant_items(message), message, choice.get("logprobs"), "incomplete" if cut else "completed"
    )
    made: JSON = {
        "id": id_in_form("resp_", chat.get("id")),
        "object": "response",
        "created_at": seconds_of(chat.get("created")),
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "model": chat.get("model") or "",
        "output": output,
        "usage": usage_from_chat(chat.get("usage")),
        **echo_request(request or {}),
        **pick(chat, "service_tier"),
    }
    return made


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def finish_items(items: list[JSON], message: JSON, logprobs: Any, status: str) -> list[JSON]:
    """``items`` of an assistant message as output items: with ids, status, annotations and log probabilities."""
    output: list[JSON] = []
    for item in items:
        if "role" in item:
            output.append(_output_message(item, message, logprobs, status))
        elif item["type"] == "reasoning":
            output.append({"id": make_id("rs"), **item})
        else:
            output.append({"id": make_id("fc"), "status": status, **item})
    if not output:  # the model said nothing, and that is an answer
        output.append(_output_message({"content": "", **pick(message, *TOKEN_KEYS)}, message, logprobs, status))
    return output


def _output_message(item: JSON, message: JSON, logprobs: Any, status: str) -> JSON:
    content = item["content"]
    if isinstance(content, str):
        content = [{"type": "output_text", "text": content, "annotations": []}]
    for part in content:
        if part["type"] == "output_text":
            part["annotations"] = [_citation_from_chat(found) for found in message.get("annotations") or ()]
            part["logprobs"] = (logprobs or {}).get("content") or []
    return {
        "id": make_id("msg"),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
        **pick(item, *TOKEN_KEYS),
    }


def _citation_from_chat(annotation: JSON) -> JSON:
    kind = annotation.get("type", "url_citation")
    return {"type": kind, **annotation.get(kind, {})}


def responses_to_chat(response: Mapping[str, Any]) -> JSON:
    """A Responses object as a chat completion."""
    message: JSON = {"role": "assistant", "content": None, "refusal": None}
    logprobs: list[Any] = []
    for item in response.get("output") or ():
        _add_item(message, item, logprobs)
    made: JSON = {
        "id": id_in_form("chatcmpl-", response.get("id")),
        "object": "chat.completion",
        "created": int(seconds_of(response.get("created_at"))),
        "model": response.get("model") or "",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish_reason_of(response, has_calls="tool_calls" in message),
                "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
            }
        ],
        **pick(response, "service_tier"),
    }
    usage = usage_to_chat(response.get("usage"))
    if usage is not None:
        made["usage"] = usage
    return made


def finish_reason_of(response: Mapping[str, Any], *, has_calls: bool) -> str:
    reason = (response.get("incomplete_details") or {}).get("reason")
    if reason == "content_filter":
        return "content_filter"
    if reason is not None or response.get("status") == "incomplete":
        return "length"
    return "tool_calls" if has_calls else "stop"


def _add_item(message: JSON, item: JSON, logprobs: list[Any]) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        for part in item.get("content") or ():
            _add_part(message, part, logprobs)
    elif kind == "reasoning":
        text = reasoning_text_of(item)
        if text:
            message["reasoning_content"] = message.get("reasoning_content", "") + text
    elif kind in ("function_call", "custom_tool_call"):
        message.setdefault("tool_calls", []).append(call_to_chat(item))
    message.update(pick(item, *TOKEN_KEYS))


def _add_part(message: JSON, part: JSON, logprobs: list[Any]) -> None:
    if part.get("type") == "refusal":
        message["refusal"] = (message["refusal"] or "") + part["refusal"]
        return
    message["content"] = (message["content"] or "") + (part.get("text") or "")
    logprobs.extend(part.get("logprobs") or ())
    for annotation in part.get("annotations") or ():
        if annotation.get("type") == "url_citation":
            fields = {name: value for name, value in annotation.items() if name != "type"}
            message.setdefault("annotations", []).append({"type": "url_citation", "url_citation": fields})


def call_to_chat(item: Mapping[str, Any]) -> JSON:
    """A call item as a chat tool call."""
    if item["type"] == "custom_tool_call":
        return {
            "id": item["call_id"],
            "type": "custom",
            "custom": {"name": item["name"], "input": item.get("input") or ""},
        }
    function = {"name": item["name"], "arguments": item.get("arguments") or "{}"}
    return {"id": item["call_id"], "type": "function", "function": function}
