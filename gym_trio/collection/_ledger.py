"""What is known of every rollout of a run: done, failed, how often, how long. Compact: a million take 20 MB."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from ..errors import RowError
from ..metrics import as_number
from ._jsonl import read_jsonl
from ._keys import ATTEMPT, NumberSet, index_of, key_of, last_attempt, unpack
from ._paths import RunFiles
from ._repeated import RepeatedLines, told

FAILURE_CLASS = "_ng_failure_class"
TERMINAL = "_ng_failure_terminal"

# Failures of something that can be repaired between runs; `retry_terminal_timeouts` lets them be tried again.
_REPAIRABLE = frozenset({"timeout_exceeded", "reference_missing", "eval_missing", "transport_ineligible"})


class Standing(enum.IntEnum):
    """How a rollout stands, by its newest attempt."""

    OPEN = 0  # nothing is known: it was not run, or its attempt left no line
    FAILED = 1  # it may be tried again
    TERMINAL = 2  # it failed, and another attempt cannot help
    MASKED = 3  # it is done, and is left out of the score
    SCORED = 4  # it is done


DONE = frozenset({Standing.MASKED, Standing.SCORED})


@attrs.frozen
class Coverage:
    """How much of the run its score covers. The five numbers of which the first is the sum of the others."""

    expected: int
    scored: int
    failed: int
    masked: int
    missing: int

    @property
    def complete(self) -> bool:
        """Whether every rollout has a result."""
        return self.scored + self.masked == self.expected

    def __str__(self) -> str:
        return (
            f"expected {self.expected}, scored {self.scored}, failed {self.failed},"
            f" masked {self.masked}, missing {self.missing}"
        )


class Ledger:
    """Keeps one entry for each rollout that the run owes. What the newest attempt says, stands."""

    def __init__(self, keys: NumberSet, *, retry_terminal_timeouts: bool = False) -> None:
        size = len(keys)
        self._keys = keys
        self._standing = bytearray(size)
        self._attempt = array("H", bytes(2 * size))  # the newest of which anything is known
        self._failures = array("H", bytes(2 * size))
        self._seconds = array("f", bytes(4 * size))  # the longest attempt that was measured
        self._retry_terminal_timeouts = retry_terminal_timeouts
        self.strangers = 0  # rows of rollouts that this run does not owe

    def __len__(self) -> int:
        return len(self._keys)

    def is_late(self, row: Mapping[str, Any]) -> bool:
        """Whether an attempt that is newer than the row's is known."""
        at = self._position(row)
        return at is not None and (index_of(row, ATTEMPT) or 0) < self._attempt[at]

    def record_result(self, row: Mapping[str, Any]) -> None:
        """Note a result row. One of an older attempt than is known changes nothing."""
        self._record(row, Standing.MASKED if row.get("mask_sample") else Standing.SCORED)

    def record_failure(self, row: Mapping[str, Any]) -> None:
        """Note a failure row: its attempt is counted, whether or not it is the newest."""
        at = self._position(row)
        if at is not None:
            self._failures[at] += 1
        self._record(row, Standing.TERMINAL if self._is_terminal(row) else Standing.FAILED)

    def take_back_failure(self, row: Mapping[str, Any]) -> None:
        """Count an attempt of which there are two failure rows once only."""
        at = self._position(row)
        if at is not None:
            self._failures[at] -= 1

    def _is_terminal(self, row: Mapping[str, Any]) -> bool:
        if not row.get(TERMINAL):
            return row.get(FAILURE_CLASS) == "skipped"
        return not (self._retry_terminal_timeouts and row.get(FAILURE_CLASS) in _REPAIRABLE)

    def _record(self, row: Mapping[str, Any], standing: Standing) -> None:
        at = self._position(row)
        if at is None:
            self.strangers += 1
            return
        self._seconds[at] = max(self._seconds[at], _elapsed(row))
        attempt = index_of(row, ATTEMPT) or 0
        if (attempt, standing) > (self._attempt[at], self._standing[at]):
            self._attempt[at] = attempt
            self._standing[at] = standing

    def _position(self, row: Mapping[str, Any]) -> int | None:
        key = key_of(row)
        return None if key is None else self._keys.position(key)

    def standing(self, row: Mapping[str, Any]) -> Standing:
        """How the row's rollout stands; OPEN for one that the run does not owe."""
        at = self._position(row)
        return Standing.OPEN if at is None else Standing(self._standing[at])

    def next_attempt(self, row: Mapping[str, Any], max_attempts: int) -> int | None:
        """The attempt that the row should be sent as; None if it should not be sent."""
        own = index_of(row, ATTEMPT) or 0
        at = self._position(row)
        if at is None or self._standing[at] == Standing.OPEN:
            return own
        if self._standing[at] != Standing.FAILED or self._failures[at] >= max_attempts:
            return None
        following = max(own, self._attempt[at] + 1)
        return following if following <= last_attempt() else None

    def pending(self, max_attempts: int) -> int:
        """How many rollouts are still to be sent."""
        return sum(
            standing == Standing.OPEN or (standing == Standing.FAILED and failures < max_attempts)
            for standing, failures in zip(self._standing, self._failures, strict=True)
        )

    def coverage(self) -> Coverage:
        """Where every rollout stands."""
        count = self._standing.count
        failed = count(Standing.FAILED) + count(Standing.TERMINAL)
        return Coverage(
            expected=len(self._keys),
            scored=count(Standing.SCORED),
            failed=failed,
            masked=count(Standing.MASKED),
            missing=count(Standing.OPEN),
        )

    def missing(self) -> Iterator[tuple[int, int]]:
        """The (task, rollout) of every rollout of which nothing is known."""
        for key, standing in zip(self._keys, self._standing, strict=True):
            if standing == Standing.OPEN:
                yield unpack(key)

    def task_seconds(self) -> dict[int, float]:
        """For each task with a measured attempt and a rollout still to run, its longest attempt."""
        longest: dict[int, float] = {}
        unfinished: set[int] = set()
        for key, standing, seconds in zip(self._keys, self._standing, self._seconds, strict=True):
            task = unpack(key)[0]
            if standing not in DONE:
                unfinished.add(task)
            if seconds > 0:
                longest[task] = max(longest.get(task, 0.0), seconds)
        return {task: seconds for task, seconds in longest.items() if task in unfinished}


def _elapsed(row: Mapping[str, Any]) -> float:
    elapsed = as_number(row.get("elapsed_seconds"))
    if elapsed is None:
        perf = row.get("ng_perf")
        latency = as_number(perf.get("total_latency_ms")) if isinstance(perf, Mapping) else None
        elapsed = (latency or 0.0) / 1000
    return max(elapsed, 0.0)


def read_ledger(files: RunFiles, keys: NumberSet, *, retry_terminal_timeouts: bool) -> tuple[Ledger, list[str]]:
    """The ledger of a run that was begun, from its files, and what is to be told of them.

    A line that is there twice changes nothing: a result stands once, and a failure is one attempt.
    """
    ledger = Ledger(keys, retry_terminal_timeouts=retry_terminal_timeouts)
    notes = []
    for path, record in ((files.failures, ledger.record_failure), (files.output, ledger.record_result)):
        repeated = RepeatedLines()
        number = 0
        try:
            for number, row in read_jsonl(path) if path.exists() else ():  # noqa: B007  it is used below
                record(row)
                repeated.note(row)
        except RowError as error:
            said = str(error).removeprefix(f"{path}:{error.line}: ")
            what = f"{said}; if the line is taken out, its rollout is run again"
            raise RowError(what, source=str(path), line=error.line or number) from None
        found = repeated.find([path])
        notes += told(found)
        if path == files.failures:
            for repetition in found:
                ledger.take_back_failure(repetition.row)
    return ledger, notes
