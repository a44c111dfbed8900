"""``eval profile``: the reward of each task, from the dispatched rows and the output rows of a run."""

from __future__ import annotations

import heapq
import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from ..errors import RowError
from ._aggregate import Aggregate, Aggregator, SourceAggregate
from ._rollout_keys import RolloutKey, RolloutKeys
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
        sources = (self._rows_of(source) for source in self._aggregate.sources)
        # Each source has its rows by task; of one task at several agents, the agents' order stands.
        yield from heapq.merge(*sources, key=lambda row: task_order(row[TASK_INDEX]))

    def _rows_of(self, source: SourceAggregate) -> Iterator[dict[str, Any]]:
        for row in source.groups():
            yield {**row, AGENT_REF: {"name": source.source.agent}} if self._by_agent else row

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
    input_at: Callable[[int], Mapping[str, Any]] | None = None,
    allow_partial: bool = False,
    default_agent: str = "agent",
    seed: int = 0,
) -> Profile:
    """Profile the output rows ``rollouts`` of the dispatched rows ``inputs``.

    One input of each task is its sample. ``input_at(position)`` gives the input that came at a position, counted from
    0, when its task's row is made, so that inputs need not be kept; without it one of each task is.

    A masked rollout is out of the measure and not missing. **Errors**: `RowError` when two inputs are of one rollout,
    when an output row has no input, and, unless ``allow_partial``, when an input has no output row.
    """
    dispatched = _Dispatched(input_at)
    aggregator = Aggregator(default_agent=default_agent, seed=seed)
    for position, row in enumerate(inputs, 1):
        key = _key(row, "input", position)
        if key in dispatched.keys:
            raise RowError(f"a second input for rollout {_name(key)}", source="inputs", line=position)
        dispatched.add(key, source_of(row, default_agent).agent, row)
        aggregator.expect(row)
    for position, row in enumerate(rollouts, 1):
        key = _key(row, "rollouts", position)
        at = dispatched.keys.find(*key)
        if at is None:
            raise RowError(f"rollout {_name(key)} has no input", source="rollouts", line=position)
        dispatched.done[at] = True
        # The agent is the one it was dispatched to, also where the output row does not name it.
        aggregator.add({**row, AGENT_REF: {"name": dispatched.agent(at)}})
    if not allow_partial:
        dispatched.refuse_missing()
    return Profile(dispatched.completion(), aggregator.finish(dispatched.sample), dispatched.shares_tasks)


class _Dispatched:
    """The inputs: which rollout went to which agent, which came back, and what stands for each task."""

    def __init__(self, input_at: Callable[[int], Mapping[str, Any]] | None) -> None:
        self.keys = RolloutKeys()
        self.done = bytearray()
        self.shares_tasks = False  # whether a task went to more than one agent
        self._agents: dict[str, int] = {}
        self._names: list[str] = []
        self._agent_of: array[int] = array("I")
        self._tasks = RolloutKeys()  # (task, agent), each where its first input is in the two below
        self._firsts: array[int] = array("I")
        self._samples: list[dict[str, Any]] = []
        self._input_at = input_at

    def add(self, key: RolloutKey, agent: str, row: Mapping[str, Any]) -> None:
        number = self._agents.get(agent)
        if number is None:
            number = self._agents[agent] = len(self._names)
            self._names.append(agent)
        at = self.keys.add(*key)
        self.done.append(False)
        self._agent_of.append(number)
        task = key[0]
        if self._tasks.find(task, number) is None:
            others = range(len(self._names)) if len(self._names) > 1 else ()
            self.shares_tasks = self.shares_tasks or any(self._tasks.find(task, n) is not None for n in others)
            self._tasks.add(task, number)
            self._firsts.append(at)
            if self._input_at is None:
                self._samples.append(_sample(row))

    def agent(self, at: int) -> str:
        return self._names[self._agent_of[at]]

    def sample(self, agent: str, task: TaskIndex) -> dict[str, Any]:
        at = self._tasks.find(task, self._agents[agent])
        assert at is not None  # a task has a row because an input of it was dispatched to this agent
        return self._samples[at] if self._input_at is None else _sample(self._input_at(self._firsts[at]))

    def refuse_missing(self) -> None:
        missing = self.done.count(False)
        if missing:
            lost = self.keys.in_order(at for at, done in enumerate(self.done) if not done)
            first = ", ".join(_name(self.keys[at]) for at in itertools.islice(lost, 10))
            raise RowError(f"{missing} of {len(self.keys)} inputs have no rollout, among them {first}")

    def completion(self) -> dict[str, Any]:
        expected, done = len(self.keys), self.done.count(True)
        whole = none = 0
        for group in self.keys.by_task(self.keys.in_order(range(expected))):
            owed = Counter(self._agent_of[at] for at in group)
            came = Counter(self._agent_of[at] for at in group if self.done[at])
            whole += sum(came[agent] == count for agent, count in owed.items())
            none += sum(not came[agent] for agent in owed)
        return {
            "expected_rollout_rows": expected,
            "completed_rollout_rows": done,
            "missing_rollout_rows": expected - done,
            "reward_profile_completion_pct": 100.0 * done / expected if expected else 100.0,
            "total_input_rows": len(self._tasks),
            "complete_input_rows": whole,
            "partial_input_rows": len(self._tasks) - whole - none,
            "missing_input_rows": none,
        }


def _key(row: Mapping[str, Any], source: str, position: int) -> RolloutKey:
    task, rollout = task_of(row), rollout_of(row)
    if task is None or rollout is None:
        missing = TASK_INDEX if task is None else ROLLOUT_INDEX
        raise RowError(f"no {missing}; a profile needs the rows that a run wrote", source=source, line=position)
    return task, rollout


def _name(key: RolloutKey) -> str:
    return f"{key[0]}:{key[1]}"


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in (TASK_INDEX, ROLLOUT_INDEX)}
