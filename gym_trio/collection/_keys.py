"""Which rollout a row is: its task, its repeat, its attempt; and sets of millions of them."""

from __future__ import annotations

import bisect
import hashlib
import heapq
import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import RowError

TASK = "_ng_task_index"
ROLLOUT = "_ng_rollout_index"
ATTEMPT = "_ng_attempt_index"
ROLLOUT_ID = "_ng_rollout_id"

# One rollout fits in 51 bits, with its attempt in 64.
_TASK_BITS, _ROLLOUT_BITS, _ATTEMPT_BITS = 31, 20, 13
_LIMITS = {TASK: 1 << _TASK_BITS, ROLLOUT: 1 << _ROLLOUT_BITS, ATTEMPT: 1 << _ATTEMPT_BITS}
MOST_ROLLOUTS = _LIMITS[ROLLOUT]  # of one task
_PART = 1 << 16


def digest(content: bytes) -> int:
    """Eight bytes that stand for ``content``."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def pack(task: int, rollout: int) -> int:
    """One number for one (task, rollout)."""
    return task << _ROLLOUT_BITS | rollout


def unpack(key: int) -> tuple[int, int]:
    """The (task, rollout) of one number."""
    return key >> _ROLLOUT_BITS, key & (_LIMITS[ROLLOUT] - 1)


def pack_attempt(task: int, rollout: int, attempt: int) -> int:
    """One number for one attempt at one (task, rollout)."""
    return pack(task, rollout) << _ATTEMPT_BITS | attempt


def unpack_attempt(number: int) -> tuple[int, int, int]:
    """The (task, rollout, attempt) of one number."""
    return *unpack(number >> _ATTEMPT_BITS), number & (_LIMITS[ATTEMPT] - 1)


def last_attempt() -> int:
    """The highest attempt that a rollout may have."""
    return _LIMITS[ATTEMPT] - 1


def index_of(row: Mapping[str, Any], name: str, *, source: str | None = None, line: int | None = None) -> int | None:
    """The row's index of that name, None where it has none.

    **Errors**: `RowError` when it is not a count, or above what a run may have.
    """
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RowError(f"{name} must be 0 or a positive whole number, not {value!r}", source=source, line=line)
    if value >= _LIMITS[name]:
        raise RowError(f"{name} is {value}; it must be below {_LIMITS[name]}", source=source, line=line)
    return value


def key_of(row: Mapping[str, Any], *, source: str | None = None, line: int | None = None) -> int | None:
    """The packed (task, rollout) of a row, None if it does not say both."""
    task = index_of(row, TASK, source=source, line=line)
    rollout = index_of(row, ROLLOUT, source=source, line=line)
    return None if task is None or rollout is None else pack(task, rollout)


class NumberSet:
    """A set of 64-bit numbers that is filled first and asked afterwards, eight bytes for each."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        # Sorted in parts and merged, so that there are never millions of int objects at once.
        pending = iter(numbers)
        parts = iter(lambda: array("Q", sorted(itertools.islice(pending, _PART))), array("Q"))
        self._numbers = array("Q", heapq.merge(*parts))

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.position(number) is not None

    def position(self, number: int) -> int | None:
        """Where the number stands in order, None if it is not there."""
        at = bisect.bisect_left(self._numbers, number)
        return at if at < len(self._numbers) and self._numbers[at] == number else None

    def repeated(self) -> set[int]:
        """The numbers that were put in more than once."""
        numbers = self._numbers
        return {numbers[at] for at in range(1, len(numbers)) if numbers[at] == numbers[at - 1]}

    def distinct(self) -> NumberSet:
        """The same set with each number once."""
        made = NumberSet()
        previous = None
        for number in self._numbers:
            if number != previous:
                made._numbers.append(number)
            previous = number
        return made
