"""``eval profile``: the reward of each task, from the dispatched rows and the output rows of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from ..errors import RowError
from ._aggregate import Aggregate, Aggregator
from ._rows import (
    AGENT_REF,
    ENVIRONMENT_SERVER,
    ROLLOUT_INDEX,
    TASK_INDEX,
    TaskIndex,
    rollout_of,
    source_of,
    task_of,
    task_order,
)

_Key = tuple[TaskIndex, int]


@attrs.frozen
class Profile:
    """What the three files of a profile hold, and how complete the run is.

    Where one task went to several agents, each has rows of its own, which then name their agent.
    """

    completion: dict[str, Any]
    _aggregate: Aggregate = attrs.field(repr=False)
    _by_agent: bool = False

    def reward_rows(self) -> Iterator[dict[str, Any]]:
        """The lines of ``…_reward_profiling.jsonl``, by task, made one at a time."""
        if not self._by_agent and len(self._aggregate.sources) == 1:
            yield from self._aggregate.sources[0].groups()
            return
        rows = [
            {**row, **({AGENT_REF: {"name": source.source.agent}} if self._by_agent else {})}
            for source in self._aggregate.sources
            for row in source.groups()
        ]
        yield from sorted(rows, key=lambda row: task_order(row[TASK_INDEX]))

    def agent_metrics(self) -> list[dict[str, Any]]:
        """The content of ``…_agent_metrics.json``."""
        return [
            {
                **{name: value for name, value in source.agent_metrics.items() if name != "num_repeats"},
                AGENT_REF: {"name": source.source.agent},
                **_server(source.source.environment_server),
            }
            for source in self._aggregate.sources
        ]

    def repeat_level_metrics(self) -> list[dict[str, Any]]:
        """The content of ``…_repeat_level_metrics.json``."""
        return [
            {AGENT_REF: {"name": source.source.agent}, **_server(source.source.environment_server), **row}
            for source in self._aggregate.sources
            for row in source.repeat_level_metrics
        ]


def _server(name: str | None) -> dict[str, str]:
    return {} if name is None else {ENVIRONMENT_SERVER: name}


def profile(
    inputs: Iterable[Mapping[str, Any]],
    rollouts: Iterable[Mapping[str, Any]],
    *,
    allow_partial: bool = False,
    default_agent: str = "agent",
    seed: int = 0,
) -> Profile:
    """Profile the output rows ``rollouts`` of the dispatched rows ``inputs``; one input of each task is kept.

    A masked rollout is out of the measure and not missing. **Errors**: `RowError` when two inputs are of one rollout,
    when an output row has no input, and, unless ``allow_partial``, when an input has no output row.
    """
    inputs_by_key: dict[_Key, str] = {}
    samples: dict[tuple[str, TaskIndex], dict[str, Any]] = {}
    aggregator = Aggregator(default_agent=default_agent, seed=seed)
    for position, row in enumerate(inputs, 1):
        key = _key(row, "input", position)
        if key in inputs_by_key:
            raise RowError(f"a second input for rollout {_name(key)}", source="inputs", line=position)
        agent = inputs_by_key[key] = source_of(row, default_agent).agent
        samples.setdefault((agent, key[0]), _sample(row))
        aggregator.expect(row)
    done: set[_Key] = set()
    for position, row in enumerate(rollouts, 1):
        key = _key(row, "rollouts", position)
        if key not in inputs_by_key:
            raise RowError(f"rollout {_name(key)} has no input", source="rollouts", line=position)
        done.add(key)
        # The agent is the one it was dispatched to, also where the output row does not name it.
        aggregator.add({**row, AGENT_REF: {"name": inputs_by_key[key]}})
    missing = inputs_by_key.keys() - done
    if missing and not allow_partial:
        first = ", ".join(_name(key) for key in sorted(missing, key=_order)[:10])
        raise RowError(f"{len(missing)} of {len(inputs_by_key)} inputs have no rollout, among them {first}")
    aggregate = aggregator.finish(lambda agent, task: samples[agent, task])
    by_agent = len(samples) > len({task for _, task in samples})
    return Profile(_completion(inputs_by_key, done), aggregate, by_agent)


def _key(row: Mapping[str, Any], source: str, position: int) -> _Key:
    task, rollout = task_of(row), rollout_of(row)
    if task is None or rollout is None:
        missing = TASK_INDEX if task is None else ROLLOUT_INDEX
        raise RowError(f"no {missing}; a profile needs the rows that a run wrote", source=source, line=position)
    return task, rollout


def _name(key: _Key) -> str:
    return f"{key[0]}:{key[1]}"


def _order(key: _Key) -> Any:
    return task_order(key[0]), key[1]


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in (TASK_INDEX, ROLLOUT_INDEX)}


def _completion(agents: Mapping[_Key, str], done: set[_Key]) -> dict[str, Any]:
    expected = Counter((task, agent) for (task, _), agent in agents.items())
    complete = Counter((key[0], agents[key]) for key in done)
    whole = sum(complete[group] == count for group, count in expected.items())
    none = sum(not complete[group] for group in expected)
    return {
        "expected_rollout_rows": len(agents),
        "completed_rollout_rows": len(done),
        "missing_rollout_rows": len(agents) - len(done),
        "reward_profile_completion_pct": 100.0 * len(done) / len(agents) if agents else 100.0,
        "total_input_rows": len(expected),
        "complete_input_rows": whole,
        "partial_input_rows": len(expected) - whole - none,
        "missing_input_rows": none,
    }
