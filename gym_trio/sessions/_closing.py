"""The one way in which a session ends, whoever asks for it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Generic

import attrs
import trio

from gym_trio.errors import SessionCloseFailed

from ._phases import CLOSE_ASKED, CLOSE_CONFIRMED, CLOSE_FAILED
from ._records import NOTHING, CloseAttempt, Receipt, Session, State

logger = logging.getLogger("gym_trio.sessions")

# How long after its deadline a cancelled close may take to unwind before it counts as code that ignores cancellation.
SETTLE_SECONDS = 0.25


@attrs.define(eq=False)
class Closer(Generic[State]):
    """Starts, joins and settles closes.

    **Ownership**: every close runs in ``nursery``, shielded, under a deadline of its own. Once ``retired``, when that
    nursery takes no more tasks, a close runs in the task that joins it, shielded and bounded just the same.
    """

    nursery: trio.Nursery
    timeout_seconds: float
    on_confirmed: Callable[[Session[State]], None]
    running: dict[CloseAttempt, Session[State]] = attrs.field(factory=dict)
    confirmed: int = 0
    failed: int = 0
    retired: bool = False
    drain_deadline: float = math.inf  # finite while a drain runs: no close may outlast it

    def begin(self, session: Session[State], *, stop_opening: bool = False) -> CloseAttempt:
        """Give the close that is running, or start one; decided here and now, without a checkpoint.

        An open that still runs is waited for, or with ``stop_opening`` cancelled. A session that has nothing to close,
        or no code for it, is closed on return.
        """
        if stop_opening and session.opening is not None:
            session.opening.scope.cancel()
        attempt = session.running_close
        if attempt is not None:
            return attempt
        session.happened(CLOSE_ASKED)
        attempt = session.attempt = CloseAttempt()
        if not session.opening_runs and (session.state is NOTHING or session.close is None):
            self._confirm(session, attempt, None)
            return attempt
        attempt.started_at = now = trio.current_time()
        attempt.scope = trio.CancelScope(deadline=min(now + self.timeout_seconds, self.drain_deadline), shield=True)
        self.running[attempt] = session
        if self.retired:
            attempt.owned = False
        else:
            self.nursery.start_soon(self.run, session, attempt, name=f"close of session {session.session_id}")
        return attempt

    def begin_and_end(self, session: Session[State]) -> None:
        """Close a ready session that has no code for it. Nobody waits for what is over on return."""
        session.happened(CLOSE_ASKED)
        self._confirm(session, None, None)

    async def run(self, session: Session[State], attempt: CloseAttempt) -> None:
        """Carry out ``attempt``: wait until the open has let go, then close what it made."""
        value: Any = None
        cause: BaseException | None = None
        try:
            with attempt.scope:
                if session.opening is not None:
                    await session.opening.done.wait()
                if session.state is not NOTHING and session.close is not None:
                    value = await session.close(session.state)
        except Exception as error:
            logger.warning("closing session %s failed", session.session_id, exc_info=error)
            cause = error
        except BaseException as error:
            cause = error
            raise
        finally:
            del self.running[attempt]
            # Code that was told to stop and returned all the same proves nothing: it may have swallowed its
            # cancellation half-way. So a close that its deadline has reached is never a confirmed one.
            if attempt.scope.cancel_called:
                allowed = max(0.0, attempt.scope.deadline - attempt.started_at)
                self._fail(session, attempt, f"its close was cut by its deadline after {allowed:g} s", cause)
            elif cause is not None:
                self._fail(session, attempt, f"its close raised {cause!r}", cause)
            else:
                self._confirm(session, attempt, value)

    def _confirm(self, session: Session[State], attempt: CloseAttempt | None, value: Any) -> None:
        self.confirmed += 1
        receipt = Receipt(session.session_id, value, session.state is not NOTHING)
        session.happened(CLOSE_CONFIRMED)
        session.receipt, session.state, session.close = receipt, NOTHING, None
        if attempt is not None:
            attempt.ended = True
            attempt.settle(receipt=receipt)
        self.on_confirmed(session)

    def _fail(self, session: Session[State], attempt: CloseAttempt, why: str, cause: BaseException | None) -> None:
        attempt.ended = True
        self.failed += 1
        session.happened(CLOSE_FAILED)
        if session.opening is not None:
            session.opening.scope.cancel()  # it has kept this close waiting for all of its time
        attempt.settle(failure=why, cause=cause)

    async def adopt(self, session: Session[State], attempt: CloseAttempt) -> None:
        """Carry out ``attempt`` in this task if no task does; else return at once, without a checkpoint."""
        if not attempt.owned:
            attempt.owned = True
            await self.run(session, attempt)

    async def join(self, session: Session[State], attempt: CloseAttempt) -> Receipt:
        """Wait for ``attempt`` and give its receipt.

        **Cancellation**: ends the waiting alone, never the close.

        **Errors**: `SessionCloseFailed`; the state is kept.
        """
        await self.adopt(session, attempt)
        if attempt.settled.is_set():
            await trio.lowlevel.checkpoint()
        while not attempt.settled.is_set():
            # The drain may have moved the deadline to an earlier time meanwhile.
            until = attempt.scope.deadline + SETTLE_SECONDS
            with trio.move_on_at(until):
                await attempt.settled.wait()
            if trio.current_time() >= until:
                self.give_up(attempt)
        if attempt.receipt is None:
            raise SessionCloseFailed(f"session {session.session_id!r}: {attempt.failure}") from attempt.cause
        return attempt.receipt

    def give_up(self, attempt: CloseAttempt) -> None:
        """Answer those who wait for code that has been told to stop and has not. It stays this registry's task."""
        attempt.settle(failure="its close ignores its cancellation and still runs")

    async def settle(self, attempts: list[CloseAttempt]) -> None:
        """Wait until each of ``attempts`` is settled: until ``drain_deadline``, and the time they take to unwind."""
        attempts = [attempt for attempt in attempts if not attempt.settled.is_set()]
        for attempt in attempts:
            attempt.scope.deadline = min(attempt.scope.deadline, self.drain_deadline)
        with trio.move_on_at(self.drain_deadline):
            for attempt in attempts:
                if not attempt.settled.is_set():
                    await attempt.settled.wait()
        left = [attempt for attempt in attempts if not attempt.settled.is_set()]
        while left:
            # As long as some of them unwind, all may: thousands that are cut at once take a while.
            with trio.move_on_after(SETTLE_SECONDS):
                await left[-1].settled.wait()
            before, left = left, [attempt for attempt in left if not attempt.settled.is_set()]
            if len(left) == len(before):
                for attempt in left:
                    self.give_up(attempt)
                return
