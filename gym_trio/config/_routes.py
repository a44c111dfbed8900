"""Rows that go through environment servers: each must be one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import ConfigError
from ._layers import Layer, Path, dotted, origin
from ._records import ServerBlock
from ._run import RunSettings

__all__ = ["check_routes", "route_problem"]

AGENTS, ENVIRONMENTS = "responses_api_agents", "environment_servers"


def check_routes(run: RunSettings, blocks: tuple[ServerBlock, ...], layers: list[Layer]) -> None:
    """**Errors**: `ConfigError` for rows that are sent through a server that is none for episodes.

    A name that no block has may be that of a server elsewhere, and is left to whoever knows the servers.
    """
    given: list[tuple[Path, str | None]] = [(("environment_server_name",), run.environment_server_name)]
    given += [(("environment_server_routes", name), server) for name, server in run.environment_server_routes.items()]
    for path, name in given:
        block = next((block for block in blocks if block.name == name), None)
        if block is not None and block.server_type != ENVIRONMENTS:
            raise ConfigError(route_problem(block, blocks), file=origin(layers, path), key=dotted(path))


def route_problem(block: ServerBlock, blocks: Iterable[ServerBlock]) -> str:
    """Why rows cannot be sent through ``block`` as through an environment server, and what to write instead."""
    blocks = tuple(blocks)
    told = f"{block.name!r} is one of {block.server_type}, and rows go through one of {ENVIRONMENTS} only"
    agents = [
        other.name
        for other in blocks
        if other.server_type == AGENTS and (other is block or _names(other, "resources_server", block.name))
    ]
    fronts = [other for other in blocks if other.server_type == ENVIRONMENTS]
    near = [front.name for front in fronts if any(_names(front, "agent_server", agent) for agent in agents)]
    if near or fronts:
        return f"{told}: write {' or '.join(map(repr, near or [front.name for front in fronts]))}"
    agent = agents[0] if agents else "AGENT"
    example = f"{{legacy_agent: {{agent_server: {{type: {AGENTS}, name: {agent}}}}}}}"
    added = f"{block.name}_env: {{{ENVIRONMENTS}: {example}}}"
    return f"{told}, of which the configuration has none: add {added} and name that"


def _names(block: ServerBlock, key: str, name: str) -> bool:
    reference = block.settings.get(key)
    return isinstance(reference, Mapping) and reference.get("name") == name
