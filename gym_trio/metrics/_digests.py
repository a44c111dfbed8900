"""`Digests`: the digests of millions of records in columns, about seventy bytes each.

Most records are alike but for their identity and their tokens: what they have in common, a shape, is kept once.
"""

from __future__ import annotations

import copy
import heapq
import itertools
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, overload

import attrs

from ._checks import Finding
from ._digest import RolloutDigest
from ._rollout_keys import Codes
from ._rows import TaskIndex, task_order

_RUN = 1 << 15
_NO_TOKENS = (0, 0, 0, 0)


class Digests(Sequence[RolloutDigest]):
    """Digests in the order in which they were added, or in that of another sequence's records (`in_order`)."""

    def __init__(self) -> None:
        self._codes = Codes()
        self._tasks: array[int] = array("q")
        self._rollouts: array[int] = array("q")
        self._tokens = [array("d") for _ in _NO_TOKENS]
        self._names: dict[int, str] = {}  # rollout ids that are not made of task and repeat
        self._shapes: array[int] = array("I")
        self._shape_list: list[RolloutDigest] = []
        self._shape_numbers: dict[Any, int] = {}
        self._order: array[int] | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    def append(self, digest: RolloutDigest) -> None:
        """Add a digest."""
        position = len(self._tasks)
        self._tasks.append(self._codes.encode(digest.task))
        self._rollouts.append(self._codes.encode(digest.rollout))
        for column, count in zip(self._tokens, digest.tokens, strict=True):
            column.append(count)
        if digest.rollout_id != f"{digest.task}-{digest.rollout}":
            self._names[position] = digest.rollout_id
        self._shapes.append(self._number_of(digest))

    def _number_of(self, digest: RolloutDigest) -> int:
        """The number of the digest's shape; one that was not there before gets the next."""
        shape = attrs.evolve(digest, task=0, rollout=0, rollout_id="", tokens=_NO_TOKENS)
        # As text, for details of findings are dicts, and 1 and True are not alike.
        key = repr(shape) if digest.findings or digest.stage is not None else shape
        number = self._shape_numbers.get(key)
        if number is None:
            number = self._shape_numbers[key] = len(self._shape_list)
            self._shape_list.append(shape)
        return number

    @overload
    def __getitem__(self, at: int) -> RolloutDigest: ...
    @overload
    def __getitem__(self, at: slice) -> list[RolloutDigest]: ...
    def __getitem__(self, at: int | slice) -> RolloutDigest | list[RolloutDigest]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        position = range(len(self))[at] if self._order is None else self._order[at]
        task, rollout = self.task(position), self._codes.decode(self._rollouts[position])
        first, second, third, fourth = (int(column[position]) for column in self._tokens)
        return attrs.evolve(
            self._shape_list[self._shapes[position]],
            task=task,
            rollout=rollout,
            rollout_id=self._names.get(position, f"{task}-{rollout}"),
            tokens=(first, second, third, fourth),
        )

    def task(self, position: int) -> TaskIndex:
        """The task of the record that was added at ``position``."""
        return self._codes.decode(self._tasks[position])  # type: ignore[no-any-return]

    def shapes(self) -> list[tuple[RolloutDigest, int]]:
        """What records have in common, and how many have it."""
        return [(self._shape_list[number], count) for number, count in Counter(self._shapes).items()]

    def token_sums(self) -> list[int]:
        """The four token counts over all records."""
        return [int(sum(column)) for column in self._tokens]

    def by_task(self) -> Iterator[tuple[TaskIndex, range, int | None]]:
        """Each task, where its records are, and the number of their shape where it has one record. In order only."""
        order = self._order or array("I")
        start = 0
        for _, group in itertools.groupby(order, key=self._tasks.__getitem__):
            positions = list(group)
            end = start + len(positions)
            shape = self._shapes[positions[0]] if len(positions) == 1 else None
            yield self.task(positions[0]), range(start, end), shape
            start = end

    def in_order(self, duplicate: Any = None) -> Digests:
        """The same by task, repeat and stage. Those that share all three get the finding ``duplicate(how many)``."""
        pending = iter(range(len(self)))
        runs = iter(lambda: array("I", sorted(itertools.islice(pending, _RUN), key=self._key)), array("I"))
        made = copy.copy(self)
        made._order = array("I", heapq.merge(*runs, key=self._key))
        made._shapes = self._shapes[:]
        for _, group in itertools.groupby(made._order, key=self._claim) if duplicate is not None else ():
            claimed = list(group)
            for position in claimed if len(claimed) > 1 else ():
                made._add_finding(position, duplicate(len(claimed)))
        return made

    def _add_finding(self, position: int, finding: Finding) -> None:
        shape = self._shape_list[self._shapes[position]]
        self._shapes[position] = self._number_of(attrs.evolve(shape, findings=(*shape.findings, finding)))

    def _key(self, position: int) -> Any:
        task, rollout = self._tasks[position], self._rollouts[position]
        return task_order(self._codes.decode(task)), self._codes.decode(rollout), self._stage(position)

    def _claim(self, position: int) -> Any:
        return self._tasks[position], self._rollouts[position], self._stage(position)

    def _stage(self, position: int) -> str:
        return str(self._shape_list[self._shapes[position]].stage)
