"""What becomes of a row. Frozen records, compared by identity: each is delivered to exactly one consumer."""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

import attrs

from ..errors import Delivery, FailureKind, RolloutFailure, Stage


@attrs.frozen
class Timing:
    """Three instants of one rollout, on trio's clock."""

    pulled_at: float  # the row was taken from its source
    started_at: float  # its task ran
    finished_at: float  # its result or its failure was known

    @property
    def elapsed_seconds(self) -> float:
        """How long the rollout itself took."""
        return self.finished_at - self.started_at


@attrs.frozen(eq=False)
class Completed:
    """The rollout came back with a result."""

    row: dict[str, Any]  # a copy of the source's row, with the `_ng_rollout_id` it ran under
    result: Any
    timing: Timing

    def unwrap(self) -> tuple[dict[str, Any], Any]:
        """``(row, result)``."""
        return self.row, self.result


@attrs.frozen(eq=False)
class Failed:
    """The rollout failed. A failure is data: it holds no traceback and no frames of what raised it."""

    row: dict[str, Any]
    failure: RolloutFailure
    timing: Timing

    def unwrap(self) -> NoReturn:
        """Raise the failure."""
        raise self.failure.with_traceback(None)


@attrs.frozen(eq=False)
class Drained:
    """The row was pulled and not started, because the dispatch budget would not have let it finish."""

    row: dict[str, Any]
    reason: str

    def unwrap(self) -> NoReturn:
        """Raise a failure of kind ``cancelled`` and stage ``admission``; another attempt is as good as a first."""
        raise RolloutFailure(FailureKind.CANCELLED, self.reason, stage=Stage.ADMISSION, delivery=Delivery.NOT_STARTED)


RolloutOutcome: TypeAlias = Completed | Failed | Drained


@attrs.frozen(eq=False)
class Unfinished:
    """A row that was pulled and has no outcome, and how far it got."""

    row: Any  # a dict, unless the source gave something else, which ended the stream
    delivery: Delivery


@attrs.frozen
class Statistics:
    """Where every row is, at one instant. ``pulled = delivered + discarded + ready + unfinished``, always."""

    pulled: int  # taken from the source
    in_flight: int  # started and not ended; part of `unfinished`
    ready: int  # has an outcome that nobody has received
    delivered: int  # its outcome was received, or returned by a drain
    discarded: int  # its outcome was released by a close
    unfinished: int  # has no outcome: `len(stream.unfinished())`
