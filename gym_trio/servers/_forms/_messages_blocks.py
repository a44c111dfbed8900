"""Content blocks of the Messages form ↔ parts and items of the Responses form."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from ...errors import FormError
from ._chat_turns import reasoning_text_of
from ._parts import JSON, parts_of

__all__ = ["block_of_item", "blocks_of_parts", "item_of_block", "part_of_block", "parts_of_blocks"]


def _source_url(source: JSON) -> str:
    if source["type"] == "base64":
        return f"data:{source['media_type']};base64,{source['data']}"
    if source["type"] == "url":
        return str(source["url"])
    raise FormError(f"a source of type {source['type']!r} has no place in the Responses form")


def _document_part(block: JSON) -> JSON:
    source = block["source"]
    name = {"filename": block["title"]} if block.get("title") else {}
    if source["type"] == "file":
        return {"type": "input_file", "file_id": source["file_id"]}
    if source["type"] == "text":
        data = base64.b64encode(source["data"].encode()).decode()
        return {"type": "input_file", "file_data": f"data:text/plain;base64,{data}", **name}
    if source["type"] == "url":
        return {"type": "input_file", "file_url": source["url"], **name}
    return {"type": "input_file", "file_data": _source_url(source), **name}


_PART_OF: dict[str, Callable[[JSON], JSON]] = {
    "text": lambda block: {"type": "input_text", "text": block["text"]},
    "image": lambda block: {"type": "input_image", "image_url": _source_url(block["source"]), "detail": "auto"},
    "document": _document_part,
}


def part_of_block(block: JSON) -> JSON:
    """One text, image or document block as a Responses part."""
    kind = block.get("type")
    if kind not in _PART_OF:
        raise FormError(f"a content block of type {kind!r} has no place in the Responses form")
    return _PART_OF[kind](block)


def parts_of_blocks(content: Any) -> Any:
    """Message content: a string stays one, blocks become parts."""
    return content if isinstance(content, str) else [part_of_block(block) for block in content or ()]


def item_of_block(block: JSON) -> JSON:
    """One block of an assistant message, or a tool result, as a Responses item."""
    kind = block.get("type")
    if kind == "text":
        return {"role": "assistant", "content": block["text"]}
    if kind == "thinking":
        thought: JSON = {"type": "reasoning", "summary": []}
        thought["content"] = [{"type": "reasoning_text", "text": block["thinking"]}]
        return {**thought, **({"encrypted_content": block["signature"]} if block.get("signature") else {})}
    if kind == "redacted_thinking":
        return {"type": "reasoning", "summary": [], "encrypted_content": block["data"]}
    if kind == "tool_use":
        arguments = orjson.dumps(block.get("input") or {}).decode()
        return {"type": "function_call", "call_id": block["id"], "name": block["name"], "arguments": arguments}
    if kind == "tool_result":
        output = parts_of_blocks(block.get("content") or "")
        return {"type": "function_call_output", "call_id": block["tool_use_id"], "output": output}
    raise FormError(f"a content block of type {kind!r} has no place in the Responses form")


def _source_of(url: str) -> JSON:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    head, _, data = url.removeprefix("data:").partition(",")
    return {"type": "base64", "media_type": head.partition(";")[0] or "application/octet-stream", "data": data}


def _image_block(part: JSON) -> JSON:
    if part.get("file_id"):
        return {"type": "image", "source": {"type": "file", "file_id": part["file_id"]}}
    return {"type": "image", "source": _source_of(part["image_url"])}


def _document_block(part: JSON) -> JSON:
    made: JSON = {"type": "document", **({"title": part["filename"]} if part.get("filename") else {})}
    if part.get("file_id"):
        return {**made, "source": {"type": "file", "file_id": part["file_id"]}}
    source = _source_of(part.get("file_url") or part["file_data"])
    if source.get("media_type") == "text/plain":
        text = base64.b64decode(source["data"]).decode("utf-8", "replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    return {**made, "source": source}


_BLOCK_OF: dict[str, Callable[[JSON], JSON]] = {
    "input_text": lambda part: {"type": "text", "text": part["text"]},
    "output_text": lambda part: {"type": "text", "text": part["text"]},
    "text": lambda part: {"type": "text", "text": part["text"]},
    "refusal": lambda part: {"type": "text", "text": part["refusal"]},
    "input_image": _image_block,
    "input_file": _document_block,
}


def blocks_of_parts(content: Any) -> list[JSON]:
    """Responses content as blocks. An empty text makes none: the Messages form has no empty block."""
    blocks: list[JSON] = []
    for part in parts_of(content):
        kind = part.get("type", "input_text")
        if kind not in _BLOCK_OF:
            raise FormError(f"a content part of type {kind!r} has no place in the Messages form")
        block = _BLOCK_OF[kind](part)
        if block.get("text") != "":
            blocks.append(block)
    return blocks


def _call_block(item: JSON) -> JSON:
    return {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": call_input(item)}


def call_input(item: JSON) -> JSON:
    """The arguments of a call as the object that the Messages form has room for."""
    if item.get("type") == "custom_tool_call":
        return {"input": item.get("input") or ""}
    text = item.get("arguments") or "{}"
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}


def _thinking_blocks(item: JSON) -> list[JSON]:
    text, sealed = reasoning_text_of(item), item.get("encrypted_content")
    if text:
        return [{"type": "thinking", "thinking": text, "signature": sealed or ""}]
    return [{"type": "redacted_thinking", "data": sealed}] if sealed else []


def block_of_item(item: JSON) -> Iterable[JSON]:
    """The blocks of one item of an assistant's turn. The exact tokens of a call stay on its last block."""
    kind = item.get("type") or "message"
    if kind == "message":
        blocks = blocks_of_parts(item.get("content"))
    elif kind == "reasoning":
        blocks = _thinking_blocks(item)
    elif kind in ("function_call", "custom_tool_call"):
        blocks = [_call_block(item)]
    else:
        raise FormError(f"an item of type {kind!r} has no place in the Messages form")
    return blocks
