"""Responses request ↔ Chat Completions request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ...errors import FormError
from ._chat_turns import ChatTurns, messages_to_items
from ._parts import JSON, pick, reads

__all__ = ["CARRIED_KEYS", "ChatDialect", "chat_request_to_responses", "responses_request_to_chat"]


@attrs.frozen
class ChatDialect:
    """What Chat Completions back ends do not agree on.

    ``max_tokens_key`` is the name of the output bound. ``reasoning_in_content`` writes earlier reasoning as
    ``<think>...</think>`` into the content, for back ends without a reasoning parser; otherwise it goes into
    ``reasoning_content``. ``developer_as_system`` is for chat templates that know no developer role.
    """

    max_tokens_key: str = "max_completion_tokens"
    reasoning_in_content: bool = False
    developer_as_system: bool = False


DEFAULT = ChatDialect()

# Of these only a server that keeps conversations can make something.
_STATEFUL = ("previous_response_id", "conversation", "prompt", "background")
# Read and rewritten, or without a meaning in the other form.
_RESPONSES_ONLY = frozenset(
    {"input", "instructions", "max_output_tokens", "tools", "tool_choice", "text", "reasoning", "include"}
    | {"top_logprobs", "max_tool_calls", "truncation", *_STATEFUL}
)
_CHAT_ONLY = frozenset(
    {"messages", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "response_format", "verbosity"}
    | {"reasoning_effort", "logprobs", "top_logprobs", "stream_options", "functions", "function_call"}
)


# What only the chat or the Messages form has; it travels through the Responses form under its own name.
CARRIED_KEYS = frozenset(
    {"stop", "seed", "logit_bias", "frequency_penalty", "presence_penalty", "prediction", "modalities", "audio"}
    | {"web_search_options", "top_k"}
)


@reads("Responses request")
def responses_request_to_chat(request: Mapping[str, Any], dialect: ChatDialect = DEFAULT) -> JSON:
    """A Responses request in the Chat Completions form.

    **Errors**: `FormError` for items, parts and tools that the form cannot carry, and for requests that continue a
    conversation which the provider keeps.
    """
    for name in _STATEFUL:
        if request.get(name):
            raise FormError(f"{name!r} needs a provider that keeps conversations; send the whole input instead")
    chat: JSON = {name: value for name, value in request.items() if name not in _RESPONSES_ONLY and value is not None}
    chat["messages"] = _messages_of(request, dialect)
    if request.get("max_output_tokens") is not None:
        chat[dialect.max_tokens_key] = request["max_output_tokens"]
    if request.get("tools"):
        chat["tools"] = [_tool_to_chat(tool) for tool in request["tools"]]
        if request.get("tool_choice") is not None:
            chat["tool_choice"] = _tool_choice_to_chat(request["tool_choice"])
    else:
        chat.pop("parallel_tool_calls", None)
    chat.update(_text_to_chat(request.get("text") or {}))
    chat.update({"reasoning_" + name: value for name, value in pick(request.get("reasoning") or {}, "effort").items()})
    if request.get("top_logprobs") or "message.output_text.logprobs" in (request.get("include") or ()):
        chat["logprobs"] = True
        chat.update(pick(request, "top_logprobs"))
    return chat


def _messages_of(request: Mapping[str, Any], dialect: ChatDialect) -> list[JSON]:
    turns = ChatTurns(reasoning_in_content=dialect.reasoning_in_content)
    if request.get("instructions"):
        turns.messages.append({"role": "system", "content": request["instructions"]})
    turns.extend(request.get("input"))
    messages = turns.finish()
    if dialect.developer_as_system:
        for message in messages:
            if message["role"] == "developer":
                message["role"] = "system"
    return messages


def _tool_to_chat(tool: JSON) -> JSON:
    kind = tool.get("type", "function")
    if kind == "function":
        return {"type": "function", "function": pick(tool, "name", "description", "parameters", "strict")}
    if kind == "custom":
        return {"type": "custom", "custom": pick(tool, "name", "description", "format")}
    raise FormError(f"a tool of type {kind!r} has no place in the Chat Completions form")


def _tool_choice_to_chat(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return {"type": kind, kind: {"name": choice["name"]}}
    if kind == "allowed_tools":
        tools = [_tool_choice_to_chat(tool) for tool in choice["tools"]]
        return {"type": kind, kind: {"mode": choice.get("mode", "auto"), "tools": tools}}
    raise FormError(f"a tool choice of type {kind!r} has no place in the Chat Completions form")


def _text_to_chat(text: Mapping[str, Any]) -> JSON:
    made = pick(text, "verbosity")
    shape = text.get("format") or {}
    if shape.get("type") == "json_schema":
        schema = pick(shape, "name", "description", "schema", "strict")
        made["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif shape.get("type") not in (None, "text"):
        made["response_format"] = {"type": shape["type"]}
    return made


@reads("Chat Completions request")
def chat_request_to_responses(request: Mapping[str, Any]) -> JSON:
    """A Chat Completions request in the Responses form.

    **Errors**: `FormError` for several choices and for parts and tools that the form cannot carry.
    """
    if (request.get("n") or 1) != 1:
        raise FormError("several choices ('n') have no place in the Responses form; make one call for each")
    made: JSON = {
        name: value
        for name, value in request.items()
        if name not in _CHAT_ONLY and value is not None and (name, value) != ("n", 1)
    }
    made["input"] = messages_to_items(request.get("messages") or ())
    bound = request.get("max_completion_tokens") or request.get("max_tokens")
    if bound is not None:
        made["max_output_tokens"] = bound
    tools = [_tool_from_chat(tool) for tool in request.get("tools") or ()]
    tools += [_function_from_chat(function) for function in request.get("functions") or ()]
    if tools:
        made["tools"] = tools
    choice = request.get("tool_choice") or request.get("function_call")
    if choice is not None:
        made["tool_choice"] = _tool_choice_from_chat(choice)
    text = _text_from_chat(request)
    if text:
        made["text"] = text
    if request.get("reasoning_effort") is not None:
        made["reasoning"] = {"effort": request["reasoning_effort"]}
    if request.get("logprobs"):
        made["include"] = ["message.output_text.logprobs"]
        made["top_logprobs"] = request.get("top_logprobs") or 0
    return made


def _function_from_chat(function: JSON) -> JSON:
    tool = {"type": "function", **pick(function, "name", "description", "parameters", "strict")}
    tool.setdefault("strict", False)
    tool.setdefault("parameters", {"type": "object", "properties": {}})
    return tool


def _tool_from_chat(tool: JSON) -> JSON:
    kind = tool.get("type", "function")
    if kind == "function":
        return _function_from_chat(tool["function"])
    if kind == "custom":
        return {"type": "custom", **pick(tool["custom"], "name", "description", "format")}
    raise FormError(f"a tool of type {kind!r} has no place in the Responses form")


def _tool_choice_from_chat(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    if "type" not in choice and "name" in choice:  # the old function_call form
        return {"type": "function", "name": choice["name"]}
    kind = choice["type"]
    form = choice[kind]
    if kind == "allowed_tools":
        tools = [_tool_choice_from_chat(tool) for tool in form["tools"]]
        return {"type": kind, "mode": form.get("mode", "auto"), "tools": tools}
    return {"type": kind, "name": form["name"]}


def _text_from_chat(request: Mapping[str, Any]) -> JSON:
    text = pick(request, "verbosity")
    shape = request.get("response_format") or {}
    if shape.get("type") == "json_schema":
        text["format"] = {
            "type": "json_schema",
            **pick(shape["json_schema"], "name", "description", "schema", "strict"),
        }
    elif shape.get("type"):
        text["format"] = {"type": shape["type"]}
    return text
