"""``gym-trio list``: what there is to run."""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, cast

import attrs
from cyclopts import Parameter

from .. import agents, environments, models
from ..config import GymConfig, ServerBlock, suggestion
from ..errors import ConfigError, MissingExtraError, UsageError
from ..gym import find_implementation, load_class
from ..servers import ResourcesServer, Server, tools_of
from ._configure import rows_of
from ._console import print_json, print_line, print_table
from ._env_test import load_environment

__all__ = ["list_command"]

KINDS = {
    "environments": ("resources_servers", environments.IMPLEMENTATIONS),
    "agents": ("responses_api_agents", agents.IMPLEMENTATIONS),
    "models": ("responses_api_models", models.IMPLEMENTATIONS),
}


def list_command(
    kind: str = "environments",
    name: str | None = None,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """List environments, agents or models, or describe one.

    Parameters
    ----------
    kind
        ``environments``, ``agents``, ``models``, or what to describe: the name of one of them, an environment's
        folder, or a server class of your own as ``file.py:Class`` or ``module:Class``.
    name
        The one to describe, after its kind.
    as_json
        Print JSON.
    """
    if kind not in KINDS and name is None:
        _describe(_find(kind, tuple(KINDS)), as_json)
        return
    if kind not in KINDS:
        raise ConfigError(f"there is no kind {kind!r}{suggestion(kind, KINDS)}")
    if name is not None:
        _describe(_find(name, (kind,)), as_json)
        return
    entries = [_built_in_entry(kind, one) for one in sorted(KINDS[kind][1])]
    if as_json:
        print_json(entries)
        return
    columns = ("name", "domain", "description") if kind == "environments" else ("name", "description")
    for entry in entries:
        entry["description"] = entry["description"] or "-"
    _print_columns(columns, entries)


def _print_columns(columns: tuple[str, ...], entries: list[dict[str, Any]]) -> None:
    widths = [max(len(column), *(len(str(entry[column])) for entry in entries)) for column in columns]
    print_line("  ".join(column.ljust(width) for column, width in zip(columns, widths, strict=True)).rstrip())
    for entry in entries:
        texts = (str(entry[column]).ljust(width) for column, width in zip(columns, widths, strict=True))
        print_line("  ".join(texts).rstrip())


@attrs.frozen
class Found:
    """What ``name`` is; its rows are those of ``config``, where that is given."""

    name: str
    kind: str
    cls: type[Server]
    config: GymConfig | None = None

    def entry(self) -> dict[str, Any]:
        cls = self.cls
        summary = (inspect.getdoc(cls) or "").partition("\n")[0]
        if issubclass(cls, ResourcesServer):
            return {"name": self.name, "domain": cls.domain, "description": cls.description or summary}
        return {"name": self.name, "description": summary}

    def agent(self, cls: type[ResourcesServer]) -> str:
        agents = self.config.of_type("responses_api_agents") if self.config is not None else ()
        return agents[0].implementation if agents else cls.default_agent

    def row_count(self, cls: type[ResourcesServer]) -> int | str:
        """How many rows come with the environment, or why that cannot be said."""
        try:
            rows: Iterable[Mapping[str, Any]] = cls.rows({}) if self.config is None else rows_of(self.config)
            return sum(1 for _ in rows)
        except UsageError as error:
            return str(error)


def _find(name: str, kinds: tuple[str, ...]) -> Found:
    for kind in kinds:
        server_type, known = KINDS[kind]
        if name in known:
            block = ServerBlock(name=name, server_type=server_type, implementation=name, settings={})
            return Found(name, kind, find_implementation(block))
    if "environments" in kinds and pathlib.Path(name).is_dir():
        config, block = load_environment(name)
        return Found(name, "environments", find_implementation(block), config)
    if ":" in name:
        cls = load_class(name)
        own = next((kind for kind in kinds if KINDS[kind][0] == cls.server_type), None)
        if own is not None:
            return Found(name, own, cls)
    if len(kinds) == 1:
        raise ConfigError(f"there is no {kinds[0][:-1]} {name!r}{suggestion(name, KINDS[kinds[0]][1])}")
    everything = [*KINDS, *(one for _, known in KINDS.values() for one in known)]
    raise ConfigError(f"there is nothing called {name!r}{suggestion(name, everything)}")


def _built_in_entry(kind: str, name: str) -> dict[str, Any]:
    try:
        return _find(name, (kind,)).entry()
    except MissingExtraError as error:
        return {"name": name, "domain": "-", "description": f"needs gym_trio[{error.extra}]"}


def _describe(found: Found, as_json: bool) -> None:
    cls, kind = found.cls, found.kind[:-1]
    described: dict[str, Any] = {**found.entry(), "kind": kind, "documentation": inspect.getdoc(cls) or ""}
    if cls.settings_type is not None:
        fields = attrs.fields(cast("type[Any]", cls.settings_type))
        described["settings"] = {field.name: _default(field) for field in fields}
    if issubclass(cls, ResourcesServer):
        described["tools"] = [one.definition for one in tools_of(cls).values()]
        described["agent"] = found.agent(cls)
        described["rows"] = found.row_count(cls)
    if as_json:
        print_json(described)
        return
    print_line(f"{found.name} ({kind})\n")
    print_line(described["documentation"])
    if described.get("settings"):
        print_line()
        print_table("settings", ("key", "default"), [(k, str(v)) for k, v in described["settings"].items()])
    for one in described.get("tools", ()):
        print_line(f"\ntool {one['name']}: {one['description']}")
    if "rows" in described:
        print_line(f"\n{_rows_in_words(described['rows'])} played by {described['agent']}")
        if ":" not in found.name:
            print_line(f"run it: gym-trio eval run {found.name}")


def _rows_in_words(rows: int | str) -> str:
    return f"{rows} rows," if isinstance(rows, int) else f"its rows cannot be made yet ({rows});"


def _default(field: attrs.Attribute[Any]) -> Any:
    if field.default is attrs.NOTHING:
        return "required"
    factory = getattr(field.default, "factory", None)
    return factory() if factory is not None else field.default
