"""The metric hooks of environment authors, for whoever aggregates."""

from __future__ import annotations

from collections.abc import Callable

from ..config import GymConfig
from ..gym import find_implementation
from ..metrics import Hooks, Source

__all__ = ["hooks_of"]


def hooks_of(config: GymConfig) -> Callable[[Source], Hooks | None]:
    """For each agent, the hooks of the environment that it plays, where its class defines some."""
    environments = {block.name: block for block in config.of_type("resources_servers")}
    played = {
        block.name: environments.get((block.settings.get("resources_server") or {}).get("name", ""))
        for block in config.of_type("responses_api_agents")
    }

    def find(source: Source) -> Hooks | None:
        block = played.get(source.agent or "")
        if block is None or "command" in block.settings:
            return None
        return Hooks.of(find_implementation(block)(name=block.name, config=block.settings))

    return find
