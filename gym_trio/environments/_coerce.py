"""Texts of XML and CSV as the types that a schema gives them; what cannot be turned stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["coerce_csv", "coerce_xml"]

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _scalar(text: str, kind: Any) -> Any:
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        return text
    return _BOOLEANS.get(text.lower(), text) if kind == "boolean" else text


def coerce_xml(value: Any, schema: Any) -> Any:
    """A parsed XML document as its schema's types.

    An element that wraps the items of a list becomes the list, and an empty element of a text the empty text; an
    empty element of any other type stays nothing, since 0 and false are values and not emptiness.
    """
    if not isinstance(schema, Mapping) or "type" not in schema:
        return value
    kind = schema["type"]
    if kind == "object" and isinstance(value, Mapping):
        properties = schema.get("properties", {})
        return {
            name: coerce_xml(item, properties[name]) if name in properties else item for name, item in value.items()
        }
    if kind == "array":
        return [coerce_xml(item, schema.get("items", {})) for item in _items(value)]
    if value is None:
        return "" if kind == "string" else None
    return _scalar(value, kind) if isinstance(value, str) else value


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping) and len(value) == 1:
        (value,) = value.values()
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def coerce_csv(rows: Sequence[Mapping[str, Any]], schema: Any) -> list[dict[str, Any]]:
    """The rows of a CSV document as the types of its schema's items."""
    items = schema.get("items", schema) if isinstance(schema, Mapping) else {}
    properties = items.get("properties", {}) if isinstance(items, Mapping) else {}
    return [
        {name: _cell(value, (properties.get(name) or {}).get("type", "string")) for name, value in row.items()}
        for row in rows
    ]


def _cell(value: Any, kind: Any) -> Any:
    if isinstance(kind, list):
        if not value and "null" in kind:
            return None
        for one in (one for one in kind if one != "null"):
            turned = _cell(value, one)
            if not isinstance(turned, str) or one == "string":
                return turned
        return value
    return _scalar(value, kind) if isinstance(value, str) and value else value
