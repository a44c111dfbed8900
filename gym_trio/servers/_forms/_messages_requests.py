"""Responses request ↔ Messages request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import FormError
from ._chat_requests import _STATEFUL
from ._messages_blocks import block_of_item, blocks_of_parts, item_of_block, part_of_block
from ._parts import JSON, pick, reads

__all__ = ["messages_request_to_responses", "responses_request_to_messages"]

DEFAULT_MAX_TOKENS = 4096

_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh"}


@reads("Messages request")
def messages_request_to_responses(request: Mapping[str, Any]) -> JSON:
    """A Messages request in the Responses form. ``stop_sequences`` travels as ``stop``, ``top_k`` as itself.

    **Errors**: `FormError` for blocks and tools that only Anthropic's own servers can act on.
    """
    made: JSON = pick(request, "model", "temperature", "top_p", "top_k", "stream")
    items: list[JSON] = []
    system = request.get("system")
    if isinstance(system, str) or (system and len(system) == 1):
        made["instructions"] = system if isinstance(system, str) else system[0]["text"]
    elif system:
        items.append({"role": "system", "content": [part_of_block(block) for block in system]})
    for message in request.get("messages") or ():
        items += _items_of_message(message)
    made["input"] = items
    if request.get("max_tokens") is not None:
        made["max_output_tokens"] = request["max_tokens"]
    if request.get("stop_sequences"):
        made["stop"] = list(request["stop_sequences"])
    user = (request.get("metadata") or {}).get("user_id")
    if user:
        made["user"] = user
    if request.get("tools"):
        made["tools"] = [_tool_of(tool) for tool in request["tools"]]
    made.update(_tool_choice_of(request.get("tool_choice")))
    made.update(_thinking_of(request))
    shape = (request.get("output_config") or {}).get("format")
    if shape:
        made["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": shape["schema"], "strict": True}}
    return made


def _items_of_message(message: JSON) -> list[JSON]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": message["role"], "content": content}]
    if message["role"] == "assistant":
        return [item_of_block(block) for block in content or ()]
    items: list[JSON] = []
    parts: list[JSON] = []
    for block in content or ():
        if block.get("type") == "tool_result":
            items.append(item_of_block(block))
        else:
            parts.append(part_of_block(block))
    if parts:
        items.append({"role": message["role"], "content": parts})
    return items


def _tool_of(tool: JSON) -> JSON:
    if tool.get("type", "custom") != "custom":
        raise FormError(f"a tool of type {tool['type']!r} has no place in the Responses form")
    return {
        "type": "function",
        **pick(tool, "name", "description"),
        "parameters": tool["input_schema"],
        "strict": bool(tool.get("strict")),
    }


_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _tool_choice_of(choice: JSON | None) -> JSON:
    if choice is None:
        return {}
    kind = choice["type"]
    named = {"type": "function", "name": choice.get("name")}
    made: JSON = {"tool_choice": named if kind == "tool" else _CHOICES.get(kind, kind)}
    if choice.get("disable_parallel_tool_use"):
        made["parallel_tool_calls"] = False
    return made


def _thinking_of(request: Mapping[str, Any]) -> JSON:
    effort = (request.get("output_config") or {}).get("effort")
    thinking = request.get("thinking") or {}
    if effort is None and thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens") or 0
        effort = "low" if budget < 4096 else "medium" if budget < 16384 else "high"
    if effort is None and thinking.get("type") == "disabled":
        effort = "none"
    return {"reasoning": {"effort": "xhigh" if effort == "max" else effort}} if effort else {}


@reads("Responses request")
def responses_request_to_messages(request: Mapping[str, Any]) -> JSON:
    """A Responses request in the Messages form, which must have a bound: 4,096 tokens where the request has none.

    **Errors**: `FormError` for items, parts and tools that the form cannot carry, and for requests that continue a
    conversation which the provider keeps.
    """
    for name in _STATEFUL:
        if request.get(name):
            raise FormError(f"{name!r} needs a provider that keeps conversations; send the whole input instead")
    system, messages = _messages_of(request)
    made: JSON = {**pick(request, "model", "temperature", "top_p", "top_k", "stream"), "messages": messages}
    made["max_tokens"] = request.get("max_output_tokens") or DEFAULT_MAX_TOKENS
    if system:
        made["system"] = system[0]["text"] if len(system) == 1 else system
    stop = request.get("stop")
    if stop:
        made["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    user = request.get("user") or request.get("safety_identifier")
    if user:
        made["metadata"] = {"user_id": user}
    if request.get("tools"):
        made["tools"] = [_tool_from(tool) for tool in request["tools"]]
    made.update(_tool_choice_from(request))
    made.update(_output_config(request))
    return made


def _messages_of(request: Mapping[str, Any]) -> tuple[list[JSON], list[JSON]]:
    """The system blocks and the messages; what one side says in a row is one message."""
    system: list[JSON] = []
    if request.get("instructions"):
        system.append({"type": "text", "text": request["instructions"]})
    messages: list[JSON] = []
    items = request.get("input") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    for item in items:
        role, blocks = _role_and_blocks(item)
        if role == "system" and not messages:
            system += blocks
            continue
        role = "user" if role == "system" else role
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": list(blocks)})
    for message in messages:
        blocks = message["content"]
        if len(blocks) == 1 and set(blocks[0]) == {"type", "text"}:
            message["content"] = blocks[0]["text"]
        elif message["role"] == "user":  # results must come first in the message after their calls
            blocks.sort(key=lambda block: block["type"] != "tool_result")
    return system, [message for message in messages if message["content"]]


def _role_and_blocks(item: JSON) -> tuple[str, list[JSON]]:
    kind = item.get("type") or "message"
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        content = output if isinstance(output, str) else blocks_of_parts(output)
        return "user", [{"type": "tool_result", "tool_use_id": item["call_id"], "content": content}]
    if kind == "message" and item["role"] != "assistant":
        role = "system" if item["role"] == "developer" else item["role"]
        return role, blocks_of_parts(item.get("content"))
    return "assistant", list(block_of_item(item))


def _tool_from(tool: JSON) -> JSON:
    kind = tool.get("type", "function")
    if kind == "custom":
        schema: JSON = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    elif kind == "function":
        schema = tool.get("parameters") or {"type": "object", "properties": {}}
    else:
        raise FormError(f"a tool of type {kind!r} has no place in the Messages form")
    strict = {"strict": True} if tool.get("strict") else {}
    return {**pick(tool, "name", "description"), "input_schema": schema, **strict}


def _tool_choice_from(request: Mapping[str, Any]) -> JSON:
    choice = request.get("tool_choice")
    alone = request.get("parallel_tool_calls") is False and bool(request.get("tools"))
    if choice is None and not alone:
        return {}
    if isinstance(choice, Mapping):
        if choice.get("type") not in ("function", "custom"):
            raise FormError(f"a tool choice of type {choice.get('type')!r} has no place in the Messages form")
        made: JSON = {"type": "tool", "name": choice["name"]}
    else:
        made = {"type": {"required": "any", "none": "none"}.get(choice or "auto", "auto")}
    if alone and made["type"] != "none":
        made["disable_parallel_tool_use"] = True
    return {"tool_choice": made}


def _output_config(request: Mapping[str, Any]) -> JSON:
    made: JSON = {}
    config: JSON = {}
    shape = (request.get("text") or {}).get("format") or {}
    if shape.get("type") == "json_schema":
        config["format"] = {"type": "json_schema", "schema": shape["schema"]}
    effort = (request.get("reasoning") or {}).get("effort")
    if effort == "none":
        made["thinking"] = {"type": "disabled"}
    elif effort:
        config["effort"] = _EFFORTS.get(effort, "high")
    return {**made, **({"output_config": config} if config else {})}
