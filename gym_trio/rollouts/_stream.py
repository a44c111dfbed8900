"""`RolloutStream`: the tasks of a stream, and those who wait for it. Every decision is the ledger's."""

from __future__ import annotations

import math
from typing import Any

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from ._attempt import RolloutAttempt, RunRollout, ends_the_program, run_rollout
from ._keep import Keep
from ._ledger import CLOSED, CUT, ENDED, FINISHING, GRACE, CheckRow, Ledger, Phase
from ._limits import Limits, checked_seconds
from ._line import Line
from ._outcomes import RolloutOutcome, Statistics, Unfinished
from ._source import End, RowSource


class RolloutStream:
    """The outcomes of one block of rollouts. Made by `open_rollout_stream`, which runs ``_work`` beside the block.

    Any number of tasks may receive from one stream. Each outcome goes to exactly one of them, the one that has waited
    longest, and wakes no other. The stream keeps no reference to what it has delivered.
    """

    # What is entered from outside is protected from KeyboardInterrupt, and so is everything it calls: an interrupt
    # comes in user code or in a wait, never between two halves of a hand-over.

    def __init__(
        self, source: RowSource, run: RunRollout, limits: Limits, check_row: CheckRow | None, id_prefix: str = ""
    ) -> None:
        self._source = source
        self._run = run
        timeout = limits.rollout_timeout_seconds
        self._timeout = math.inf if timeout is None else timeout
        self._ledger = Ledger(
            limits, trio.current_time(), finite=source.finite, check_row=check_row, id_prefix=id_prefix
        )
        self._consumers: Line[RolloutOutcome | BaseException | None] = Line()
        self._feeders: Line[None] = Line()
        self._drains: Line[list[RolloutOutcome]] = Line()
        self._closers: Line[None] = Line()
        self._pulling = trio.CancelScope()  # around the pulling of rows
        self._running = trio.CancelScope()  # around every rollout, and the pulling
        self._draining = 0  # drains under way: each may still want what has finished
        self._released = False  # a close wants no outcome any more, unless a drain does
        self._source_error = Keep(Exception)

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={count}" for name, count in attrs.asdict(self.statistics()).items())
        return f"<RolloutStream {self._ledger.phase.value}: {counts}>"

    def statistics(self) -> Statistics:
        """Where every row is, now."""
        return self._ledger.statistics()

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Every pulled row that has no outcome, in the order of pulling; while the stream runs, those in flight too."""
        return self._ledger.unfinished()

    def __aiter__(self) -> RolloutStream:
        return self

    @enable_ki_protection
    async def __anext__(self) -> RolloutOutcome:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    @enable_ki_protection
    async def receive(self) -> RolloutOutcome:
        """The next outcome.

        **Cancellation**: takes nothing: the outcome goes to the next who asks. A caller that has already been given an
        outcome when it is cancelled returns with it.

        **Errors**: ``trio.EndOfChannel`` when there are no more outcomes, and after any close. What the source raised
        is raised once, after the last outcome.
        """
        ledger = self._ledger
        given: RolloutOutcome | BaseException | None = None
        if ledger.iterates:
            if ledger.ready:
                await trio.lowlevel.checkpoint_if_cancelled()
                given = ledger.take()
                self._settle()
                await trio.lowlevel.cancel_shielded_checkpoint()
                return given
            given = await self._consumers.wait()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
            if ledger.phase is ENDED:
                given = self._source_error.take()
        if given is None:
            raise trio.EndOfChannel
        if isinstance(given, BaseException):
            raise given
        return given

    @enable_ki_protection
    async def aclose(self) -> None:
        """Stop: admit nothing more, cancel what is in flight, release what nobody has received, end the iteration.

        Idempotent, and safe from several tasks and inside the loop. It cuts the grace of a drain that is under way;
        that drain still returns what had finished. Returns when the tasks of the stream have ended. It waits for local
        tasks only: a remote server or sandbox is told to stop by its connection's end, and may go on for a while.

        **Cancellation**: ends the waiting; the stream is stopped nevertheless, and a later call waits for it again.
        """
        self._stop(CUT)
        self._released = True
        self._settle()
        if self._ledger.is_closed:
            await trio.lowlevel.checkpoint()
        else:
            await self._closers.wait()

    @enable_ki_protection
    async def aclose_and_drain(self, grace_seconds: float = 0) -> list[RolloutOutcome]:
        """Stop, and return every outcome that nobody has received, in the order in which they came to be.

        Admission and iteration have ended before the first checkpoint. What is in flight gets ``grace_seconds`` to
        finish and is cancelled then. Like `aclose` it waits for local tasks only and does not confirm that a remote
        server or sandbox has stopped. Of several drains at once, one gets the outcomes and the others nothing.

        **Cancellation**: takes nothing: what this call has not returned, a later call returns. If it is cancelled in
        its grace, what is in flight goes on until the next close.
        """
        checked_seconds("grace_seconds", grace_seconds)
        self._stop(CUT if grace_seconds == 0 else GRACE)
        if self._ledger.is_closed:
            await trio.lowlevel.checkpoint()
            return self._ledger.take_all()
        given: list[RolloutOutcome] | None = None
        self._draining += 1
        try:
            if self._ledger.phase is GRACE:
                with trio.move_on_after(grace_seconds):
                    given = await self._drains.wait()
                if given is None:
                    self._stop(CUT)
            if given is None and not self._ledger.is_closed:
                given = await self._drains.wait()
            # Closed between the end of the grace and now: what has finished was left for this call.
            return self._ledger.take_all() if given is None else given
        finally:
            self._draining -= 1
            self._settle()

    def _stop(self, to: Phase) -> None:
        """End the iteration, and everything else that ends at once with ``to``: ``GRACE`` or ``CUT``."""
        ledger = self._ledger
        if ledger.phase is ENDED:
            ledger.move(CLOSED)
        if ledger.phase in (to, CUT, CLOSED):
            return
        ledger.move(to)
        self._pulling.cancel()
        self._consumers.give_all(None)
        if to is CUT:
            self._running.cancel()
        self._settle()

    def _settle(self) -> None:
        """After any change: hand over what can be, wake who can go on, and see whether this was the last of it."""
        ledger = self._ledger
        if ledger.iterates:
            while ledger.ready and self._consumers:
                self._consumers.give(ledger.take())
            if self._feeders and ledger.has_room():
                self._feeders.give(None)
            if ledger.phase is FINISHING and ledger.is_idle and not ledger.ready:
                ledger.move(ENDED)
                if self._consumers:
                    self._consumers.give(self._source_error.take())
                self._consumers.give_all(None)
            return
        if ledger.is_idle and ledger.is_stopping:
            ledger.move(CLOSED)
            if self._drains:
                self._drains.give(ledger.take_all())
                self._drains.give_all([])
        if self._released and not self._draining:
            ledger.discard_all()
        if ledger.is_closed and not (self._draining and ledger.ready):
            self._closers.give_all(None)

    def _leave(self) -> None:
        """The block is being left: as a close that nobody waits for but the block itself."""
        self._stop(CUT)
        self._released = True
        self._settle()

    @enable_ki_protection
    async def _work(self, block: trio.CancelScope) -> None:
        """The one task beside the block: it pulls the rows and owns the nursery of their rollouts."""
        with self._running:
            async with trio.open_nursery() as nursery:
                try:
                    with self._source_error:
                        await self._feed_and_close(nursery, block)
                except BaseException as error:
                    if ends_the_program(error):
                        block.cancel()
                    raise
                finally:
                    self._fed()

    async def _feed_and_close(self, nursery: trio.Nursery, block: trio.CancelScope) -> None:
        try:
            with self._pulling:
                await self._feed(nursery, block)
        finally:
            await self._source.aclose()

    async def _feed(self, nursery: trio.Nursery, block: trio.CancelScope) -> None:
        ledger = self._ledger
        while ledger.admits:
            if ledger.has_room():
                # One step per row, so that an endless source can be stopped.
                await trio.lowlevel.checkpoint()
            else:
                await self._feeders.wait()
            if not ledger.admits:
                return
            row = await self._source.pull()
            if row is End.END:
                return
            self._admit(row, nursery, block)
            del row  # it may be long until the next

    def _admit(self, row: Any, nursery: trio.Nursery, block: trio.CancelScope) -> None:
        attempt = self._ledger.admit(row, trio.current_time())
        if attempt is not None:
            nursery.start_soon(self._carry_out, attempt, block)
        else:
            self._settle()

    def _fed(self) -> None:
        """The last row has been pulled, and the source is closed."""
        ledger = self._ledger
        ledger.feeding = False
        if ledger.admits:
            ledger.move(FINISHING)
        self._settle()

    @enable_ki_protection
    async def _carry_out(self, attempt: RolloutAttempt, block: trio.CancelScope) -> None:
        outcome: RolloutOutcome | None = None
        try:
            if self._ledger.phase is not CUT:
                outcome = await run_rollout(attempt, self._run, self._timeout)
        except BaseException:
            block.cancel()  # before anyone can take the end of this rollout for an end of the stream
            raise
        finally:
            self._finished(attempt, outcome)

    def _finished(self, attempt: RolloutAttempt, outcome: RolloutOutcome | None) -> None:
        self._ledger.finish(attempt, outcome)
        self._settle()
