"""Which agents a row goes to, and how often to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ..config import suggestion
from ..errors import RowError, UsageError
from ._options import RunOptions

AGENT_REF = "agent_ref"
ENVIRONMENT_SERVER = "_ng_environment_server"
TASK_SOURCE = "task_source"
DEFAULT = "_default"


@attrs.frozen
class Route:
    """One agent for a row, and how many rollouts it makes of it."""

    agent: str | None  # None where neither the row nor the run says, and any agent may take it
    repeats: int
    environment: str | None = None  # the environment server in front of the agent, where rows go to one


class Router:
    """Decides for each row; remembers which names of the options it has met, so that the others can be named."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._met: set[str] = set()
        for name in _named_agents(options):
            self._check_known(name)
        for name in (*([options.environment] if options.environment else ()), *options.environment_routes.values()):
            if not options.environments:
                raise UsageError(f"there is no environment server {name!r}: the configuration has none")
            if name not in options.environments:
                raise UsageError(f"there is no environment server {name!r}{suggestion(name, options.environments)}")

    def routes(self, row: Mapping[str, Any]) -> list[Route]:
        """Where the row goes.

        **Errors**: `RowError` for a row that names an unknown agent, or none where one is needed.
        """
        options = self._options
        named = _agent_of(row)
        source = row.get(TASK_SOURCE)
        source = source if isinstance(source, str) else None
        own = [name for name in (named, source) if name is not None]
        self._met.update(own)
        agent = next((options.agent_map[name] for name in own if name in options.agent_map), None)
        if agent is None:
            agent = options.agent_map.get(DEFAULT)
        if agent is None:
            agent = named or (options.task_sources.get(source) if source else None) or options.agent
        basis = named or source
        environment = self._environment_of(row)
        if environment is not None:
            agent = options.environments.get(environment) or named
            return [Route(agent, self._repeats(agent, own), environment)]
        targets: Sequence[str | None] = [agent]
        if basis is not None and basis in options.fan_out:
            targets = list(options.fan_out[basis])
        for target in targets:
            self._check_target(target)
        return [Route(target, self._repeats(target, own)) for target in targets]

    def _environment_of(self, row: Mapping[str, Any]) -> str | None:
        """The environment server that the row goes to; None where rows go to agents."""
        options = self._options
        if not options.environment_routes:
            return options.environment
        task = row.get("_ng_task_id")
        taskset = task.get("taskset") if isinstance(task, Mapping) else None
        self._met.update([taskset] if isinstance(taskset, str) else [])
        found = options.environment_routes.get(str(taskset), options.environment)
        if found is None:
            near = suggestion(str(taskset), options.environment_routes)
            what = f"is of taskset {taskset!r}" if taskset is not None else "names no taskset (task_id.taskset)"
            raise RowError(f"{what}, for which environment_server_routes has no server{near}")
        return found

    def unmet(self) -> list[str]:
        """One sentence for each option that named what no row has."""
        told = []
        if isinstance(self._options.num_repeats, Mapping):
            told += self._not_met("num_repeats", self._options.num_repeats)
        told += self._not_met("agent_map", self._options.agent_map)
        told += self._not_met("fan_out", self._options.fan_out)
        told += self._not_met("environment_server_routes", self._options.environment_routes)
        return told

    def _not_met(self, option: str, names: Mapping[str, Any]) -> list[str]:
        lost = [name for name in names if name != DEFAULT and name not in self._met]
        return [f"{option} names {name!r}, which no row has{suggestion(name, self._met)}" for name in lost]

    def _check_known(self, name: str) -> None:
        if self._options.agents and name not in self._options.agents:
            raise UsageError(f"there is no agent {name!r}{suggestion(name, self._options.agents)}")

    def _check_target(self, target: str | None) -> None:
        agents = self._options.agents
        if target is None:
            if agents:
                raise RowError(f"names no agent, and there are several ({', '.join(sorted(agents))}); give --agent")
        elif agents and target not in agents:
            raise RowError(f"names an unknown agent {target!r}{suggestion(target, agents)}")

    def _repeats(self, target: str | None, own: list[str]) -> int:
        counts = self._options.num_repeats
        if isinstance(counts, int):
            return counts
        candidates = [name for name in (target, *own) if name is not None]
        self._met.update(candidates)
        for name in (*candidates, DEFAULT):
            if name in counts:
                return counts[name]
        names = " / ".join(dict.fromkeys(candidates))
        near = suggestion(candidates[0], counts) if candidates else ""
        raise RowError(f"num_repeats says nothing of {names or 'it'}, and has no '_default'{near}")


def _agent_of(row: Mapping[str, Any]) -> str | None:
    reference = row.get(AGENT_REF)
    if reference is None:
        return None
    name = reference.get("name") if isinstance(reference, Mapping) else reference
    if not isinstance(name, str) or not name:
        raise RowError(f"{AGENT_REF} must name an agent, not {reference!r}")
    return name


def _named_agents(options: RunOptions) -> set[str]:
    """Every agent that the options themselves send rows to."""
    named = {*options.agent_map.values(), *(agent for agents in options.fan_out.values() for agent in agents)}
    return named | ({options.agent} if options.agent else set())
