"""Groups of repeats: which outcome belongs where, and when a group waits no longer. Plain functions; no stream."""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Mapping
from typing import Any

import attrs

from ..errors import UsageError
from ._again import rows_of_whole_group, rows_to_send_again
from ._outcomes import Completed, Drained, RolloutOutcome
from ._rows import ROLLOUT_ID_KEY, TASK_INDEX_KEY


def task_of(row: Mapping[str, Any]) -> Hashable:
    """The row's task index; a row without one is a group of its own."""
    task: Hashable = row.get(TASK_INDEX_KEY)
    return row.get(ROLLOUT_ID_KEY) if task is None else task


@attrs.frozen(eq=False)
class Group:
    """The outcomes of one task's repeats, in the order in which they were received."""

    key: Hashable
    outcomes: tuple[RolloutOutcome, ...]
    complete: bool  # it has all the outcomes that were asked for

    @property
    def completed(self) -> tuple[Completed, ...]:
        """Those with a result."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, Completed))


@attrs.frozen(eq=False)
class TakenGroups:
    """What `take_groups` took. Every outcome that it received is in exactly one of the first four."""

    groups: tuple[Group, ...]  # settled, in that order; partial ones among them if they are kept
    dropped: tuple[Group, ...]  # partial, and set aside
    open: tuple[Group, ...]  # not settled when the policy returned
    late: tuple[RolloutOutcome, ...]  # came after their group was settled
    ended: bool  # the stream had no more to give
    settled: frozenset[Hashable] = attrs.field(repr=False)  # keys of settled groups, those of calls before included

    @property
    def batch(self) -> tuple[RolloutOutcome, ...]:
        """The outcomes of all groups, group by group."""
        return tuple(outcome for group in self.groups for outcome in group.outcomes)

    @property
    def send_again(self) -> list[dict[str, Any]]:
        """The rows that may be sent again: those of the batch that `rows_to_send_again` names, and dropped groups."""
        dropped = [outcome for group in self.dropped for outcome in group.outcomes]
        return rows_to_send_again(self.batch) + rows_of_whole_group(dropped)


@attrs.define(eq=False)
class _OpenGroup:
    key: Hashable
    outcomes: list[RolloutOutcome] = attrs.Factory(list)
    began_at: float = math.inf  # the first start among its outcomes
    cutoff: float = math.inf  # what finished later is late

    def as_group(self, *, complete: bool) -> Group:
        return Group(self.key, tuple(self.outcomes), complete)


class GroupBook:
    """Sorts outcomes into groups of ``size``, and settles each group once."""

    def __init__(
        self, size: int, quantile: float | None, stretch: float, *, keep_partial: bool, after: TakenGroups | None
    ) -> None:
        if size < 1:
            raise UsageError(f"size must be 1 or more, not {size}")
        if quantile is not None and not 0 < quantile <= 1:
            raise UsageError(f"quantile must be above 0 and at most 1, not {quantile}")
        if not stretch >= 1:
            raise UsageError(f"stretch must be 1 or more, not {stretch}")
        self.kept: list[Group] = []
        self._size = size
        self._needed = math.inf if quantile is None else math.ceil(quantile * size)
        self._stretch = stretch
        self._keep_partial = keep_partial
        self._dropped: list[Group] = []
        self._late: list[RolloutOutcome] = []
        self._open: dict[Hashable, _OpenGroup] = {}
        self._settled: set[Hashable] = set(after.settled) if after else set()
        self._cutoffs: list[tuple[float, int, Hashable]] = []  # a heap; entries of settled groups are passed over
        for group in after.open if after else ():
            for outcome in group.outcomes:
                self.add(group.key, outcome, -math.inf)

    def add(self, key: Hashable, outcome: RolloutOutcome, now: float) -> None:
        """Put a received outcome where it belongs."""
        if key in self._settled:
            self._late.append(outcome)
            return
        group = self._open.setdefault(key, _OpenGroup(key))
        ended_at = now if isinstance(outcome, Drained) else outcome.timing.finished_at
        if ended_at > group.cutoff:
            self._settle(group)
            self._late.append(outcome)
            return
        group.outcomes.append(outcome)
        began_at = ended_at if isinstance(outcome, Drained) else outcome.timing.started_at
        group.began_at = min(group.began_at, began_at)
        if len(group.outcomes) >= self._size:
            self._settle(group)
        elif len(group.outcomes) == self._needed:
            group.cutoff = group.began_at + self._stretch * (ended_at - group.began_at)
            heapq.heappush(self._cutoffs, (group.cutoff, len(self._settled) + len(self._open), key))

    def next_cutoff(self) -> float:
        """The instant at which the next group waits no longer."""
        while self._cutoffs and self._cutoffs[0][2] not in self._open:
            heapq.heappop(self._cutoffs)
        return self._cutoffs[0][0] if self._cutoffs else math.inf

    def settle_overdue(self, now: float) -> None:
        """Settle the groups whose cutoff has passed."""
        while self.next_cutoff() <= now:
            self._settle(self._open[self._cutoffs[0][2]])

    def settle_all(self) -> None:
        """Nothing more can come: settle every group as it is."""
        for group in list(self._open.values()):
            self._settle(group)

    def _settle(self, group: _OpenGroup) -> None:
        del self._open[group.key]
        self._settled.add(group.key)
        complete = len(group.outcomes) >= self._size
        (self.kept if complete or self._keep_partial else self._dropped).append(group.as_group(complete=complete))

    def taken(self, *, ended: bool) -> TakenGroups:
        return TakenGroups(
            groups=tuple(self.kept),
            dropped=tuple(self._dropped),
            open=tuple(group.as_group(complete=False) for group in self._open.values()),
            late=tuple(self._late),
            ended=ended,
            settled=frozenset(self._settled),
        )
