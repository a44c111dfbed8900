"""From the rows that were given to the rows that are sent: each with its task, its repeat and its agent.

Two passes. The first checks every row, so that nothing has started when one is wrong, and notes eight bytes for each:
which rows are identical, which name their own indices. The second makes the rows, one at a time.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import orjson

from ..errors import RowError
from ..rollouts import rollout_id
from ._keys import (
    ATTEMPT,
    MOST_ROLLOUTS,
    ROLLOUT,
    ROLLOUT_ID,
    TASK,
    NumberSet,
    digest,
    pack,
    pack_attempt,
    unpack_attempt,
)
from ._options import RunOptions
from ._recorded import rows_to_leave_out
from ._routing import AGENT_REF, ENVIRONMENT_SERVER, Route, Router
from ._source import PARAMS, InputRow, RowSource


@attrs.frozen
class _Scan:
    """What the first pass found."""

    same: frozenset[int]  # digests of rows that were given more than once
    own_tasks: NumberSet  # task indices that rows name themselves, where other rows name none
    own_rollouts: NumberSet  # packed (task, rollout) that rows name themselves, where other rows name none
    again: frozenset[int]  # task indices that more than one row names


class Materializer:
    """Makes the rows of a run, the same ones every time it is gone through."""

    def __init__(self, source: RowSource, options: RunOptions, *, skills: dict[str, Any] | None = None) -> None:
        self._source = source
        self._options = options
        self._skills = skills
        self._router = Router(options)
        self.notes: list[str] = []
        self._scan = self._first_pass()
        self.notes += [*source.notes, *self._router.unmet()]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self._options.interleave_repeats:
            yield from (row for row in self._made() if self._is_mine(row))
            return
        for turn in range(self._rounds()):
            yield from (row for row in self._made() if row[ROLLOUT] == turn and self._is_mine(row))

    def _rounds(self) -> int:
        return 1 + max((row[ROLLOUT] for row in self._made()), default=-1)

    def _is_mine(self, row: dict[str, Any]) -> bool:
        if self._options.shard is None:
            return True
        number, count = self._options.shard
        return bool(row[TASK] % count == number)

    # First pass

    def _first_pass(self) -> _Scan:
        digests, tasks, rollouts, triples, ids = array("Q"), array("Q"), array("Q"), array("Q"), array("Q")
        rows = 0
        for given in self._source:
            rows += 1
            self._routes(given)
            if ROLLOUT_ID in given.row:
                ids.append(_digest_of_id(given.row))
            if given.task is None:
                digests.append(given.digest)
                continue
            tasks.append(given.task)
            if given.rollout is not None:
                rollouts.append(pack(given.task, given.rollout))
                triples.append(pack_attempt(given.task, given.rollout, given.attempt))
        several = NumberSet(rollouts).repeated() if self._options.recorded else frozenset()
        left_out, notes = rows_to_leave_out(self._source, several) if several else (frozenset(), [])
        if left_out:
            self.notes += notes
            self._source.leave_out(left_out)
            return self._first_pass()
        repeated = NumberSet(triples).repeated()
        if repeated:
            raise self._repeated(min(repeated))
        same_ids = frozenset(NumberSet(ids).repeated())
        if same_ids:
            raise self._same_id(same_ids)
        return _Scan(
            same=frozenset(NumberSet(digests).repeated()),
            own_tasks=NumberSet(tasks).distinct() if digests else NumberSet(),
            own_rollouts=NumberSet(rollouts).distinct() if len(rollouts) < rows else NumberSet(),
            again=frozenset(NumberSet(tasks).repeated()),
        )

    def _routes(self, given: InputRow) -> list[Route]:
        try:
            routes = self._router.routes(given.row)
            if given.rollout is not None and sum(route.repeats for route in routes) > 1:
                raise RowError(f"names its own {ROLLOUT}, so it cannot be repeated")
            if ROLLOUT_ID in given.row and sum(route.repeats for route in routes) > 1:
                raise RowError(f"names its own {ROLLOUT_ID}, so it cannot be repeated")
            if given.rollout is not None and given.task is None:
                raise RowError(f"names its {ROLLOUT} and not its {TASK}")
            return routes
        except RowError as error:
            raise self._source.at(error, given.line) from None

    def _repeated(self, triple: int) -> RowError:
        task, rollout, attempt = unpack_attempt(triple)
        lines = [
            given.line
            for given in self._source
            if (given.task, given.rollout, given.attempt) == (task, rollout, attempt)
        ]
        return RowError(
            f"repeats line {lines[0]}'s ({TASK} {task}, {ROLLOUT} {rollout}, attempt {attempt})",
            source=self._source.name,
            line=lines[1],
        )

    def _same_id(self, digests: frozenset[int]) -> RowError:
        named = (row for row in self._source if ROLLOUT_ID in row.row and _digest_of_id(row.row) in digests)
        first = next(named)
        shared = _digest_of_id(first.row)
        second = next(row for row in named if _digest_of_id(row.row) == shared)
        return RowError(
            f"has the {ROLLOUT_ID} of line {first.line}, {first.row[ROLLOUT_ID]!r}; each rollout needs one of its own",
            source=self._source.name,
            line=second.line,
        )

    # Second pass

    def _made(self) -> Iterator[dict[str, Any]]:
        indices = _Indices(self._scan)
        for given in self._source:
            task, rollouts = indices.of(given)
            base = self._base(given.row)
            for route in self._routes(given):
                for _ in range(route.repeats):
                    yield self._row(base, route, task, next(rollouts), given.attempt)

    def _base(self, row: dict[str, Any]) -> dict[str, Any]:
        made = {**row, PARAMS: {**row[PARAMS], **self._options.responses_create_params}}
        if self._skills is not None:
            made["skills_ref"] = self._skills
        return made

    def _row(self, base: dict[str, Any], route: Route, task: int, rollout: int, attempt: int) -> dict[str, Any]:
        row = {**base, TASK: task, ROLLOUT: rollout}
        if attempt:
            row[ATTEMPT] = attempt
        if route.environment is not None:
            row[ENVIRONMENT_SERVER] = route.environment
        reference = base.get(AGENT_REF)
        if route.agent is not None and not (isinstance(reference, dict) and reference.get("name") == route.agent):
            row[AGENT_REF] = {"type": "responses_api_agents", "name": route.agent}
        if self._options.num_repeats_add_seed:
            row[PARAMS] = _with_seed(row[PARAMS], rollout)
        return row


class _Indices:
    """Gives out task and repeat indices, around those that rows name themselves."""

    def __init__(self, scan: _Scan) -> None:
        self._scan = scan
        self._next_task = 0
        self._tasks: dict[int, int] = {}  # digest → task, of rows that come more than once
        self._next_rollout: Counter[int] = Counter()  # task → repeat, of tasks that come more than once

    def of(self, given: InputRow) -> tuple[int, Iterator[int]]:
        """The row's task, and the repeats that it can have, one after the other."""
        if given.task is not None:
            if given.rollout is not None:
                return given.task, iter([given.rollout])
            return given.task, self._rollouts(given.task, again=given.task in self._scan.again)
        again = given.digest in self._scan.same
        task = self._tasks.get(given.digest) if again else None
        if task is None:
            task = self._new_task()
            if again:
                self._tasks[given.digest] = task
        return task, self._rollouts(task, again=again)

    def _new_task(self) -> int:
        while self._next_task in self._scan.own_tasks:
            self._next_task += 1
        self._next_task += 1
        return self._next_task - 1

    def _rollouts(self, task: int, *, again: bool) -> Iterator[int]:
        for rollout in itertools.count(self._next_rollout[task] if again else 0):
            if rollout >= MOST_ROLLOUTS:
                raise RowError(f"task {task} has more than {MOST_ROLLOUTS} rollouts")
            if pack(task, rollout) not in self._scan.own_rollouts:
                if again:
                    self._next_rollout[task] = rollout + 1
                yield rollout


def _digest_of_id(row: Mapping[str, Any]) -> int:
    """Eight bytes of the row's own rollout id, its attempt included."""
    return digest(rollout_id(row, 0).encode())


def _with_seed(params: dict[str, Any], seed: int) -> dict[str, Any]:
    """``metadata.extra_body``, a JSON text, is how a seed reaches the model server without being a parameter."""
    metadata = dict(params.get("metadata") or {})
    try:
        extra = orjson.loads(metadata.get("extra_body") or "{}")
    except (orjson.JSONDecodeError, TypeError):
        extra = None
    if not isinstance(extra, dict):
        raise RowError("has a metadata.extra_body that is not a JSON object, so no seed can be put into it")
    metadata["extra_body"] = orjson.dumps({**extra, "seed": seed}).decode()
    return {**params, "metadata": metadata}
