"""Configuration files: found, read, and put in the order of their precedence."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ..errors import ConfigError
from ._interpolate import interpolate, referred_names
from ._layers import Layer

INCLUDE_KEY = "config_paths"
EXTRA_ROOTS = "NEMO_GYM_EXTRA_ROOTS"

_PACKAGE = pathlib.Path(__file__).parent.parent
_BUILT_IN = (_PACKAGE / "environments", _PACKAGE / "environments" / "configs", _PACKAGE)


@attrs.frozen
class Roots:
    """Where a relative path is looked for, first match wins: extra roots, ``cwd``, beside the file, built in."""

    extra: tuple[pathlib.Path, ...]
    cwd: pathlib.Path

    @classmethod
    def of(cls, env: Mapping[str, str], cwd: pathlib.Path | None) -> Roots:
        named = [part for part in env.get(EXTRA_ROOTS, "").split(os.pathsep) if part]
        return cls(tuple(pathlib.Path(part) for part in named), cwd or pathlib.Path.cwd())

    def candidates(self, path: str | os.PathLike[str], *, beside: pathlib.Path | None = None) -> list[pathlib.Path]:
        wanted = pathlib.Path(path).expanduser()
        if wanted.is_absolute():
            return [wanted]
        folders = [*self.extra, self.cwd, *([beside] if beside else []), *_BUILT_IN]
        return list(dict.fromkeys(folder / wanted for folder in folders))

    def find(self, path: str | os.PathLike[str], *, beside: pathlib.Path | None = None) -> pathlib.Path | None:
        return next((one for one in self.candidates(path, beside=beside) if one.is_file()), None)


def read_yaml(path: pathlib.Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; an empty file holds an empty one.

    **Errors**: `ConfigError` with the file, and the line where the YAML is broken.
    """
    import yaml
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        loaded = OmegaConf.load(path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"broken YAML: {error.problem or error.context}", file=f"{path}{line}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"broken YAML: {str(error).splitlines()[0]}", file=str(path)) from None
    except OmegaConfBaseException as error:
        where = str(error.full_key) if error.full_key else None
        raise ConfigError(str(error).splitlines()[0], file=str(path), key=where) from None
    except UnicodeDecodeError:
        raise ConfigError("is not UTF-8 text", file=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=str(path)) from None
    if not isinstance(loaded, DictConfig):
        raise ConfigError("must hold a mapping at its top level", file=str(path))
    content = OmegaConf.to_container(loaded, resolve=False, throw_on_missing=False)
    assert isinstance(content, dict)
    for key in content:
        if not isinstance(key, str):
            raise ConfigError(f"the top-level key {key!r} must be a text (put it in quotes)", file=str(path))
    return content  # type: ignore[return-value]  # every key was just checked


def included_paths(
    content: Mapping[str, Any], *, file: str | None, context: Mapping[str, Any], env: Mapping[str, str]
) -> list[str]:
    """What ``config_paths`` names; a ``${...}`` in it may refer to keys beside it and to ``context``."""
    named = content.get(INCLUDE_KEY)
    if named is None:
        return []
    beside = {**context, **content}
    referred = {name: beside[name] for name in referred_names(named) if name in beside}
    where = [Layer(file, {INCLUDE_KEY: named})]
    named = interpolate({**referred, INCLUDE_KEY: named}, where, env)[INCLUDE_KEY]
    if isinstance(named, str):
        return [named]
    if not isinstance(named, Sequence) or not all(isinstance(one, str) for one in named):
        raise ConfigError(f"must be a list of paths, not {named!r}", file=file, key=INCLUDE_KEY)
    return list(named)


class FileTree:
    """Reads files and what they include, each file once.

    ``layers`` is in merge order: a file after all that it includes, a later sibling after an earlier one.
    """

    def __init__(self, roots: Roots, *, context: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self.layers: list[Layer] = []
        self._roots = roots
        self._context = context
        self._env = env
        self._seen: set[pathlib.Path] = set()

    def add(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        named_in: str | None = None,
        beside: pathlib.Path | None = None,
    ) -> None:
        """Read ``paths`` (named together, so siblings) and everything below them."""
        # All siblings are claimed first: one that another includes as well keeps its own place.
        found = [self._find(path, named_in, beside) for path in paths]
        mine = [path for path in dict.fromkeys(found) if path.resolve() not in self._seen]
        self._seen.update(path.resolve() for path in mine)
        for path in mine:
            content = read_yaml(path)
            self.add_included(Layer(str(path), content), beside=path.parent)
            self.layers.append(Layer(str(path), content))

    def add_included(self, layer: Layer, *, beside: pathlib.Path | None = None) -> None:
        """Read what a layer names in ``config_paths``."""
        named = included_paths(layer.content, file=layer.name, context=self._context, env=self._env)
        self.add(named, named_in=layer.name, beside=beside)

    def _find(self, path: str | os.PathLike[str], named_in: str | None, beside: pathlib.Path | None) -> pathlib.Path:
        found = self._roots.find(path, beside=beside)
        if found is None:
            looked = ", ".join(str(one.parent) for one in self._roots.candidates(path, beside=beside))
            key = INCLUDE_KEY if named_in else None
            raise ConfigError(f"there is no file {str(path)!r}; looked in {looked}", file=named_in, key=key)
        return found
