"""One attempt at one row, and carrying it out."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio
from trio.lowlevel import disable_ki_protection

from ..errors import Delivery, RolloutFailure
from ._failures import failure_of, timed_out
from ._outcomes import Completed, Failed, Timing


class RolloutAttempt:
    """What a rollout is carried out with.

    ``row`` is the rollout's own shallow copy of the source's row, with ``_ng_rollout_id``; ``rollout_id`` is that id.
    ``checked`` is what the stream's ``check_row`` returned for it.

    **Ownership**: the attempt belongs to its rollout and is forgotten with it.
    """

    __slots__ = ("__weakref__", "checked", "delivery", "kept_row", "position", "pulled_at", "rollout_id", "row")

    def __init__(self, row: dict[str, Any], rollout_id: str, position: int, pulled_at: float, checked: Any) -> None:
        self.kept_row = row  # becomes the outcome's; the rollout works on a copy, so it cannot take keys from it
        self.row = dict(row)
        self.rollout_id = rollout_id
        self.position = position
        self.pulled_at = pulled_at
        self.checked = checked
        self.delivery = Delivery.NOT_STARTED

    def __repr__(self) -> str:
        return f"<RolloutAttempt {self.rollout_id} {self.delivery}>"

    def mark_sent(self) -> None:
        """From here on the agent may have acted. To be called right before the first byte may reach it."""
        self.delivery = Delivery.POSSIBLY_DELIVERED


RunRollout: TypeAlias = Callable[[RolloutAttempt], Awaitable[Any]]


@disable_ki_protection  # what runs here is the caller's; who calls this is protected, so that the end is accounted for
async def run_rollout(
    attempt: RolloutAttempt, run: RunRollout, timeout_seconds: float = math.inf
) -> Completed | Failed | None:
    """Carry out one attempt: its outcome, or None if it was cancelled from outside before it had one.

    Everything that is an `Exception` becomes a `Failed`, whenever it is raised, also by cleanup after a cancellation.

    **Cancellation**: reaches ``run``; a result that it returns nevertheless is a result.

    **Errors**: only what must end the program passes: ``KeyboardInterrupt``, ``SystemExit`` and their like.
    """
    started_at = trio.current_time()
    attempt.delivery = Delivery.NOT_SENT
    # A scope is five of the nineteen objects that the collector finds per resident rollout: none without a bound.
    scope = None if timeout_seconds == math.inf else trio.CancelScope(deadline=started_at + timeout_seconds)
    failure: RolloutFailure | None
    try:
        if scope is None:
            result = await run(attempt)
            return Completed(attempt.kept_row, result, Timing(attempt.pulled_at, started_at, trio.current_time()))
        with scope:
            result = await run(attempt)
            return Completed(attempt.kept_row, result, Timing(attempt.pulled_at, started_at, trio.current_time()))
        failure = timed_out(timeout_seconds, attempt.delivery)
    except BaseException as error:
        if ends_the_program(error):
            raise
        if scope is not None and scope.cancelled_caught:
            failure = timed_out(timeout_seconds, attempt.delivery)
        else:
            failure = _as_data(error, attempt.delivery)
    if failure is None:
        return None
    return Failed(attempt.kept_row, failure, Timing(attempt.pulled_at, started_at, trio.current_time()))


def ends_the_program(error: BaseException) -> bool:
    """``error`` is neither data nor a cancellation: ``KeyboardInterrupt``, ``SystemExit`` and their like."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(ends_the_program, error.exceptions))
    return not isinstance(error, (Exception, trio.Cancelled))


def _as_data(error: BaseException, delivery: Delivery) -> RolloutFailure | None:
    """The failure in what was raised, or None if there is nothing in it but this task's own cancellation."""
    found: BaseException | None = None if isinstance(error, trio.Cancelled) else error
    if isinstance(error, BaseExceptionGroup):
        found = error.split(trio.Cancelled)[1]
    if isinstance(found, Exception):
        return failure_of(found, delivery)
    if trio.current_effective_deadline() == -math.inf:
        return None
    # A Cancelled of some other scope, kept and raised here, says nothing about this task: it is an error of `run`.
    return failure_of(RuntimeError("a trio.Cancelled was raised outside the scope it belongs to"), delivery)
