"""Content parts in the Responses and the Chat Completions form."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import orjson

from ...errors import FormError

__all__ = ["JSON", "make_id", "part_from_chat", "part_to_chat", "parts_of", "pick", "read_object", "reads", "text_of"]

JSON = dict[str, Any]


Convert = TypeVar("Convert", bound=Callable[..., Any])


def reads(what: str) -> Callable[[Convert], Convert]:
    """For functions that take apart what a client wrote.

    **Errors**: `FormError` that names ``what`` it should have been, instead of a missing key or a wrong type.
    """

    def decorate(convert: Convert) -> Convert:
        @functools.wraps(convert)
        def checked(*arguments: Any, **options: Any) -> Any:
            try:
                return convert(*arguments, **options)
            except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
                reason = f"{error} is missing" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
                raise FormError(f"this is no {what}: {reason}") from error

        return cast(Convert, checked)

    return decorate


def read_object(content: bytes) -> JSON | None:
    """The JSON object that another server wrote, or ``None`` when it wrote none.

    What the standard library writes and orjson refuses becomes what can be sent on: NaN and infinities null, half a
    character "?", an integer beyond 64 bits a float.
    """
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(content, parse_constant=lambda _: None)
            value = orjson.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def make_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def pick(source: Mapping[str, Any], *names: str) -> JSON:
    """The keys of ``source`` among ``names`` that are there and not null."""
    return {name: source[name] for name in names if source.get(name) is not None}


def parts_of(content: Any) -> list[JSON]:
    """``content`` as a list of parts; a string is one text part, null none."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return list(content)


def text_of(parts: Sequence[Mapping[str, Any]] | str | None) -> str:
    """The text of the text parts, joined."""
    if parts is None or isinstance(parts, str):
        return parts or ""
    return "".join(part.get("text") or "" for part in parts)


def _image_to_chat(part: JSON) -> JSON:
    if not part.get("image_url"):
        raise FormError("an image by file_id has no place in the Chat Completions form; give its image_url")
    return {"type": "image_url", "image_url": {"url": part["image_url"], **pick(part, "detail")}}


def _file_to_chat(part: JSON) -> JSON:
    if part.get("file_url"):
        raise FormError("a file by URL has no place in the Chat Completions form; give its file_data")
    return {"type": "file", "file": pick(part, "file_data", "file_id", "filename")}


_TO_CHAT: dict[str, Callable[[JSON], JSON]] = {
    "input_text": lambda part: {"type": "text", "text": part["text"]},
    "output_text": lambda part: {"type": "text", "text": part["text"]},
    "text": lambda part: {"type": "text", "text": part["text"]},
    "refusal": lambda part: {"type": "refusal", "refusal": part["refusal"]},
    "input_image": _image_to_chat,
    "input_file": _file_to_chat,
    "input_audio": lambda part: {"type": "input_audio", "input_audio": part["input_audio"]},
}


def part_to_chat(part: JSON) -> JSON:
    """One Responses part as a chat part."""
    kind = part.get("type", "input_text")
    if kind not in _TO_CHAT:
        raise FormError(f"a content part of type {kind!r} has no place in the Chat Completions form")
    return _TO_CHAT[kind](part)


def _image_from_chat(part: JSON) -> JSON:
    image = part["image_url"]
    if isinstance(image, str):
        image = {"url": image}
    return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}


_FROM_CHAT: dict[str, Callable[[JSON], JSON]] = {
    "text": lambda part: {"type": "input_text", "text": part["text"]},
    "refusal": lambda part: {"type": "refusal", "refusal": part["refusal"]},
    "image_url": _image_from_chat,
    "file": lambda part: {"type": "input_file", **pick(part["file"], "file_data", "file_id", "filename")},
    "input_audio": lambda part: {"type": "input_audio", "input_audio": part["input_audio"]},
}


def part_from_chat(part: JSON, *, output: bool = False) -> JSON:
    """One chat part as a Responses part; ``output`` for text that an assistant wrote."""
    kind = part.get("type", "text")
    if kind not in _FROM_CHAT:
        raise FormError(f"a content part of type {kind!r} has no place in the Responses form")
    made = _FROM_CHAT[kind](part)
    if output and made["type"] == "input_text":
        return {"type": "output_text", "text": made["text"], "annotations": []}
    return made
