"""``_inherit_from``, ``_copy`` and ``_delete_key``, and their short forms ``${inherit_from:...}`` and ``${copy:...}``.

A mapping with ``_copy: a.b`` holds what ``a.b`` holds, its own keys on top. ``_inherit_from`` does the same and takes
``a.b`` away: its heir stands in its place. ``_delete_key`` (``"a, b"`` or a list) takes keys away after that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ._layers import Layer, Path, copy, dotted, merge, origin
from ._names import suggestion

INHERIT, COPY, DELETE = "_inherit_from", "_copy", "_delete_key"
_SHORT = re.compile(r"\$\{(inherit_from|copy):([^${}]+)\}")


def apply_directives(content: dict[str, Any], layers: list[Layer]) -> tuple[dict[str, Any], set[str]]:
    """Carry out every directive. Returns the new content and the first names of all paths that were referred to.

    **Errors**: `ConfigError` for a path that does not exist, a directive that leads back to itself, a key to delete
    that is not there.
    """
    work = _Work(content, layers)
    made = work.expand(content, (), ())
    for path in work.inherited:
        _remove(made, path)
    return made, {path[0] for path in work.referred}


class _Work:
    def __init__(self, content: dict[str, Any], layers: list[Layer]) -> None:
        self.content = content
        self.layers = layers
        self.inherited: list[Path] = []
        self.referred: set[Path] = set()

    def fail(self, message: str, path: Path) -> ConfigError:
        return ConfigError(message, file=origin(self.layers, path), key=dotted(path))

    def expand(self, value: Any, at: Path, through: tuple[Path, ...]) -> Any:
        """``value``, which stands at ``at``, with its directives carried out; ``through`` is how it was come upon."""
        if isinstance(value, str):
            short = _SHORT.fullmatch(value)
            if short is None:
                return value
            return self._source(short[2].strip(), at, through, take=short[1] == "inherit_from")
        if isinstance(value, list):
            return [self.expand(item, (*at, f"[{n}]"), through) for n, item in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        directives = {key: value[key] for key in (INHERIT, COPY, DELETE) if key in value}
        made: Any = {k: self.expand(v, (*at, str(k)), through) for k, v in value.items() if k not in directives}
        for name in (INHERIT, COPY):
            if name in directives:
                source = self._source(directives[name], (*at, name), through, take=name == INHERIT)
                made = merge(source, made) if made or not isinstance(source, Mapping) else source
        if DELETE in directives:
            self._delete(made, directives[DELETE], at)
        return made

    def _source(self, named: Any, at: Path, through: tuple[Path, ...], *, take: bool) -> Any:
        if not isinstance(named, str) or not named:
            raise self.fail("must be the path of another key", at)
        path = tuple(named.split("."))
        if path in through or path == at[: len(path)]:
            raise self.fail(f"{named!r} leads back to itself", at)
        found: Any = self.content
        for step in path:
            if not isinstance(found, Mapping) or step not in found:
                near = suggestion(step, found) if isinstance(found, Mapping) else ""
                raise self.fail(f"there is no {named!r} in the configuration{near}", at)
            found = found[step]
        self.referred.add(path)
        if take:
            self.inherited.append(path)
        return copy(self.expand(found, path, (*through, path)))

    def _delete(self, made: Any, named: Any, at: Path) -> None:
        names = [part.strip() for part in named.split(",")] if isinstance(named, str) else named
        if not isinstance(names, list) or not isinstance(made, dict):
            raise self.fail("must be the names of keys to delete", (*at, DELETE))
        for name in names:
            if name not in made:
                raise self.fail(f"there is no key {name!r} to delete{suggestion(name, made)}", (*at, DELETE))
            del made[name]


def _remove(content: Any, path: Path) -> None:
    for step in path[:-1]:
        content = content.get(step) if isinstance(content, dict) else None
    if isinstance(content, dict):
        content.pop(path[-1], None)
