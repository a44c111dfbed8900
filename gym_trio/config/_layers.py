"""Plain mappings laid over one another, and where each key came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

Path = tuple[str, ...]


@attrs.frozen
class Layer:
    """One source of configuration. ``name`` is the file's path, "command line", or None for a caller's mapping."""

    name: str | None
    content: Mapping[str, Any]


def merge(lower: Any, upper: Any) -> Any:
    """``upper`` over ``lower``: mappings key by key, anything else replaced. Neither argument is changed."""
    if isinstance(lower, Mapping) and isinstance(upper, Mapping):
        merged = dict(lower)
        for key, value in upper.items():
            merged[key] = merge(lower[key], value) if key in lower else copy(value)
        return merged
    return copy(upper)


def copy(value: Any) -> Any:
    """The same mappings and lists, new; what is neither stays the same object."""
    if isinstance(value, Mapping):
        return {key: copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy(item) for item in value]
    return value


def origin(layers: list[Layer], path: Path, *, earliest: bool = False) -> str | None:
    """The name of the source that says most about ``path``; of several that say as much, the last or the first."""
    best, depth = None, 0
    for layer in layers:
        found = _depth(layer.content, path)
        if found > depth or (found == depth > 0 and not earliest):
            best, depth = layer.name, found
    return best


def _depth(content: Any, path: Path) -> int:
    for steps, name in enumerate(path):
        if not isinstance(content, Mapping) or name not in content:
            return steps
        content = content[name]
    return len(path)


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value in mappings and lists, the containers before what they hold."""
    yield path, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from walk(item, (*path, f"[{number}]"))


def dotted(path: Path) -> str:
    """The path as people write it: ``a.b[0].c``."""
    return ".".join(path).replace(".[", "[")


def path_of(key: str) -> Path:
    """What `dotted` wrote."""
    return tuple(key.replace("[", ".[").split("."))
