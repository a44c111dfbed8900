"""``gym-trio list``: what there is to run."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, cast

import attrs
from cyclopts import Parameter

from .. import agents, environments, models
from ..config import ServerBlock, suggestion
from ..errors import ConfigError, MissingExtraError, UsageError
from ..gym import find_implementation
from ..servers import ResourcesServer, Server, tools_of
from ._console import print_json, print_line, print_table

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
        ``environments``, ``agents``, ``models``, or the name of one of them.
    name
        The one to describe.
    as_json
        Print JSON.
    """
    if kind not in KINDS and name is None:
        kind, name = _kind_of(kind), kind
    if kind not in KINDS:
        raise ConfigError(f"there is no kind {kind!r}{suggestion(kind, KINDS)}")
    if name is not None:
        _describe(kind, name, as_json)
        return
    entries = [_entry(kind, one) for one in sorted(KINDS[kind][1])]
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


def _kind_of(name: str) -> str:
    for kind, (_, known) in KINDS.items():
        if name in known:
            return kind
    everything = [*KINDS, *(one for _, known in KINDS.values() for one in known)]
    raise ConfigError(f"there is nothing called {name!r}{suggestion(name, everything)}")


def _class_of(kind: str, name: str) -> type[Server]:
    server_type, known = KINDS[kind]
    if name not in known:
        raise ConfigError(f"there is no {kind[:-1]} {name!r}{suggestion(name, known)}")
    return find_implementation(ServerBlock(name=name, server_type=server_type, implementation=name, settings={}))


def _entry(kind: str, name: str) -> dict[str, Any]:
    try:
        cls = _class_of(kind, name)
    except MissingExtraError as error:
        return {"name": name, "domain": "-", "description": f"needs gym_trio[{error.extra}]"}
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    if issubclass(cls, ResourcesServer):
        return {"name": name, "domain": cls.domain, "description": cls.description or summary}
    return {"name": name, "description": summary}


def _describe(kind: str, name: str, as_json: bool) -> None:
    cls = _class_of(kind, name)
    described: dict[str, Any] = {**_entry(kind, name), "kind": kind[:-1], "documentation": inspect.getdoc(cls) or ""}
    if cls.settings_type is not None:
        fields = attrs.fields(cast("type[Any]", cls.settings_type))
        described["settings"] = {field.name: _default(field) for field in fields}
    if issubclass(cls, ResourcesServer):
        described["tools"] = [one.definition for one in tools_of(cls).values()]
        described["agent"] = cls.default_agent
        described["rows"] = _row_count(cls)
    if as_json:
        print_json(described)
        return
    print_line(f"{name} ({kind[:-1]})\n")
    print_line(described["documentation"])
    if described.get("settings"):
        print_line()
        print_table("settings", ("key", "default"), [(k, str(v)) for k, v in described["settings"].items()])
    for one in described.get("tools", ()):
        print_line(f"\ntool {one['name']}: {one['description']}")
    if "rows" in described:
        print_line(f"\n{_rows_in_words(described['rows'])} played by {described['agent']}")
        print_line(f"run it: gym-trio eval run {name}")


def _row_count(cls: type[ResourcesServer]) -> int | str:
    """How many rows come with the environment, or why that cannot be said."""
    try:
        return sum(1 for _ in cls.rows({}))
    except UsageError as error:
        return str(error)


def _rows_in_words(rows: int | str) -> str:
    return f"{rows} rows," if isinstance(rows, int) else f"its rows cannot be made yet ({rows});"


def _default(field: attrs.Attribute[Any]) -> Any:
    if field.default is attrs.NOTHING:
        return "required"
    factory = getattr(field.default, "factory", None)
    return factory() if factory is not None else field.default
