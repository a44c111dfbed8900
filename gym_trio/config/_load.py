"""`load_config`: from files, ``env.yaml``, a mapping and overrides to one `GymConfig`."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from ..errors import ConfigError
from ._blocks import block_warnings, dangling_references, is_block, looks_like_servers, make_block, without_replaced
from ._directives import apply_directives
from ._files import INCLUDE_KEY, FileTree, Roots, read_yaml
from ._interpolate import MISSING, interpolate, referred_names, refuse_missing
from ._layers import Layer, Path, dotted, merge, origin, path_of
from ._names import nearest, suggestion
from ._overrides import COMMAND_LINE, Override, Verb, parse_override
from ._records import SERVER_TYPES, GymConfig, ServerBlock, error_elsewhere
from ._routes import check_routes
from ._run import ACCEPTED_ELSEWHERE, RunSettings
from ._structure import structure

PathLike = str | os.PathLike[str]
Source = PathLike | Mapping[str, Any] | GymConfig

ENV_FILE = "env.yaml"
_RUN_KEYS = frozenset(field.name for field in attrs.fields(RunSettings))
_DEFAULT_CLOSE_SECONDS = 60.0  # what a session close may take where an agent's block does not say


def load_config(
    sources: Source | Sequence[Source] = (),
    *,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    env_yaml: PathLike | Literal[False] | None = None,
    cwd: PathLike | None = None,
    whole: bool = True,
) -> GymConfig:
    """Load a configuration: from a mapping, a path, or a list of these.

    Precedence, lowest first: files (a file above those it names in ``config_paths``, later ones above earlier), then
    ``env.yaml``, then mappings, then ``overrides``. A mapping's server of another implementation replaces the one of
    that name; two files that disagree so are an error. ``env_yaml=None`` reads the ``env.yaml`` of the working
    directory if there is one, a path reads that file, False reads none. ``env`` is the environment that
    ``${oc.env:...}`` and ``NEMO_GYM_EXTRA_ROOTS`` are looked up in; without it there is none. With ``whole=False`` a
    server may lack a value (its settings are without that key then), or refer to a server that is not there: its error
    is in `GymConfig.dangling`, for whoever wants that server.

    **Errors**: `ConfigError`, one line that names the file, the key's path and the nearest right name.
    """
    env = env or {}
    roots = Roots.of(env, pathlib.Path(cwd) if cwd is not None else None)
    items = [sources] if isinstance(sources, str | os.PathLike | Mapping | GymConfig) else list(sources)
    parsed = [parse_override(text) for text in overrides]
    layers = _layers(items, parsed, roots, env_yaml, env)

    content: dict[str, Any] = {}
    for layer in layers:
        content = merge(content, layer.content)
    for override in parsed:
        _apply(content, override, layers)
    referred = referred_names(content)
    content, copied = apply_directives(content, layers)
    content = {name: without_replaced(name, value, layers) for name, value in content.items()}
    content, lacking = _filled(content, layers, env, whole=whole)
    content.pop(INCLUDE_KEY, None)
    loaded = _validated(content, layers, known=referred | copied)
    if whole and loaded.dangling:
        raise next(iter(loaded.dangling.values()))
    return attrs.evolve(loaded, dangling={**loaded.dangling, **lacking}) if lacking else loaded


def _layers(
    items: list[Source],
    overrides: list[Override],
    roots: Roots,
    env_yaml: PathLike | Literal[False] | None,
    env: Mapping[str, str],
) -> list[Layer]:
    """Every source in the order of precedence, lowest first. Overrides come after; they change, not only lay over."""
    mappings = [
        Layer(None, item.to_mapping(anywhere=True) if isinstance(item, GymConfig) else item)
        for item in items
        if isinstance(item, Mapping | GymConfig)
    ]
    for layer in mappings:
        for key in layer.content:
            if not isinstance(key, str):
                raise ConfigError(f"the top-level key {key!r} must be a text")
    local = _env_layer(env_yaml, roots)
    given = [Layer(COMMAND_LINE, {one.path[0]: one.value}) for one in overrides if len(one.path) == 1]
    context: dict[str, Any] = {}
    for layer in [*local, *mappings, *given]:
        context = merge(context, {name: value for name, value in layer.content.items() if name != INCLUDE_KEY})
    tree = FileTree(roots, context=context, env=env)
    tree.add([item for item in items if isinstance(item, str | os.PathLike)])
    for layer in [*local, *mappings]:
        tree.add_included(layer, beside=pathlib.Path(layer.name).parent if layer.name else None)
    for layer in given:
        tree.add_included(layer)
    return [*tree.layers, *local, *mappings]


def _env_layer(env_yaml: PathLike | Literal[False] | None, roots: Roots) -> list[Layer]:
    if env_yaml is False:
        return []
    if env_yaml is None:
        found = next((one for one in [*roots.extra, roots.cwd] if (one / ENV_FILE).is_file()), None)
        return [Layer(str(found / ENV_FILE), read_yaml(found / ENV_FILE))] if found else []
    path = pathlib.Path(env_yaml)
    if not path.is_file():
        raise ConfigError("there is no such file", file=str(path))
    return [Layer(str(path), read_yaml(path))]


def _apply(content: dict[str, Any], override: Override, layers: list[Layer]) -> None:
    """Carry out one override on ``content``, and add it to the layers, so that an error names the command line."""
    *parents, last = override.path
    place: Any = content
    for depth, step in enumerate(parents):
        inner = _enter(place, step)
        if inner is None and isinstance(place, dict) and override.verb is Verb.SET:
            inner = place[step] = {}
        if not isinstance(inner, dict | list):
            names = place if isinstance(place, dict) else ()
            raise _no_key(override, f"there is no {step!r} in {dotted(override.path[:depth]) or 'it'}", step, names)
        place = inner
    if isinstance(place, list):
        _apply_to_list(place, override, last)
    elif override.verb is Verb.DELETE:
        if last not in place:
            raise _no_key(override, f"there is no key {last!r} to delete", last, place)
        del place[last]
    elif override.verb is Verb.CHANGE and last not in place and not (place is content and last in _RUN_KEYS):
        known = {*place, *(_RUN_KEYS if place is content else ())}
        close = nearest(last, known)
        near = f"; did you mean {close!r}?" if close else ""
        raise ConfigError(
            f"there is no such key to change{near} (++{override.key}=... adds it)", file=COMMAND_LINE, key=override.key
        )
    else:
        place[last] = merge(place[last], override.value) if last in place else override.value
    layers.append(Layer(COMMAND_LINE, _nested(override.path, override.value)))


def _filled(
    content: dict[str, Any], layers: list[Layer], env: Mapping[str, str], *, whole: bool
) -> tuple[dict[str, Any], dict[str, ConfigError]]:
    """Every value given and every ``${...}`` replaced; unless ``whole``, the errors of servers that lack one."""
    if whole:
        refuse_missing(content, layers)
        return interpolate(content, layers, env), {}
    lacking: dict[str, ConfigError] = {}
    # What a server lacks is missing until all is replaced: a ``${...}`` that comes upon it lacks its value too.
    held: set[Path] = set()
    while True:
        try:
            _refuse_missing_each(content, layers, held)
            filled = interpolate(content, layers, env)
            _refuse_missing_each(filled, layers, held)  # what came with all that a ``${...}`` stands for
            break
        except ConfigError as error:
            path = _hold(content, path_of(error.key or "")) if error.key else None
            if path is None or path in held:
                raise
            held.add(path)
            lacking.setdefault(path[0], error)
    for server, kind, implementation, *below in held:
        bodies = filled[server][kind]
        if below:
            bodies[implementation].pop(below[0], None)  # two may have been missing in it
        else:
            bodies[implementation] = None
    return filled, lacking


def _refuse_missing_each(content: dict[str, Any], layers: list[Layer], held: set[Path]) -> None:
    """One by one: an error names no other server's keys."""
    for name, value in content.items():
        refuse_missing({name: value}, layers, but=held)


def _hold(content: dict[str, Any], path: Path) -> Path | None:
    """Let the value at ``path`` be missing, or the text that stands for what it is a part of; where that is.

    None when it belongs to no server's implementation, or its place cannot be told.
    """
    if not is_block(content.get(path[0])):
        return None
    place: Any = content
    for depth, step in enumerate(path):
        name: Any = int(step.strip("[]")) if isinstance(place, list) and step.strip("[]").isdecimal() else step
        found = _enter(place, str(name))
        if found is None:
            return None
        if depth == len(path) - 1 or isinstance(found, str):
            place[name] = MISSING
            return path[: depth + 1] if depth > 1 else None
        place = found
    return None


def _enter(place: Any, step: str) -> Any:
    if isinstance(place, dict):
        return place.get(step)
    if isinstance(place, list) and step.isdecimal() and int(step) < len(place):
        return place[int(step)]
    return None


def _apply_to_list(place: list[Any], override: Override, last: str) -> None:
    if not last.isdecimal() or int(last) > len(place) or (int(last) == len(place) and override.verb is not Verb.SET):
        raise ConfigError(f"the list has {len(place)} items", file=COMMAND_LINE, key=override.key)
    if override.verb is Verb.DELETE:
        del place[int(last)]
    else:
        place[int(last) : int(last) + 1] = [override.value]


def _no_key(override: Override, message: str, name: str, known: Any) -> ConfigError:
    return ConfigError(f"{message}{suggestion(name, known)}", file=COMMAND_LINE, key=override.key)


def _nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for step in reversed(path):
        value = {step: value}
    assert isinstance(value, dict)
    return value


def _validated(content: dict[str, Any], layers: list[Layer], *, known: set[str]) -> GymConfig:
    lenient = content.get("error_on_almost_servers") is False
    blocks: list[ServerBlock] = []
    settings: dict[str, Any] = {}
    warnings: list[str] = []
    for name, value in content.items():
        if is_block(value):
            blocks.append(make_block(name, value, layers))
            continue
        almost = looks_like_servers(value) if name not in _RUN_KEYS else None
        if almost is not None:
            message = f"unknown server type {almost!r}{suggestion(almost, SERVER_TYPES)}"
            if not lenient:
                raise ConfigError(message, file=origin(layers, (name, almost)), key=f"{name}.{almost}")
            warnings.append(f"{name}.{almost}: {message}")
        elif not _may_stand(name, layers, known):
            raise ConfigError(
                f"unknown key{suggestion(name, _RUN_KEYS) if nearest(name, _RUN_KEYS) else ''}"
                " (it is no server block, no run key, and nothing refers to it)",
                file=origin(layers, (name,)),
                key=name,
            )
        settings[name] = value
    run = _run_settings(settings, layers)
    check_routes(run, tuple(blocks), layers)
    warnings += block_warnings(tuple(blocks))
    warnings += _shutdown_warnings(run, blocks)
    files = tuple(dict.fromkeys(layer.name for layer in layers if layer.name and layer.name != COMMAND_LINE))
    return GymConfig(
        servers=tuple(blocks),
        settings=settings,
        run=run,
        warnings=tuple(warnings),
        files=files,
        dangling=dangling_references(tuple(blocks), layers),
    )


def _may_stand(name: str, layers: list[Layer], known: set[str]) -> bool:
    """Whether a top-level key that is no server block has a right to be there."""
    if name in _RUN_KEYS or name in ACCEPTED_ELSEWHERE or name in known or name.startswith("_"):
        return True
    # env.yaml is where people keep what some run of theirs needs; this one need not use all of it.
    only = [layer.name for layer in layers if name in layer.content]
    return bool(only) and all(where is not None and pathlib.Path(where).name == ENV_FILE for where in only)


def _run_settings(settings: dict[str, Any], layers: list[Layer]) -> RunSettings:
    present = {key: value for key, value in settings.items() if key in _RUN_KEYS and value is not None}
    try:
        return structure(RunSettings, present)
    except ConfigError as error:
        raise error_elsewhere(error, origin(layers, path_of(error.key or ""))) from None


def _shutdown_warnings(run: RunSettings, blocks: list[ServerBlock]) -> list[str]:
    """A grace that is shorter than the session drain it must contain cuts the drain."""
    grace = run.server_shutdown_timeout_seconds
    if grace is None:
        return []
    default = run.session_close_timeout_seconds
    closes: list[tuple[float, str]] = []
    for block in blocks:
        own = block.settings.get("session_close_timeout_seconds")
        if own is not None:
            closes.append((float(own), f"{block.key}.session_close_timeout_seconds"))
        elif block.server_type == "responses_api_agents":
            where = (
                "session_close_timeout_seconds"
                if default is not None
                else f"{block.key}.session_close_timeout_seconds (its default)"
            )
            closes.append((default if default is not None else _DEFAULT_CLOSE_SECONDS, where))
    longest, where = max(closes, default=(0.0, ""))
    if grace >= longest:
        return []
    return [
        f"server_shutdown_timeout_seconds is {grace:g}, shorter than {where}, {longest:g}: "
        "sessions that are still closing would be killed; 10 s more than the longest close is enough"
    ]
