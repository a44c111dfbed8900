"""Between an OpenEnv environment's objects and a model's text: actions out of replies, text out of observations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ..errors import ToolError
from ._openenv_wire import is_for_tools

__all__ = ["Actions", "actions_of_schema", "describe", "tool_definitions", "tool_result"]

_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)
_MOST_OBJECTS = 200  # places in a reply where a JSON object may begin


@attrs.frozen
class Actions:
    """How replies become actions.

    With ``field`` the reply is the value of that one field: as it stands where ``is_text``, else read as JSON. Without,
    it holds a JSON object. ``tools``: the model's tool calls are the actions. ``pattern`` finds the action in a reply:
    its last match, of it the first group where it has one. ``fixed`` fields are part of every action.
    """

    field: str | None = None
    is_text: bool = True
    tools: bool = False
    schema: Mapping[str, Any] = attrs.field(factory=dict)
    pattern: re.Pattern[str] | None = None
    fixed: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def explanation(self) -> str:
        """What the model must be told of the form; empty where any text is an action."""
        if self.tools:
            return ""
        if self.field is None:
            return f"Answer with one JSON object that fits this schema: {json.dumps(_bare(self.schema))}"
        about = (self.schema.get("properties") or {}).get(self.field) or {}
        if not self.is_text:
            return f"Answer with one JSON value, the {self.field}, that fits this schema: {json.dumps(about)}"
        return f"Your answer is the {self.field}: {about['description']}" if about.get("description") else ""

    def action_of(self, reply: str) -> dict[str, Any]:
        """The action in ``reply``. **Errors**: `ToolError` whose text tells the model what is missing."""
        text = self._cut_out(_THOUGHTS.sub("", reply).strip())
        if self.field is None:
            return _sendable({**_last_object(text), **self.fixed})
        return _sendable({self.field: text if self.is_text else _value(text, self.field), **self.fixed})

    def _cut_out(self, text: str) -> str:
        if self.pattern is None:
            return text
        found = list(self.pattern.finditer(text))
        if not found:
            raise ToolError(f"the answer has nothing of the form {self.pattern.pattern}")
        return (found[-1].group(1 if self.pattern.groups else 0) or "").strip()


def actions_of_schema(
    schema: Mapping[str, Any],
    *,
    form: str = "auto",
    field: str | None = None,
    pattern: str | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Actions:
    """How replies become actions: what ``form`` (auto, text, json, tools) and ``field`` leave open goes by ``schema``.

    One field that is required, or one that there is, takes the whole reply; more of them are a JSON object.
    """
    fixed = fixed or {}
    if form == "tools" or (form == "auto" and field is None and is_for_tools(schema)):
        return Actions(tools=True, schema=schema, fixed=fixed)
    chosen = None if form == "json" else field or _only_field(schema, fixed)
    about = (schema.get("properties") or {}).get(chosen) or {}
    compiled = re.compile(pattern, re.DOTALL) if pattern is not None else None
    return Actions(chosen, form == "text" or _takes_text(about), False, schema, compiled, fixed)


def describe(observation: Mapping[str, Any], template: str | None) -> str:
    """What the model sees of ``observation``: by the template, or its one text, or the whole as JSON."""
    if template is not None:
        return template.format_map(_Fields(observation))
    shown = {name: value for name, value in observation.items() if name != "metadata" and value is not None}
    if not shown:
        metadata = observation.get("metadata")
        return json.dumps(metadata, ensure_ascii=False) if metadata else ""
    (first, *others) = shown.values()
    return first if isinstance(first, str) and not others else json.dumps(shown, ensure_ascii=False)


def tool_definitions(observation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tools that an environment listed, in the form of a Responses request's ``tools``."""
    return [
        {
            "type": "function",
            "name": str(one["name"]),
            "description": str(one.get("description") or ""),
            "parameters": one.get("input_schema") or {"type": "object", "properties": {}},
            "strict": False,
        }
        for one in observation.get("tools") or ()
        if isinstance(one, Mapping) and one.get("name")
    ]


def tool_result(observation: Mapping[str, Any], template: str | None) -> str:
    """What the model gets of a tool's result: its texts, or what went wrong, or JSON."""
    error = observation.get("error")
    if error:
        return json.dumps({"error": error.get("message") if isinstance(error, Mapping) else error}, ensure_ascii=False)
    result = observation.get("result")
    parts = result.get("content") if isinstance(result, Mapping) else None
    if isinstance(parts, Sequence) and parts and all(_is_text(part) for part in parts):
        return "\n".join(part["text"] for part in parts)
    if isinstance(result, str):
        return result
    return describe(observation, template) if result is None else json.dumps(result, ensure_ascii=False)


class _Fields(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return ""


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _only_field(schema: Mapping[str, Any], fixed: Mapping[str, Any]) -> str | None:
    names = [name for name in schema.get("properties") or {} if name != "metadata" and name not in fixed]
    required = [name for name in schema.get("required") or () if name in names]
    for some in (required, names):
        if some:
            return some[0] if len(some) == 1 else None
    return None


def _takes_text(about: Mapping[str, Any]) -> bool:
    """Whether a field of this schema takes a text. One that is not described does."""
    choices = [one for one in about.get("anyOf") or () if isinstance(one, Mapping)]
    if choices:
        return any(_takes_text(one) for one in choices if one.get("type") != "null")
    if "enum" in about or "const" in about:
        values = about.get("enum") or [about.get("const")]
        return any(isinstance(value, str) for value in values)
    return about.get("type", "string") == "string" and "$ref" not in about


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = {name: about for name, about in (schema.get("properties") or {}).items() if name != "metadata"}
    return {name: value for name, value in schema.items() if name != "title"} | {"properties": properties}


def _sendable(action: dict[str, Any]) -> dict[str, Any]:
    # Python reads NaN, 1e999 and half a surrogate pair from JSON; sent on, they would end the server's session.
    try:
        json.dumps(action, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the answer holds what is no JSON ({error})") from None
    return action


def _value(text: str, field: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ToolError(f"{text[:100]!r} is no JSON value, as {field} must be") from None


def _last_object(text: str) -> dict[str, Any]:
    """The last JSON object in ``text`` that is not part of another."""
    decoder = json.JSONDecoder()
    found: dict[str, Any] | None = None
    position = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if position < 0:
            break
        try:
            value, end = decoder.raw_decode(text, position)
            found = value if isinstance(value, dict) else found
        except (ValueError, RecursionError):
            end = position + 1
        position = text.find("{", end)
    if found is None:
        raise ToolError("the answer has no JSON object")
    return found
