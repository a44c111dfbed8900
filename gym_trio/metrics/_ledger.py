"""`Ledger`: which rollouts a run owed and which failed, and what of it counts as a score of zero.

A failure is never a reward of zero unless the caller names its class; a rollout that left no row at all is not
either, unless the caller says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from ._rows import (
    FAILURE_CLASS,
    MASK,
    RowSummary,
    Source,
    TaskIndex,
    attempt_of,
    columns_of,
    rollout_of,
    source_of,
    task_of,
)

_Key = tuple[str, TaskIndex, int]
_DIAGNOSTICS = frozenset({"failure_kind", "failure_reason", "elapsed_seconds"})


@attrs.frozen
class Coverage:
    """How much of a run its score covers.

    ``scored`` rows are in the metrics' input; among them are ``masked`` ones, failures that were counted
    (``counted_failures``) and, where missing rollouts are counted, ``imputed`` zeros (None where they are not).
    ``failed`` counts by class the rollouts whose last word is a failure that is not counted; ``missing`` left no row.
    """

    expected: int
    scored: int
    masked: int
    counted_failures: int
    imputed: int | None
    failed: dict[str, int]
    missing: int

    @property
    def line(self) -> str:
        """The coverage as one line for a person."""
        classes = ", ".join(f"{count} {name}" for name, count in sorted(self.failed.items()))
        zeros = f" (of these {self.counted_failures} failed" if self.counted_failures else ""
        zeros += f"{' and' if zeros else ' (of these'} {self.imputed} missing" if self.imputed else ""
        return (
            f"expected {self.expected}, scored {self.scored}{f'{zeros}, counted as zero)' if zeros else ''}, "
            f"failed {sum(self.failed.values())}{f' ({classes})' if classes else ''}, "
            f"masked {self.masked}, missing {self.missing}"
        )

    def exported(self) -> dict[str, int]:
        """The numbers for exporters; here what is missing is all that is not scored."""
        found = {"expected": self.expected, "scored": self.scored, "missing": self.expected - self.scored}
        if self.imputed is not None:
            found["imputed"] = self.imputed
        return {f"coverage/{name}": count for name, count in found.items()}


@attrs.frozen
class _Failure:
    attempt: int
    failure_class: str
    source: Source
    row: dict[str, Any] | None


@attrs.define
class Ledger:
    """Counted classes and missing rollouts keep the fields of their task, so that they fall into its subsets."""

    default_agent: str
    counted_classes: frozenset[str] = frozenset()
    count_missing: bool = False
    _owed: defaultdict[str, dict[TaskIndex, set[int]]] = attrs.field(factory=lambda: defaultdict(dict))
    _failures: dict[_Key, _Failure] = attrs.field(factory=dict)
    _task_rows: dict[tuple[str, TaskIndex], dict[str, Any]] = attrs.field(factory=dict)
    _servers: dict[str, Source] = attrs.field(factory=dict)

    def expect(self, row: Mapping[str, Any]) -> None:
        """Note a dispatched row."""
        source, task, rollout = self._identity(row)
        self._owed[source.agent].setdefault(task, set()).add(rollout)
        self._servers.setdefault(source.agent, source)
        if self.counted_classes or self.count_missing:
            self._task_rows.setdefault((source.agent, task), _fields(row))

    def fail(self, row: Mapping[str, Any]) -> None:
        """Note a failed attempt; of several for one rollout the latest stands."""
        source, task, rollout = self._identity(row)
        key = (source.agent, task, rollout)
        attempt = attempt_of(row)
        known = self._failures.get(key)
        if known is None or attempt >= known.attempt:
            name = str(row.get(FAILURE_CLASS) or "unknown")
            kept = _fields(row) if name in self.counted_classes else None
            self._failures[key] = _Failure(attempt, name, source, kept)

    def _identity(self, row: Mapping[str, Any]) -> tuple[Source, TaskIndex, int]:
        return source_of(row, self.default_agent), task_of(row) or 0, rollout_of(row) or 0

    def expected_of(self, agent: str, task: TaskIndex) -> int | None:
        """How many rollouts of the task were dispatched; None where nothing is known of the agent."""
        owed = self._owed.get(agent)
        return None if owed is None else len(owed.get(task, ()))

    def agents(self) -> Iterable[str]:
        """The agents that rollouts were dispatched to."""
        return tuple(self._owed)

    def counted(self, seen: Callable[[str, TaskIndex, int], bool]) -> Iterator[tuple[RowSummary, dict[str, Any]]]:
        """The failures that the caller counts, as rows of the metrics' input."""
        for (agent, task, rollout), failure in self._failures.items():
            if failure.row is not None and not seen(agent, task, rollout):
                fields = self._task_rows.get((agent, task), {}) | failure.row
                yield self._zero(failure.source, task, rollout, fields)

    def imputed(self, seen: Callable[[str, TaskIndex, int], bool]) -> Iterator[tuple[RowSummary, dict[str, Any]]]:
        """The rollouts that left no row, as zeros, where the caller counts them."""
        if self.count_missing:
            for agent, task, rollout in self._lost(seen):
                fields = self._task_rows[agent, task]
                yield self._zero(self._servers[agent], task, rollout, {**fields, "reward": 0.0})

    def _zero(
        self, source: Source, task: TaskIndex, rollout: int, fields: dict[str, Any]
    ) -> tuple[RowSummary, dict[str, Any]]:
        row = {"reward": 0.0, **fields, MASK: False}
        numbers = columns_of(row)
        numbers.setdefault("reward", 0.0)
        return RowSummary(task, rollout, 0, source, False, numbers, None), row

    def _lost(self, seen: Callable[[str, TaskIndex, int], bool]) -> Iterator[_Key]:
        for agent, tasks in self._owed.items():
            for task, rollouts in tasks.items():
                for rollout in sorted(rollouts):
                    if not seen(agent, task, rollout) and (agent, task, rollout) not in self._failures:
                        yield agent, task, rollout

    def coverage(
        self,
        seen: Callable[[str, TaskIndex, int], bool],
        *,
        scored: int,
        masked: int,
        counted_failures: int,
        imputed: int,
    ) -> Coverage:
        """The account; ``seen`` says whether a rollout has a row in the metrics' input."""
        failed = Counter(failure.failure_class for key, failure in self._failures.items() if not seen(*key))
        missing = sum(1 for _ in self._lost(seen))
        return Coverage(
            # Every rollout that is known of is scored, failed or missing, and only one of these.
            expected=scored + failed.total() + missing,
            scored=scored,
            masked=masked,
            counted_failures=counted_failures,
            imputed=imputed if self.count_missing else None,
            failed=dict(failed),
            missing=missing,
        )


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that are not its conversation, its identity or a diagnosis."""
    return {
        name: value
        for name, value in row.items()
        if name[:1] != "_" and name not in _DIAGNOSTICS and name not in ("response", "responses_create_params")
    }
