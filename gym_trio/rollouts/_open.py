"""`open_rollout_stream`: the block that owns a stream's tasks."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.lowlevel import enable_ki_protection

from ._attempt import RunRollout
from ._keep import Keep, raise_what_ended
from ._ledger import CheckRow
from ._limits import Limits
from ._source import RowSource
from ._stream import RolloutStream


@asynccontextmanager
@enable_ki_protection
async def open_rollout_stream(
    rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
    run: RunRollout,
    *,
    max_concurrent: int | None = None,
    max_resident_tasks: int | None = None,
    rollout_timeout_seconds: float | None = None,
    dispatch_budget_seconds: float | None = None,
    drain_margin_seconds: float | None = None,
    check_row: CheckRow | None = None,
    id_prefix: str = "",
) -> AsyncIterator[RolloutStream]:
    """Run ``rows`` through ``run``, one task each, for the length of a block.

    ``rows`` is an iterable or an async iterable of dicts, finite or not. A row is pulled only when a slot is free:
    ``max_concurrent`` bounds the rollouts in flight, ``max_resident_tasks`` those in flight together with the outcomes
    that nobody has received yet. Without any bound, everything is pulled at once.

    ``rollout_timeout_seconds`` bounds each rollout, from its start. ``dispatch_budget_seconds`` counts from the entry
    of the block: once a slot is free and a rollout could not finish within the budget any more, taking
    ``drain_margin_seconds`` for a rollout (if None, the 75th percentile of this stream's completed rollouts after five
    of them, and 0 before), none is started again. The row that was pulled then becomes a `Drained`; so do the other
    rows of a source whose length is known. Any other source, which may be endless, is not pulled again.

    ``check_row`` sees each row before it is started; what it raises counts as raised by the source, and what it returns
    is the attempt's ``checked``. ``id_prefix`` begins the ids of rows that bring none and no indices, so that they
    differ from those of another stream.

    **Cancellation**: leaving the block cancels what is in flight and waits for its tasks, in whatever way it is left.

    **Errors**: `UsageError` for a wrong argument, before anything starts. An exception in the block arrives as itself.
    What the source raised is raised once: by `RolloutStream.receive` or the iteration after everything that was started
    has been delivered, or, if nobody got that far, on leaving the block. ``KeyboardInterrupt`` or ``SystemExit`` in a
    rollout or in the source ends the block.

    **Ownership**: the block owns every task. An async generator is closed when the stream stops pulling; a plain
    iterator stays the caller's, and the next stream can go on with it.
    """
    limits = Limits(
        max_concurrent,
        max_resident_tasks,
        rollout_timeout_seconds,
        dispatch_budget_seconds,
        drain_margin_seconds,
    )
    stream = RolloutStream(RowSource(rows), run, limits, check_row, id_prefix)
    del rows  # the source lets go of it when it ends
    with Keep(BaseException) as tasks:
        async with trio.open_nursery() as nursery:
            with Keep(BaseException) as block, trio.CancelScope() as scope:
                nursery.start_soon(stream._work, scope)
                yield stream
            stream._leave()
    raise_what_ended(block.take(), tasks.take(), stream._source_error.take())
