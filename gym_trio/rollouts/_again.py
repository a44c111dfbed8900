"""Which rows a trainer may send again, and with which attempt index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import Delivery
from ._outcomes import Drained, Failed, RolloutOutcome, Unfinished
from ._rows import next_attempt


def rows_to_send_again(
    outcomes: Iterable[RolloutOutcome] = (), unfinished: Iterable[Unfinished] = ()
) -> list[dict[str, Any]]:
    """The rows that may be sent again: of failures that are not terminal, of drained and of unfinished rows.

    Rows whose attempt may have reached an agent get their next attempt index, so that the new attempt cannot be taken
    for the old one, which may still be alive there. Rows that reached nobody keep theirs. Give it
    ``stream.unfinished()`` only after a close: before, it lists the rows in flight too.
    """
    rows = []
    for outcome in outcomes:
        if isinstance(outcome, Failed) and not outcome.failure.terminal:
            reached = outcome.failure.delivery is Delivery.POSSIBLY_DELIVERED
            rows.append(next_attempt(outcome.row) if reached else dict(outcome.row))
        elif isinstance(outcome, Drained):
            rows.append(dict(outcome.row))
    for left in unfinished:
        if isinstance(left.row, dict):
            reached = left.delivery is Delivery.POSSIBLY_DELIVERED
            rows.append(next_attempt(left.row) if reached else dict(left.row))
    return rows


def rows_of_whole_group(outcomes: Iterable[RolloutOutcome]) -> list[dict[str, Any]]:
    """The rows with which a group that was set aside may be tried again as a whole; terminal failures stay out."""
    return [
        dict(outcome.row) if isinstance(outcome, Drained) else next_attempt(outcome.row)
        for outcome in outcomes
        if not (isinstance(outcome, Failed) and outcome.failure.terminal)
    ]
