"""`collect`: a run's loop over its stream of outcomes."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import trio

from ..errors import RunError, UsageError
from ..metrics import COUNTED_AS_ZERO
from ..rollouts import Completed, Drained, Failed, RolloutOutcome, RolloutStream
from ._aggregate import zeros_of
from ._entries import GROUPS, read_entries
from ._jsonl import JsonlSink, dump_json, write_whole
from ._keys import ROLLOUT, TASK
from ._ledger import FAILURE_CLASS
from ._prepare import PreparedRun
from ._records import leaves_no_line, row_of, unwritable
from ._report import Ending, Progress, RunReport, StopRequest, UnfinishedRollout
from ._timing import TimingReport

OpenStream = Callable[[Iterator[dict[str, Any]]], AbstractAsyncContextManager[RolloutStream]]
OnOutcome = Callable[[RolloutOutcome], None]
Aggregate = Callable[[PreparedRun], Awaitable[list[dict[str, Any]] | None]]

GRACE_SECONDS = 10.0
_LAST_WORDS_SECONDS = 5.0  # for what had finished when the run is cancelled while it drains


async def collect(
    run: PreparedRun,
    open_stream: OpenStream,
    *,
    progress: Progress | None = None,
    on_outcome: OnOutcome | None = None,
    stop: StopRequest | None = None,
    grace_seconds: float = GRACE_SECONDS,
    aggregate: Aggregate | None = None,
) -> RunReport:
    """Send every row of ``run`` that has no result yet, and write every outcome as it comes.

    ``open_stream`` takes the rows and opens their stream: ``functools.partial(gym.run_examples, max_concurrent=64)``.
    ``on_outcome`` is called after an outcome's line was written. ``aggregate`` makes the aggregate metrics from the
    written files when the run has ended by itself; a stop that comes then cuts it at once.

    **Cancellation**: what had finished is still written; then the cancellation goes on. To stop a run and get its
    report, use ``stop``.

    **Errors**: `RunError` when a file cannot be written any more. A rollout that fails is a row, never an error.
    """
    if not grace_seconds >= 0:
        raise UsageError(f"the grace of a stop must be a number of seconds, and not negative; it is {grace_seconds}")
    work = _Work(run, progress or Progress(), on_outcome, stop or StopRequest(), grace_seconds)
    started = datetime.datetime.now(datetime.UTC)
    begun = trio.current_time()
    if run.pending:
        fsync = run.options.fsync
        # Those of an earlier run of the same output say nothing of the rows to come.
        run.files.aggregate.unlink(missing_ok=True)
        with JsonlSink(run.files.output, fsync) as results, JsonlSink(run.files.failures, fsync) as failures:
            await work.consume(open_stream, results, failures)
    timing = {
        "started_at": started.isoformat(timespec="seconds"),
        "wall_seconds": trio.current_time() - begun,
        **work.timing.summary(),
    }
    report = work.report(timing)
    if work.progress.to_send:
        write_whole(run.files.timing, dump_json(_timing_file(report)), fsync=run.options.fsync)
    elif (stored := _stored_aggregate(run)) is not None:
        return attrs.evolve(report, aggregate=stored)
    if aggregate is None or work.ending is Ending.STOPPED:
        return report
    return attrs.evolve(report, aggregate=await work.unless_stopped(aggregate))


def _stored_aggregate(run: PreparedRun) -> list[dict[str, Any]] | None:
    """What a complete run has already made; None where that is missing, is damaged, or counts other rollouts as zero,
    so that it is made again.
    """
    if not run.files.aggregate.exists():
        return None
    try:
        entries = read_entries(run.files.aggregate)
    except UsageError:
        return None
    zeros = zeros_of(run)
    if any(entry.get(COUNTED_AS_ZERO) != zeros for entry in entries) or (zeros is not None and not entries):
        return None
    return [{name: value for name, value in entry.items() if name != GROUPS} for entry in entries]


def _timing_file(report: RunReport) -> dict[str, Any]:
    coverage = report.coverage
    return {
        **report.timing,
        "ending": str(report.ending),
        "coverage": {
            "expected": coverage.expected,
            "scored": coverage.scored,
            "failed": coverage.failed,
            "masked": coverage.masked,
            "missing": coverage.missing,
        },
        "unfinished": [
            {TASK: one.task, ROLLOUT: one.rollout, "delivery": str(one.delivery)} for one in report.unfinished
        ],
    }


@contextlib.contextmanager
def _bare_errors() -> Iterator[None]:
    """What a loop raises, without the group that its nursery puts around it."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


class _Work:
    _results: JsonlSink
    _failures: JsonlSink

    def __init__(
        self,
        run: PreparedRun,
        progress: Progress,
        on_outcome: OnOutcome | None,
        stop: StopRequest,
        grace_seconds: float,
    ) -> None:
        self.run = run
        self.progress = progress
        self.timing = TimingReport()
        self.ending = Ending.DONE
        self._draining = False  # the stream is closed, and what it gives it gives at once
        self._on_outcome = on_outcome
        self._stop = stop
        self._grace_seconds = grace_seconds
        self._unfinished: tuple[UnfinishedRollout, ...] = ()
        progress.to_send = run.pending

    async def consume(self, open_stream: OpenStream, results: JsonlSink, failures: JsonlSink) -> None:
        self._results, self._failures = results, failures
        with contextlib.closing(self._rows()) as rows:
            async with open_stream(rows) as stream:
                try:
                    await self._receive_all(stream)
                except BaseException:
                    await self._save_finished(stream)
                    raise
                self._unfinished = tuple(
                    UnfinishedRollout(task=one.row.get(TASK), rollout=one.row.get(ROLLOUT), delivery=one.delivery)
                    for one in stream.unfinished()
                )
        if self._stop.requested and self.progress.finished < self.progress.to_send:
            self.ending = Ending.STOPPED
        elif self.progress.drained:
            self.ending = Ending.BUDGET

    async def _receive_all(self, stream: RolloutStream) -> None:
        """Write every outcome as it comes; when the grace of a stop is over, those that are there by then."""
        with _bare_errors():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_stop, nursery.cancel_scope)
                async for outcome in stream:
                    await self._write(outcome)
                nursery.cancel_scope.cancel()
        self._draining = True
        for outcome in await stream.aclose_and_drain():
            await self._write(outcome)

    async def _save_finished(self, stream: RolloutStream) -> None:
        """When the loop was cut off, what had finished by then is still written, and nobody is told."""
        with trio.move_on_after(_LAST_WORDS_SECONDS, shield=True), contextlib.suppress(RunError):
            if self._draining:
                for outcome in await stream.aclose_and_drain():
                    self._write_nowait(outcome)
            else:
                while stream.statistics().ready:
                    self._write_nowait(await stream.receive())

    def _rows(self) -> Generator[dict[str, Any], None, None]:
        for row in self.run.rows(lambda: not self._stop.requested):
            self.progress.sent(row)
            yield row

    async def _watch_stop(self, scope: trio.CancelScope) -> None:
        """On a stop the source of rows ends by itself; what is in flight has the grace, and is delivered as it ends."""
        await self._stop.wait_drain()
        with trio.move_on_after(self._grace_seconds):
            await self._stop.wait_cut()
        scope.cancel()

    async def _write(self, outcome: RolloutOutcome) -> None:
        self._write_nowait(outcome)
        if self._on_outcome is not None:
            self._on_outcome(outcome)
        for sink in (self._results, self._failures):
            await sink.settle()

    def _write_nowait(self, outcome: RolloutOutcome) -> None:
        self.progress.ended(outcome.row)
        if isinstance(outcome, Drained):
            self.progress.drained += 1
        elif leaves_no_line(outcome):
            self.progress.withdrawn += 1
        else:
            self._write_line(outcome)

    def _write_line(self, outcome: Completed | Failed) -> None:
        row, is_result = row_of(outcome, secrets=self.run.secrets)
        if is_result and self.run.ledger.is_late(row):
            self.progress.late += 1
        elif is_result:
            try:
                self._results.append_nowait(row)
            except ValueError as error:
                row = unwritable(outcome, error)
                is_result = False
            else:
                self.run.ledger.record_result(row)
                self.progress.scored(row)
        if not is_result:
            self._failures.append_nowait(row)
            self.run.ledger.record_failure(row)
            self.progress.failed += 1
            self.progress.failure_classes[str(row.get(FAILURE_CLASS))] += 1
        self.timing.add(row, outcome.timing)

    async def unless_stopped(self, aggregate: Aggregate) -> list[dict[str, Any]] | None:
        """The aggregate; None when a stop is asked for before it is made. A resumed run makes it then."""
        made = None
        with _bare_errors():
            async with trio.open_nursery() as nursery:

                async def give_up() -> None:
                    await self._stop.wait_drain()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(give_up)
                made = await aggregate(self.run)
                nursery.cancel_scope.cancel()
        return made

    def report(self, timing: dict[str, Any]) -> RunReport:
        return RunReport(
            files=self.run.files,
            ending=self.ending,
            coverage=self.run.ledger.coverage(),
            resumed=self.run.resumed,
            completed=self.progress.completed,
            failed=self.progress.failed,
            drained=self.progress.drained,
            withdrawn=self.progress.withdrawn,
            unfinished=self._unfinished,
            failure_classes=dict(self.progress.failure_classes),
            late=self.progress.late,
            mean_reward=self.progress.mean_reward,
            timing=timing,
            notes=self.run.notes,
        )
