"""``${...}`` and ``???``: values that stand somewhere else, and values that must still be given.

Interpolation is omegaconf's. ``${oc.env:NAME}`` and ``${oc.env:NAME,default}`` are filled in here beforehand from the
mapping that the caller passed, so that no part of a configuration depends on this process's environment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ..errors import ConfigError
from ._layers import Layer, Path, dotted, origin, path_of, walk
from ._names import suggestion

MISSING = "???"
_ENV = "${oc.env:"
_REFERRED = re.compile(r"\$\{(?:oc\.select:)?\s*([A-Za-z_]\w*)")
_LOST = re.compile(r"Interpolation key '([^']+)' not found|Missing mandatory value: (\S+)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def referred_names(content: Any) -> set[str]:
    """The first names of everything that some ``${...}`` refers to."""
    return {name for _, value in walk(content) if isinstance(value, str) for name in _REFERRED.findall(value)}


def refuse_missing(content: Mapping[str, Any], layers: list[Layer], *, but: Collection[Path] = ()) -> None:
    """**Errors**: `ConfigError` that names every value that is still ``???``, ``but`` those."""
    missing = [path for path, value in walk(content) if value == MISSING and path not in but]
    if missing:
        first = dotted(missing[0])
        others = f" (and {', '.join(dotted(path) for path in missing[1:])})" if missing[1:] else ""
        raise ConfigError(
            f"must be given{others}: in env.yaml, or as ++{first}=VALUE",
            file=origin(layers, missing[0]),
            key=first,
        )


def interpolate(content: dict[str, Any], layers: list[Layer], env: Mapping[str, str]) -> dict[str, Any]:
    """The same content with every ``${...}`` replaced by what it stands for.

    **Errors**: `ConfigError` for a key or an environment variable that is not there, or a form that is none.
    """
    if not any(isinstance(value, str) and "${" in value for _, value in walk(content)):
        return content
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    filled = _fill_env(content, (), layers, env)
    try:
        tree = OmegaConf.create(filled, flags={"allow_objects": True})
        resolved = OmegaConf.to_container(tree, resolve=True)
    except OmegaConfBaseException as error:
        key = str(error.full_key) if error.full_key else None
        file = origin(layers, path_of(key)) if key else None
        lost = _LOST.search(str(error))
        if lost is None:
            raise ConfigError(str(error).splitlines()[0], file=file, key=key) from None
        name = lost[1] or lost[2]
        raise ConfigError(
            f"refers to {name!r}, which is not set{suggestion(name, filled) if '.' not in name else ''}"
            f" (set it in env.yaml, or as ++{name}=VALUE)",
            file=file,
            key=key,
        ) from None
    assert isinstance(resolved, dict)
    return resolved  # type: ignore[return-value]  # its keys are those of content


def _fill_env(value: Any, path: Path, layers: list[Layer], env: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill_env(item, (*path, str(key)), layers, env) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_env(item, (*path, f"[{n}]"), layers, env) for n, item in enumerate(value)]
    if not isinstance(value, str) or _ENV not in value:
        return value
    text = value
    # From the right, so that a default that is itself an environment variable is filled in first.
    while (begin := text.rfind(_ENV)) >= 0:
        end = _closing(text, begin)
        if end is None:
            raise ConfigError(f"{value!r} is not closed", file=origin(layers, path), key=dotted(path))
        name, comma, default = text[begin + len(_ENV) : end].partition(",")
        name = name.strip()
        if not _VARIABLE.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not the name of an environment variable", file=origin(layers, path), key=dotted(path)
            )
        if name in env:
            found = env[name].replace("${", "\\${")
        elif comma:
            found = default.strip().strip("\"'")
        else:
            raise ConfigError(
                f"the environment variable {name!r} is not set", file=origin(layers, path), key=dotted(path)
            )
        if begin == 0 and end == len(text) - 1 and name not in env and found == "null":
            return None
        text = text[:begin] + found + text[end + 1 :]
    return text


def _closing(text: str, begin: int) -> int | None:
    depth = 0
    for at in range(begin, len(text)):
        if text.startswith("${", at):
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if not depth:
                return at
    return None
