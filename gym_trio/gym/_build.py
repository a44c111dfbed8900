"""From a block of a configuration to a server object."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any, cast

import attrs

from .. import agents, environments, models
from ..config import ServerBlock, beside, structure, suggestion
from ..errors import ConfigError, MissingExtraError
from ..http import ServerClient
from ..servers import COMMON_KEYS, ENVIRONMENT_SERVERS, Server

__all__ = ["build_server", "find_implementation"]

BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "responses_api_agents": agents.IMPLEMENTATIONS,
    "responses_api_models": models.IMPLEMENTATIONS,
    "resources_servers": environments.IMPLEMENTATIONS,
    "environment_servers": ENVIRONMENT_SERVERS,
}


def find_implementation(block: ServerBlock) -> type[Server]:
    """The class that ``block`` asks for.

    An ``entrypoint`` of the form ``module:Class`` or ``path/to/file.py:Class`` names a class of the user's own; any
    other entrypoint (NeMo Gym's ``app.py``) is passed over, and the implementation is looked up among the built-in.

    **Errors**: `ConfigError` that names the block and the nearest implementation; `MissingExtraError`.
    """
    entrypoint = block.settings.get("entrypoint")
    if isinstance(entrypoint, str) and ":" in entrypoint:
        return load_class(entrypoint, key=f"{block.key}.entrypoint", file=block.file)
    known = BUILT_IN[block.server_type]
    if block.implementation not in known:
        raise ConfigError(
            f"there is no built-in {block.implementation!r}{suggestion(block.implementation, known)}"
            " (a class of your own is named by entrypoint: module:Class)",
            file=block.file,
            key=f"{block.name}.{block.server_type}",
        )
    return load_class(known[block.implementation], key=block.key, file=block.file)


def load_class(place: str, *, key: str | None = None, file: str | None = None) -> type[Server]:
    """The server class at ``module:Class`` or ``file.py:Class``.

    **Errors**: `ConfigError` when it cannot be imported, is not there, or is no server class.
    """
    module_name, _, class_name = place.rpartition(":")
    try:
        module = (
            _import_file(module_name, file) if module_name.endswith(".py") else importlib.import_module(module_name)
        )
    except MissingExtraError:
        raise
    except (ImportError, OSError, SyntaxError) as error:
        raise ConfigError(f"{place} cannot be imported: {error}", key=key, file=file) from error
    found = getattr(module, class_name, None)
    if found is None:
        raise ConfigError(
            f"{module_name} has no {class_name!r}{suggestion(class_name, vars(module))}", key=key, file=file
        )
    if not (isinstance(found, type) and issubclass(found, Server)):
        raise ConfigError(f"{place} is no server class (AgentServer, ResourcesServer, ModelServer)", key=key, file=file)
    return found


def _import_file(name: str, config_file: str | None) -> Any:
    path = beside(config_file, name).resolve()
    spec = importlib.util.spec_from_file_location(f"gym_trio_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # for what it imports from beside it; last, so that it hides no module
    sys.modules[spec.name] = module  # attrs and msgspec look a class's module up by name
    spec.loader.exec_module(module)
    return module


@attrs.frozen
class NoSettings:
    """The keys of a built-in server that has none of its own. A user's class without settings takes any."""


def build_server(block: ServerBlock, client: ServerClient | None) -> Server:
    """The server object of ``block``, its settings checked with their place in the configuration.

    **Errors**: `ConfigError` with file and key path.
    """
    cls = find_implementation(block)
    settings_type = cls.settings_type
    if settings_type is None and cls.__module__.startswith("gym_trio."):
        settings_type = NoSettings
    if settings_type is not None:
        structure(cast("type[Any]", settings_type), block.settings, key=block.key, file=block.file, ignore=COMMON_KEYS)
    try:
        server = cls(name=block.name, config=block.settings, client=client)
    except TypeError as error:
        raise _cannot_be_made(cls, f": {error}", block) from error
    if "name" not in vars(server):
        raise _cannot_be_made(cls, "", block)
    return server


def _cannot_be_made(cls: type[Server], why: str, block: ServerBlock) -> ConfigError:
    told = f"{cls.__name__} cannot be made with name=, config= and client={why}"
    if "__init__" in vars(cls):
        told += "; its __init__ must take **options and hand them to super().__init__(**options)"
    return ConfigError(told, file=block.file, key=block.key)
