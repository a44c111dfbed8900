"""Where every row is. Phases, admission and accounting, in plain functions that never wait."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ..errors import Delivery, RowError
from ._attempt import RolloutAttempt
from ._limits import DispatchBudget, Limits
from ._outcomes import Completed, Drained, RolloutOutcome, Statistics, Unfinished
from ._rows import ROLLOUT_ID_KEY, rollout_id

CheckRow: TypeAlias = Callable[[dict[str, Any]], Any]


class Phase(enum.Enum):
    """The life of a stream."""

    ADMITTING = "admitting"  # rows are pulled and started; outcomes are received
    SPENT = "spent"  # the dispatch budget is spent: the rows of a finite source are still pulled, and drained
    FINISHING = "finishing"  # nothing is pulled any more; what was started goes on, and outcomes are received
    ENDED = "ended"  # the source has ended and every outcome was received
    GRACE = "grace"  # iteration was ended by a drain; what is in flight may still finish
    CUT = "cut"  # iteration was ended; what was in flight has been cancelled, and its tasks are waited for
    CLOSED = "closed"  # iteration was ended, and no task of the stream is left


# Up to Python 3.11 looking a member up costs as much as a call.
ADMITTING, SPENT, FINISHING, ENDED, GRACE, CUT, CLOSED = Phase

_MOVES: Final[dict[Phase, frozenset[Phase]]] = {
    ADMITTING: frozenset({SPENT, FINISHING, GRACE, CUT}),
    SPENT: frozenset({FINISHING, GRACE, CUT}),
    FINISHING: frozenset({ENDED, GRACE, CUT}),
    ENDED: frozenset({CLOSED}),
    GRACE: frozenset({CUT, CLOSED}),
    CUT: frozenset({CLOSED}),
    CLOSED: frozenset(),
}


class Ledger:
    """The accounts of one stream: every row that was pulled is in exactly one place."""

    def __init__(
        self, limits: Limits, opened_at: float, *, finite: bool, check_row: CheckRow | None, id_prefix: str
    ) -> None:
        self.phase = ADMITTING
        self.ready: deque[RolloutOutcome] = deque()  # has an outcome that nobody has received, in completion order
        self.feeding = True  # the task that pulls rows has not ended
        self._limits = limits
        self._budget = DispatchBudget(limits.dispatch_budget_seconds, limits.drain_margin_seconds)
        self._opened_at = opened_at
        self._finite = finite
        self._check_row = check_row
        self._id_prefix = id_prefix
        self._in_flight: dict[RolloutAttempt, None] = {}
        self._withdrawn: dict[int, Unfinished] = {}  # by position
        self._pulled = self._delivered = self._discarded = 0

    def move(self, to: Phase) -> None:
        """The only place where the phase changes."""
        if to not in _MOVES[self.phase]:
            raise RuntimeError(f"a rollout stream that is {self.phase.value} cannot become {to.value}")
        self.phase = to

    @property
    def admits(self) -> bool:
        """Rows are pulled."""
        return self.phase is ADMITTING or self.phase is SPENT

    @property
    def iterates(self) -> bool:
        """Outcomes go to those who receive."""
        phase = self.phase
        return phase is ADMITTING or phase is SPENT or phase is FINISHING

    @property
    def is_stopping(self) -> bool:
        """Iteration was ended from outside, and its end waits for tasks."""
        return self.phase is GRACE or self.phase is CUT

    @property
    def is_closed(self) -> bool:
        """Iteration was ended from outside, and no task is left."""
        return self.phase is CLOSED

    @property
    def is_idle(self) -> bool:
        """No task of the stream is left."""
        return not self.feeding and not self._in_flight

    def has_room(self) -> bool:
        """A slot is free for the next row."""
        in_flight = len(self._in_flight)
        concurrent, resident = self._limits.max_concurrent, self._limits.max_resident_tasks
        return (concurrent is None or in_flight < concurrent) and (
            resident is None or in_flight + len(self.ready) < resident
        )

    def admit(self, row: Any, now: float) -> RolloutAttempt | None:
        """Take a pulled row into the accounts; the attempt to start, or None if it must not be started.

        **Errors**: `RowError`, or what ``check_row`` raises; the row is then unfinished.
        """
        position = self._pulled
        self._pulled += 1
        accepted = False
        try:
            attempt = self._attempt(row, position, now)
            accepted = True
        finally:
            if not accepted:
                self._withdrawn[position] = Unfinished(row, Delivery.NOT_STARTED)
        if not self.admits:
            # An async source may hand over a row although its pull was cancelled.
            self._withdrawn[position] = Unfinished(attempt.kept_row, Delivery.NOT_STARTED)
            return None
        reason = self._budget.objection(now - self._opened_at)
        if reason is None and self.phase is ADMITTING:
            self._in_flight[attempt] = None
            return attempt
        self.ready.append(Drained(attempt.kept_row, reason or "dispatch budget: spent"))
        if self.phase is ADMITTING:
            self.move(SPENT if self._finite else FINISHING)
        return None

    def _attempt(self, row: Any, position: int, now: float) -> RolloutAttempt:
        if not isinstance(row, (dict, Mapping)):
            raise RowError(f"a row must be a dict, not {type(row).__qualname__}", line=position + 1)
        name = rollout_id(row, position, self._id_prefix)
        kept = {**row, ROLLOUT_ID_KEY: name}
        checked = None
        if self._check_row is not None:
            try:
                checked = self._check_row(kept)
            except RowError as error:
                if error.line is not None:
                    raise
                raise RowError(str(error), source=error.source, line=position + 1) from error
        return RolloutAttempt(kept, name, position, now, checked)

    def finish(self, attempt: RolloutAttempt, outcome: RolloutOutcome | None) -> None:
        """The attempt's task is over, with an outcome or without."""
        del self._in_flight[attempt]
        if outcome is None:
            self._withdrawn[attempt.position] = Unfinished(attempt.kept_row, attempt.delivery)
            return
        if isinstance(outcome, Completed):
            self._budget.completed(outcome.timing.elapsed_seconds)
        self.ready.append(outcome)

    def take(self) -> RolloutOutcome:
        """The oldest outcome; it counts as delivered from here on."""
        self._delivered += 1
        return self.ready.popleft()

    def take_all(self) -> list[RolloutOutcome]:
        """All outcomes that nobody has received; they count as delivered from here on."""
        taken = list(self.ready)
        self.ready.clear()
        self._delivered += len(taken)
        return taken

    def discard_all(self) -> None:
        """Release all outcomes that nobody has received."""
        self._discarded += len(self.ready)
        self.ready.clear()

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Every row without an outcome, in the order of pulling."""
        flying = {attempt.position: Unfinished(attempt.kept_row, attempt.delivery) for attempt in self._in_flight}
        return tuple(left for _, left in sorted((self._withdrawn | flying).items()))

    def statistics(self) -> Statistics:
        return Statistics(
            pulled=self._pulled,
            in_flight=len(self._in_flight),
            ready=len(self.ready),
            delivered=self._delivered,
            discarded=self._discarded,
            unfinished=len(self._withdrawn) + len(self._in_flight),
        )
