"""Server blocks: recognised, checked, and their references followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import ConfigError
from ._layers import Layer, Path, dotted, origin, walk
from ._names import nearest, suggestion
from ._records import SERVER_TYPES, BlockCommon, ServerBlock, error_elsewhere
from ._structure import structure

DOMAINS = (
    "math",
    "coding",
    "agent",
    "knowledge",
    "instruction_following",
    "long_context",
    "safety",
    "games",
    "translation",
    "e2e",
    "rlhf",
    "other",
)


_CLOSE = 0.75  # how alike a word must be to a server type to be taken for one


def looks_like_servers(value: Any) -> str | None:
    """The key under which ``value`` seems to hold a server whose type is mistyped; None if it is something else."""
    if not isinstance(value, Mapping):
        return None
    for key, inner in value.items():
        if isinstance(inner, Mapping) and nearest(str(key), SERVER_TYPES, cutoff=_CLOSE):
            return str(key)
    for key, inner in value.items():
        bodies = list(inner.values()) if isinstance(inner, Mapping) else []
        if len(bodies) == 1 and isinstance(bodies[0], Mapping) and "entrypoint" in bodies[0]:
            return str(key)
    return None


def is_block(value: Any) -> bool:
    """Whether a top-level value is a server block: a mapping with a server type for a key."""
    return isinstance(value, Mapping) and any(kind in value for kind in SERVER_TYPES)


def without_replaced(name: str, value: Any, layers: list[Layer]) -> Any:
    """``value`` without the implementations that a caller's mapping, above the files, has replaced by another."""
    kind = next((one for one in SERVER_TYPES if is_block(value) and one in value), None)
    if kind is None or not isinstance(value[kind], Mapping):
        return value
    named = [(layer.name, _implementations(layer, name, kind)) for layer in layers]
    last = max((number for number, (file, found) in enumerate(named) if file is None and found), default=0)
    kept = set().union(*(found for _, found in named[last:]))
    return {**value, kind: {one: body for one, body in value[kind].items() if one in kept}} if last else value


def _implementations(layer: Layer, name: str, kind: str) -> set[str]:
    block = layer.content.get(name)
    bodies = block.get(kind) if isinstance(block, Mapping) else None
    return set(bodies) if isinstance(bodies, Mapping) else set()


def make_block(name: str, value: Mapping[str, Any], layers: list[Layer]) -> ServerBlock:
    """One server from its block.

    **Errors**: `ConfigError` for a second server or a stray key in the block, and for a wrong type among the keys
    that every implementation shares.
    """
    kind = next(one for one in SERVER_TYPES if one in value)
    for key in value:
        if key != kind:
            what = "a second server in one block" if key in SERVER_TYPES else f"unknown key beside {kind!r}"
            raise _error(what, (name, str(key)), layers)
    bodies = value[kind]
    if not isinstance(bodies, Mapping) or len(bodies) != 1:
        found = f", not {', '.join(str(one) for one in bodies)}" if isinstance(bodies, Mapping) and bodies else ""
        raise _error(f"must hold one implementation by name{found}", (name, kind), layers)
    implementation, body = next(iter(bodies.items()))
    path = (name, kind, str(implementation))
    if body is None:
        body = {}
    if not isinstance(body, Mapping):
        raise _error("must be a mapping", path, layers)
    file = origin(layers, path, earliest=True)
    origins = {str(key): origin(layers, (*path, str(key))) for key in body}
    try:
        common = structure(BlockCommon, body, key=dotted(path), ignore=body.keys())
    except ConfigError as error:
        wrong = (error.key or "").replace("[", ".").split(".")[len(path)]
        raise error_elsewhere(error, origins.get(wrong)) from None
    return ServerBlock(
        name=name,
        server_type=kind,
        implementation=str(implementation),
        settings=dict(body),
        host=common.host,
        port=common.port,
        num_workers=common.num_workers,
        entrypoint=common.entrypoint,
        file=file,
        origins={key: name for key, name in origins.items() if name != file},
    )


def dangling_references(blocks: tuple[ServerBlock, ...], layers: list[Layer]) -> dict[str, ConfigError]:
    """By server, what is wrong with its first ``{type, name}`` that no server of the configuration answers to."""
    types = {block.name: block.server_type for block in blocks}
    found: dict[str, ConfigError] = {}
    for block in blocks:
        for below, kind, name in _references(block.settings):
            path = (block.name, block.server_type, block.implementation, *below)
            if kind not in SERVER_TYPES:
                error = _error(f"unknown server type {kind!r}{suggestion(kind, SERVER_TYPES)}", (*path, "type"), layers)
            elif name not in types:
                near = suggestion(name, [other for other, its in types.items() if its == kind])
                error = _error(f"there is no server {name!r} of type {kind!r}{near}", (*path, "name"), layers)
            elif types[name] != kind:
                error = _error(f"{name!r} is one of {types[name]}, not of {kind}", path, layers)
            else:
                continue
            found.setdefault(block.name, error)
    return found


def _references(settings: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    for path, value in walk(settings):
        if not isinstance(value, Mapping) or not {"type", "name"} <= value.keys() <= {"type", "name"}:
            continue
        kind, name = value["type"], value["name"]
        if isinstance(kind, str) and isinstance(name, str) and nearest(kind, SERVER_TYPES, cutoff=_CLOSE):
            yield path, kind, name


def block_warnings(blocks: tuple[ServerBlock, ...]) -> list[str]:
    """What is allowed and still worth saying about the blocks."""
    told = []
    for block in blocks:
        domain = block.settings.get("domain")
        if domain is not None and domain not in DOMAINS:
            told.append(f"{block.key}.domain: {domain!r} is not a known domain{suggestion(str(domain), DOMAINS)}")
    return told


def _error(message: str, path: Path, layers: list[Layer]) -> ConfigError:
    return ConfigError(message, file=origin(layers, path), key=dotted(path))
