"""Deadline policies for trainers: small functions that take outcomes from a stream until they have enough.

None of them closes the stream, sends anything again or counts anything: what they have not taken stays in the stream,
for the next policy, a drain or a close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, Literal

import attrs
import trio

from ..errors import UsageError
from ._again import rows_to_send_again
from ._groups import GroupBook, TakenGroups, task_of
from ._outcomes import RolloutOutcome
from ._rows import ROLLOUT_ID_KEY, TASK_INDEX_KEY
from ._stream import RolloutStream


@attrs.frozen(eq=False)
class Taken:
    """What a policy took."""

    batch: tuple[RolloutOutcome, ...]  # in the order in which they were received
    ended: bool  # the stream had no more to give

    @property
    def send_again(self) -> list[dict[str, Any]]:
        """The rows of this batch that may be sent again; see `rows_to_send_again`."""
        return rows_to_send_again(self.batch)


async def take_until_deadline(
    stream: RolloutStream, deadline: float, *, into: list[RolloutOutcome] | None = None
) -> Taken:
    """Take outcomes until ``deadline``, an instant on trio's clock, or the end of the stream.

    **Cancellation**: outcomes already taken are in ``into``, if that was given, and lost to the caller if not.

    **Errors**: what the stream raises; ``into`` as above.
    """
    return await _take(stream, math.inf, deadline, into)


async def take_until_count(
    stream: RolloutStream, count: int, *, deadline: float = math.inf, into: list[RolloutOutcome] | None = None
) -> Taken:
    """Take ``count`` outcomes, or fewer if the stream ends or ``deadline`` passes before.

    **Cancellation** and **Errors**: as `take_until_deadline`.
    """
    if count < 0:
        raise UsageError(f"count must be 0 or more, not {count}")
    return await _take(stream, count, deadline, into)


async def _take(stream: RolloutStream, count: float, deadline: float, into: list[RolloutOutcome] | None) -> Taken:
    batch = [] if into is None else into
    first = len(batch)
    ended = False
    with trio.CancelScope(deadline=deadline):
        try:
            while len(batch) - first < count:
                batch.append(await stream.receive())
        except trio.EndOfChannel:
            ended = True
    return Taken(tuple(batch[first:]), ended)


async def take_groups(
    stream: RolloutStream,
    size: int,
    *,
    groups: int | None = None,
    quantile: float | None = None,
    stretch: float = 1.5,
    partial: Literal["keep", "drop"] = "keep",
    key: Callable[[dict[str, Any]], Hashable] = task_of,
    deadline: float = math.inf,
    after: TakenGroups | None = None,
    into: list[RolloutOutcome] | None = None,
) -> TakenGroups:
    """Take groups of repeats, each until it has ``size`` outcomes or its own cutoff passes.

    Rows belong together by ``key``, by default ``_ng_task_index``: give each task's ``size`` rows the same one. With a
    ``size`` of 1 no row needs one; with any other, a row without one could belong to no group that is ever whole.

    With ``quantile``, a group that has that part of its ``size`` outcomes waits for the others only until ``stretch``
    times what those took, counted from the first start among them; what finishes later is ``late``. A group that is
    cut, or that the end of the stream leaves without ``size`` outcomes, is partial: ``partial="keep"`` puts it among
    the groups, ``"drop"`` sets it aside.

    Returns once ``groups`` groups are settled and kept (None: once the stream has ended), or at ``deadline``. What was
    taken of groups that are not settled is in ``open``; give the whole record as ``after`` to the next call, which goes
    on with them. All outcomes count, failures too, so that a group whose rows have all ended is never waited for.

    **Cancellation** and **Errors**: as `take_until_deadline`; `UsageError` for a wrong argument, before all, and at the
    first outcome whose row has no ``_ng_task_index``, which is then the last in ``into``.
    """
    if groups is not None and groups < 1:
        raise UsageError(f"groups must be 1 or more, or None, not {groups}")
    if partial not in ("keep", "drop"):
        raise UsageError(f"partial must be 'keep' or 'drop', not {partial!r}")
    book = GroupBook(size, quantile, stretch, keep_partial=partial == "keep", after=after)
    ended = False
    while groups is None or len(book.kept) < groups:
        # What is ready had finished before now, so it comes before any cutoff.
        cutoff = math.inf if stream.statistics().ready else book.next_cutoff()
        outcome: RolloutOutcome | None = None
        with trio.CancelScope(deadline=min(cutoff, deadline)):
            try:
                outcome = await stream.receive()
            except trio.EndOfChannel:
                ended = True
        if outcome is not None:
            if into is not None:
                into.append(outcome)
            if size > 1 and key is task_of and outcome.row.get(TASK_INDEX_KEY) is None:
                raise UsageError(
                    f"the row of {outcome.row.get(ROLLOUT_ID_KEY)} has no {TASK_INDEX_KEY}: "
                    f"give the {size} rows of each task the same one, or take_groups a key"
                )
            book.add(key(outcome.row), outcome, trio.current_time())
        elif ended:
            book.settle_all()
            break
        elif trio.current_time() >= deadline:
            break
        else:
            book.settle_overdue(trio.current_time())
    return book.taken(ended=ended)
