"""`CaptureStore`: keeps the model calls of rollouts, in memory until they are taken and on disk where asked."""

from __future__ import annotations

import contextlib
import itertools
import logging
import pathlib
from collections import OrderedDict
from collections.abc import AsyncIterator

import attrs
import trio

from ..servers import ModelCall
from ._entry import JSON, Captured, entry_of, payload_of, without_keys
from ._files import CaptureFolder

__all__ = ["CaptureSettings", "CaptureStore", "open_capture_store"]

logger = logging.getLogger("gym_trio.capture")


@attrs.frozen
class CaptureSettings:
    """The bounds of a store.

    ``folder`` is where calls are written; ``None`` keeps them in memory alone. A call larger than ``max_call_bytes``
    is written without its request and response, and so is every call once ``max_total_bytes`` are written. Calls
    of the ``max_rollouts`` rollouts that were heard of last are kept until they are taken. `CaptureStore.flush` waits
    for ``flush_seconds`` at most: an agent may have left a call behind that never ends.
    """

    folder: pathlib.Path | None = None
    max_call_bytes: int = 8 * 1024 * 1024
    max_total_bytes: int = 20 * 1024**3
    max_rollouts: int = 65_536
    flush_seconds: float = 10


@attrs.define(eq=False)
class _Rollout:
    """What the store knows of one rollout. ``settled`` is replaced with each change, and set when nothing is open."""

    begun: int = 0
    kept: int = 0
    entries: list[JSON] = attrs.Factory(list)
    gaps: list[JSON] = attrs.Factory(list)
    changed: trio.Event = attrs.Factory(trio.Event)

    @property
    def is_whole(self) -> bool:
        return self.begun == self.kept


class CaptureStore:
    """A recorder for model servers. Made by `open_capture_store`; may serve any number of servers.

    `flush` is the write barrier: when it has returned true, every call of the rollout that had begun is kept, and on
    disk where there is a folder. Nothing here blocks the event loop: redaction, encoding and writing are done in a
    worker thread, many calls at a time.
    """

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings
        self._folder = None
        if settings.folder is not None:
            self._folder = CaptureFolder(settings.folder, settings.max_call_bytes, settings.max_total_bytes)
        self._rollouts: OrderedDict[str, _Rollout] = OrderedDict()
        self._numbers = itertools.count(1)
        self._queue: list[tuple[_Rollout | None, JSON, JSON]] = []
        self._bell = trio.Event()

    def __repr__(self) -> str:
        return f"<CaptureStore {len(self._rollouts)} rollouts, {len(self._queue)} calls to write>"

    def begin(self, rollout_id: str | None) -> None:
        """A call has begun."""
        if rollout_id is not None:
            self._find(rollout_id).begun += 1

    def record(self, call: ModelCall) -> None:
        """A call is over."""
        entry = self._entry(call)
        rollout = self._rollouts.get(call.rollout_id) if call.rollout_id is not None else None
        if self._folder is None:
            self._keep(rollout, entry, None)
        else:
            self._queue.append((rollout, entry, payload_of(call)))
            self._bell.set()

    def _entry(self, call: ModelCall) -> JSON:
        try:
            return entry_of(call, next(self._numbers))
        except (AttributeError, TypeError, KeyError, IndexError):
            # What a server answered with is not in its form. That is worth a record, not an exception in its handler.
            logger.warning("a call of %s has an answer that cannot be read", call.server, exc_info=True)
            return entry_of(attrs.evolve(call, response=None), next(self._numbers))

    async def flush(self, rollout_id: str) -> bool:
        """Wait until every call of the rollout that has begun is kept; whether that came within the bound.

        **Cancellation**: ends the waiting alone.
        """
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            return True
        with trio.move_on_after(self._settings.flush_seconds):
            while not rollout.is_whole:
                await rollout.changed.wait()
        return rollout.is_whole

    def take(self, rollout_id: str) -> Captured:
        """The calls of a rollout, which the store then forgets. Those still open are named in a gap."""
        rollout = self._rollouts.pop(rollout_id, None)
        if rollout is None:
            return Captured()
        gaps = list(rollout.gaps)
        if not rollout.is_whole:
            missing = rollout.begun - rollout.kept
            gaps.append({"code": "model_call_capture_incomplete", "detail": f"{missing} calls had not ended"})
        calls = sorted(rollout.entries, key=lambda entry: entry["started_at"])
        return Captured(tuple(map(without_keys, calls)), tuple(gaps))

    def _find(self, rollout_id: str) -> _Rollout:
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            rollout = self._rollouts[rollout_id] = _Rollout()
            if len(self._rollouts) > self._settings.max_rollouts:
                self._rollouts.popitem(last=False)
        else:
            self._rollouts.move_to_end(rollout_id)
        return rollout

    def _keep(self, rollout: _Rollout | None, entry: JSON, gap: JSON | None) -> None:
        if rollout is None:
            return
        rollout.entries.append(entry)
        rollout.kept += 1
        if gap is not None:
            rollout.gaps.append(gap)
        rollout.changed.set()
        rollout.changed = trio.Event()

    async def write(self) -> None:
        """Write what is recorded. Runs until cancelled, and then writes the rest."""
        try:
            while True:
                await self._bell.wait()
                self._bell = trio.Event()
                await self._write_queue()
        finally:
            with trio.CancelScope(shield=True):
                await self._write_queue()

    async def _write_queue(self) -> None:
        while self._queue and self._folder is not None:
            batch, self._queue = self._queue, []
            work = [(entry, payload) for _, entry, payload in batch]
            # Not abandoned on cancellation: a batch that has begun is written.
            gaps = await trio.to_thread.run_sync(self._folder.append, work)
            for (rollout, entry, _), gap in zip(batch, gaps, strict=True):
                self._keep(rollout, entry, gap)


@contextlib.asynccontextmanager
async def open_capture_store(settings: CaptureSettings | None = None) -> AsyncIterator[CaptureStore]:
    """A `CaptureStore` for the length of the block; leaving it writes what was recorded.

    **Errors**: a folder that cannot be written is a `RunError` on entering; a write that fails later is logged, and
    named as a gap of each rollout that it concerns.
    """
    store = CaptureStore(settings or CaptureSettings())
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        # What is raised in here is raised again outside, where no nursery wraps it into a group.
        nursery.start_soon(store.write)
        try:
            yield store
        except BaseException as error:  # noqa: BLE001  raised again below
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
