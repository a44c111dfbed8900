"""`Ledger`: which rollouts a run owed and which failed, and what of it counts as a score of zero.

A failure is never a reward of zero unless the caller names its class; a rollout that left no row at all is not
either, unless the caller says so.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from ._rollout_keys import RolloutKey, RolloutKeys
from ._rows import (
    FAILURE_CLASS,
    MASK,
    RowSummary,
    Source,
    TaskIndex,
    attempt_of,
    columns_of,
    finite,
    rollout_of,
    source_of,
    task_of,
)
from ._table import NumberTable

Seen = Callable[[str, TaskIndex, int], bool]

_BITS = 64
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


class _Fields:
    """What a score of zero takes over from the rows of a run, by position: their numbers, or where a hook asks for
    them, all of their fields."""

    def __init__(self) -> None:
        self._numbers = NumberTable()
        self._whole: dict[int, dict[str, Any]] = {}

    def put(self, position: int, row: Mapping[str, Any] | None, *, whole: bool) -> None:
        fields = {} if row is None else _fields(row)
        numbers = {} if whole else finite(fields)
        if position < len(self._numbers):
            self._numbers.replace(position, numbers)
        else:
            self._numbers.append(numbers)
        self._whole.pop(position, None)
        if whole:
            self._whole[position] = fields

    def of(self, position: int) -> dict[str, Any]:
        whole = self._whole.get(position)
        return dict(self._numbers.row(position)) if whole is None else whole


class _Owed:
    """The rollouts that were dispatched to one agent: of each task, its repeats as bits, 64 to a number."""

    def __init__(self, source: Source, *, keep_fields: bool, whole: bool) -> None:
        self.source = source
        self._chunks = RolloutKeys()
        self._bits: array[int] = array("Q")
        self._counts: array[int] = array("I")  # of a task, where its first chunk stands
        self._fields = _Fields() if keep_fields else None
        self._whole = whole

    def add(self, task: TaskIndex, rollout: int, row: Mapping[str, Any]) -> None:
        home = self._chunk(task, 0, row)
        at = home if 0 <= rollout < _BITS else self._chunk(task, rollout // _BITS, None)
        bit = 1 << rollout % _BITS
        if not self._bits[at] & bit:
            self._bits[at] |= bit
            self._counts[home] += 1

    def _chunk(self, task: TaskIndex, chunk: int, row: Mapping[str, Any] | None) -> int:
        at = self._chunks.find(task, chunk)
        if at is None:
            at = self._chunks.add(task, chunk)
            self._bits.append(0)
            self._counts.append(0)
            if self._fields is not None:
                self._fields.put(at, row, whole=self._whole and row is not None)
        return at

    def count(self, task: TaskIndex) -> int:
        at = self._chunks.find(task, 0)
        return 0 if at is None else self._counts[at]

    def fields(self, task: TaskIndex) -> dict[str, Any]:
        at = self._chunks.find(task, 0)
        return {} if at is None or self._fields is None else self._fields.of(at)

    def __iter__(self) -> Iterator[tuple[TaskIndex, int]]:
        for (task, chunk), bits in zip(self._chunks, self._bits, strict=True):
            for bit in range(bits.bit_length()):
                if bits >> bit & 1:
                    yield task, chunk * _BITS + bit


class _Failures:
    """The rollouts of one agent that failed, each by its latest attempt."""

    def __init__(self, *, counted: frozenset[str], whole: bool) -> None:
        self.keys = RolloutKeys()
        self._names: list[str] = []
        self._sources: list[Source] = []
        self._of_name: array[int] = array("I")
        self._of_source: array[int] = array("I")
        self._attempts: dict[int, int] = {}  # where it is not the first
        self._counted = counted
        self._whole = whole
        self._fields = _Fields() if counted else None

    def add(self, key: RolloutKey, row: Mapping[str, Any], source: Source) -> None:
        attempt = attempt_of(row)
        at = self.keys.find(*key)
        if at is None:
            at = self.keys.add(*key)
            self._of_name.append(0)
            self._of_source.append(0)
        elif attempt < self._attempts.get(at, 0):
            return
        if attempt:
            self._attempts[at] = attempt
        name = str(row.get(FAILURE_CLASS) or "unknown")
        self._of_name[at] = _number_of(name, self._names)
        self._of_source[at] = _number_of(source, self._sources)
        if self._fields is not None:
            is_counted = name in self._counted
            self._fields.put(at, row if is_counted else None, whole=self._whole and is_counted)

    def name(self, at: int) -> str:
        return self._names[self._of_name[at]]

    def counted(self) -> Iterator[tuple[RolloutKey, Source, dict[str, Any]]]:
        """Those whose class counts, with their fields."""
        for at, key in enumerate(self.keys):
            if self._fields is not None and self.name(at) in self._counted:
                yield key, self._sources[self._of_source[at]], self._fields.of(at)


def _number_of(value: Any, values: list[Any]) -> int:
    if value not in values:
        values.append(value)
    return values.index(value)


@attrs.define
class Ledger:
    """Counted classes and missing rollouts keep the fields of their task, so that they fall into its subsets.

    ``whole_rows(source)`` says whether a hook will read these fields; else their numbers are enough.
    """

    default_agent: str
    counted_classes: frozenset[str] = frozenset()
    count_missing: bool = False
    whole_rows: Callable[[Source], bool] = lambda source: False
    _owed: dict[str, _Owed] = attrs.field(factory=dict)
    _failures: dict[str, _Failures] = attrs.field(factory=dict)

    def expect(self, row: Mapping[str, Any]) -> None:
        """Note a dispatched row."""
        source, task, rollout = self._identity(row)
        owed = self._owed.get(source.agent)
        if owed is None:
            keep_fields = bool(self.counted_classes or self.count_missing)
            owed = _Owed(source, keep_fields=keep_fields, whole=self.whole_rows(source))
            self._owed[source.agent] = owed
        owed.add(task, rollout, row)

    def fail(self, row: Mapping[str, Any]) -> None:
        """Note a failed attempt; of several for one rollout the latest stands."""
        source, task, rollout = self._identity(row)
        failures = self._failures.get(source.agent)
        if failures is None:
            failures = _Failures(counted=self.counted_classes, whole=self.whole_rows(source))
            self._failures[source.agent] = failures
        failures.add((task, rollout), row, source)

    def _identity(self, row: Mapping[str, Any]) -> tuple[Source, TaskIndex, int]:
        return source_of(row, self.default_agent), task_of(row) or 0, rollout_of(row) or 0

    def expected_of(self, agent: str, task: TaskIndex) -> int | None:
        """How many rollouts of the task were dispatched; None where nothing is known of the agent."""
        owed = self._owed.get(agent)
        return None if owed is None else owed.count(task)

    def counted(self, seen: Seen) -> Iterator[tuple[RowSummary, dict[str, Any]]]:
        """The failures that the caller counts, as rows of the metrics' input."""
        for agent, failures in self._failures.items():
            for (task, rollout), source, fields in failures.counted():
                if not seen(agent, task, rollout):
                    owed = self._owed.get(agent)
                    of_task = owed.fields(task) if owed is not None else {}
                    yield self._zero(source, task, rollout, of_task | fields)

    def imputed(self, seen: Seen) -> Iterator[tuple[RowSummary, dict[str, Any]]]:
        """The rollouts that left no row, as zeros, where the caller counts them."""
        if self.count_missing:
            for agent, task, rollout in self._lost(seen):
                owed = self._owed[agent]
                yield self._zero(owed.source, task, rollout, {**owed.fields(task), "reward": 0.0})

    def _zero(
        self, source: Source, task: TaskIndex, rollout: int, fields: dict[str, Any]
    ) -> tuple[RowSummary, dict[str, Any]]:
        row = {"reward": 0.0, **fields, MASK: False}
        numbers = columns_of(row)
        numbers.setdefault("reward", 0.0)
        return RowSummary(task, rollout, 0, source, False, numbers, None), row

    def _lost(self, seen: Seen) -> Iterator[tuple[str, TaskIndex, int]]:
        for agent, owed in self._owed.items():
            failures = self._failures.get(agent)
            for task, rollout in owed:
                failed = failures is not None and (task, rollout) in failures.keys
                if not failed and not seen(agent, task, rollout):
                    yield agent, task, rollout

    def coverage(
        self,
        seen: Seen,
        *,
        scored: int,
        masked: int,
        counted_failures: int,
        imputed: int,
    ) -> Coverage:
        """The account; ``seen`` says whether a rollout has a row in the metrics' input."""
        failed = Counter(
            failures.name(at)
            for agent, failures in self._failures.items()
            for at, (task, rollout) in enumerate(failures.keys)
            if not seen(agent, task, rollout)
        )
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
