"""`Aggregator`: the content of ``aggregate_metrics.json`` from rows that pass by once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from ._accumulate import SourceRows
from ._describe import across_repeats, describe_columns, group_row, repeat_rows
from ._extras import duplicate_rows, incomplete_repeats, intervals, pass_metrics, too_few_repeats, without_reward
from ._hooks import Computed, Hooks, run_compute_metrics, run_get_key_metrics
from ._ledger import Coverage, Ledger
from ._perf import perf_summary
from ._rows import AGENT_REF, ENVIRONMENT_SERVER, RowSummary, Source, TaskIndex, summarize

FindHooks = Callable[[Source], Hooks | None]


@attrs.frozen
class SourceAggregate:
    """One entry of the file.

    ``agent_metrics``, ``key_metrics``, ``repeat_level_metrics``, ``perf_summary`` and the rows of `groups` are the
    contract's; ``intervals``, ``pass_metrics`` and ``warnings`` are gym_trio's own keys.
    """

    source: Source
    agent_metrics: dict[str, Any]
    key_metrics: dict[str, Any]
    repeat_level_metrics: list[dict[str, Any]]
    perf_summary: dict[str, Any] | None
    intervals: dict[str, Any]
    pass_metrics: dict[str, Any]
    warnings: list[dict[str, Any]]
    _make_groups: Callable[[], Iterator[dict[str, Any]]] = attrs.field(repr=False, eq=False)

    def groups(self) -> Iterator[dict[str, Any]]:
        """The rows of ``group_level_metrics``, made one at a time."""
        return self._make_groups()

    def metrics(self) -> dict[str, Any]:
        """The entry without what identifies it: the answer of ``/aggregate_metrics``."""
        return {
            "agent_metrics": self.agent_metrics,
            "key_metrics": self.key_metrics,
            "group_level_metrics": list(self.groups()),
            "repeat_level_metrics": self.repeat_level_metrics,
            **({"perf_summary": self.perf_summary} if self.perf_summary is not None else {}),
            "intervals": self.intervals,
            "pass_metrics": self.pass_metrics,
            "warnings": self.warnings,
        }

    def to_json(self) -> dict[str, Any]:
        """The whole entry."""
        server = self.source.environment_server
        return {
            AGENT_REF: {"name": self.source.agent},
            **({ENVIRONMENT_SERVER: server} if server is not None else {}),
            **self.metrics(),
        }


@attrs.frozen
class Aggregate:
    """The entries, by agent and environment server, and what they cover."""

    sources: tuple[SourceAggregate, ...]
    coverage: Coverage

    def to_json(self) -> list[dict[str, Any]]:
        """The content of ``aggregate_metrics.json``."""
        return [source.to_json() for source in self.sources]


class Aggregator:
    """Takes output rows, failure rows and dispatched rows in any order and any mixture; `finish` makes the aggregate.

    ``hooks`` finds an author's hooks for a source when its first row comes; the rows of a source with a
    ``compute_metrics`` are kept without their conversations, all others leave numbers only. A row that names no agent
    is ``default_agent``'s. ``count_failure_classes_as_zero`` and ``count_missing_rollouts_as_zero`` add scores of zero
    to the metrics and nowhere else. ``seed`` is that of the resampled intervals.

    **Errors**: `RowError` for a row that is no object, or whose index is none.
    """

    def __init__(
        self,
        *,
        hooks: FindHooks | None = None,
        default_agent: str = "agent",
        count_failure_classes_as_zero: Iterable[str] = (),
        count_missing_rollouts_as_zero: bool = False,
        seed: int = 0,
    ) -> None:
        self._find_hooks = hooks
        self._default_agent = default_agent
        self._ledger = Ledger(
            default_agent,
            counted_classes=frozenset(count_failure_classes_as_zero),
            count_missing=count_missing_rollouts_as_zero,
            whole_rows=lambda source: self._hooks_of(source).compute_metrics is not None,
        )
        self._seed = seed
        self._rows: dict[Source, SourceRows] = {}
        self._hooks: dict[Source, Hooks] = {}
        self._counted_failures = self._imputed = 0

    def __repr__(self) -> str:
        return f"<Aggregator sources={len(self._rows)} rows={sum(map(len, self._rows.values()))}>"

    def add(self, row: Mapping[str, Any]) -> None:
        """An output row of a rollout."""
        summary = summarize(row, default_agent=self._default_agent)
        self._rows_of(summary.source).add(summary, row)

    def add_failure(self, row: Mapping[str, Any]) -> None:
        """A failure row; it counts only where the rollout has no output row."""
        self._ledger.fail(row)

    def expect(self, row: Mapping[str, Any]) -> None:
        """A dispatched (materialized) row."""
        self._ledger.expect(row)

    def _rows_of(self, source: Source) -> SourceRows:
        rows = self._rows.get(source)
        if rows is None:
            keep_rows = self._hooks_of(source).compute_metrics is not None
            rows = self._rows[source] = SourceRows(keep_rows=keep_rows)
        return rows

    def _hooks_of(self, source: Source) -> Hooks:
        hooks = self._hooks.get(source)
        if hooks is None:
            hooks = self._hooks[source] = (self._find_hooks(source) if self._find_hooks else None) or Hooks()
        return hooks

    def finish(self, sample_of: Callable[[str, TaskIndex], Mapping[str, Any]] | None = None) -> Aggregate:
        """Add what the options count as zero, and make the aggregate.

        ``sample_of(agent, task)`` gives what a task's row shows as its ``sample``; by default the agent's name.
        Nothing may be added afterwards.
        """
        self._counted_failures += self._add_zeros(self._ledger.counted(self._seen))
        self._imputed += self._add_zeros(self._ledger.imputed(self._seen))
        sources = sorted(self._rows, key=lambda source: (source.agent, source.environment_server or ""))
        aggregates = tuple(self._aggregate(source, sample_of or _bare_sample) for source in sources)
        coverage = self._ledger.coverage(
            self._seen,
            scored=sum(map(len, self._rows.values())),
            masked=sum(sum(rows.masked) for rows in self._rows.values()),
            counted_failures=self._counted_failures,
            imputed=self._imputed,
        )
        return Aggregate(aggregates, coverage)

    def _seen(self, agent: str, task: TaskIndex, rollout: int) -> bool:
        return any(source.agent == agent and (task, rollout) in rows for source, rows in self._rows.items())

    def _add_zeros(self, zeros: Iterable[tuple[RowSummary, Mapping[str, Any]]]) -> int:
        # All are found before the first is added, so that one zero does not change what another is judged by.
        found = list(zeros)
        for summary, row in found:
            source = self._home(summary.source)
            rows = self._rows_of(source)
            known = {*rows.numbers.names(), "reward"}
            numbers = {name: number for name, number in summary.numbers.items() if name in known}
            rows.add(attrs.evolve(summary, source=source, numbers=numbers), row)
        return len(found)

    def _home(self, source: Source) -> Source:
        """Where a row without an output of its own belongs: with the agent's other rows, if they are in one place."""
        if source in self._rows or source.environment_server is not None:
            return source
        same = [other for other in self._rows if other.agent == source.agent]
        return same[0] if len(same) == 1 else source

    def _aggregate(self, source: Source, sample_of: Callable[[str, TaskIndex], Mapping[str, Any]]) -> SourceAggregate:
        rows, hooks = self._rows[source], self._hooks_of(source)
        positions = rows.measured()
        coverage = _mask_coverage(rows, positions)
        warnings = duplicate_rows(rows)
        perf = perf_summary(rows.perf, with_perf=sum(rows.with_perf), rollouts=len(rows))
        if not positions:
            return SourceAggregate(source, coverage, dict(coverage), [], perf, {}, {}, warnings, lambda: iter(()))
        warnings += without_reward(rows, positions)
        groups = rows.by_task(positions)
        repeats = repeat_rows(rows, positions)
        computed = run_compute_metrics(hooks, rows.rows_by_task(groups), warnings) if rows.keep_rows else Computed()
        agent = describe_columns(rows, positions) | across_repeats(repeats) | coverage | computed.agent
        agent["num_repeats"] = rows.keys.repeats()
        means = {name: value for name, value in agent.items() if name.startswith("mean/")}
        key = run_get_key_metrics(hooks, agent, means, warnings) | coverage
        warnings += incomplete_repeats(repeats) + too_few_repeats(rows, groups)

        def make_groups() -> Iterator[dict[str, Any]]:
            masked = rows.masked_by_task()
            for group in groups:
                task = rows.task_of(group)
                expected = self._expected(source, task, len(group), masked[task])
                row = group_row(rows, task, group, expected=expected, sample=sample_of(source.agent, task))
                yield row | computed.tasks.get(task, {})

        found = intervals(rows, groups, self._seed)
        return SourceAggregate(
            source, agent, key, repeats, perf, found, pass_metrics(rows, groups), warnings, make_groups
        )

    def _expected(self, source: Source, task: TaskIndex, measured: int, masked: int) -> int:
        """How many measured rollouts the task owes; a masked one was not missing, it is out of the measure."""
        owed = self._ledger.expected_of(source.agent, task)
        return max(measured, (owed or 0) - masked)


def _bare_sample(agent: str, task: TaskIndex) -> Mapping[str, Any]:
    return {AGENT_REF: {"name": agent}}


def _mask_coverage(rows: SourceRows, measured: array[int]) -> dict[str, int]:
    masked = sum(rows.masked)
    if not masked:
        return {}
    measured_tasks = len(rows.by_task(measured))
    return {
        "coverage/measured_rollouts": len(rows) - masked,
        "coverage/masked_rollouts": masked,
        "coverage/measured_tasks": measured_tasks,
        "coverage/fully_masked_tasks": rows.tasks() - measured_tasks,
    }


def aggregate(rows: Iterable[Mapping[str, Any]], *, default_agent: str = "agent", seed: int = 0) -> Aggregate:
    """`Aggregator` over output rows alone."""
    aggregator = Aggregator(default_agent=default_agent, seed=seed)
    for row in rows:
        aggregator.add(row)
    return aggregator.finish()


def aggregate_responses(rows: Iterable[Mapping[str, Any]], hooks: Hooks | None = None) -> dict[str, Any]:
    """The answer of ``/aggregate_metrics``: all ``rows`` as those of one agent, whatever they name."""
    aggregator = Aggregator(hooks=lambda source: hooks)
    for row in rows:
        aggregator.add({name: value for name, value in row.items() if name not in (AGENT_REF, ENVIRONMENT_SERVER)})
    found = aggregator.finish().sources
    if found:
        return found[0].metrics()
    return {"agent_metrics": {}, "key_metrics": {}, "group_level_metrics": [], "repeat_level_metrics": []}
