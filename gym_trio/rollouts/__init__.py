"""Rollouts: rows in, outcomes out, and stopping that is exact.

=================  ==========================================================================================
``_rows``          a row's rollout id; the row of its next attempt
``_outcomes``      what becomes of a row: `Completed`, `Failed`, `Drained`; `Unfinished`, `Statistics`, `Timing`
``_failures``      the one place where what a rollout raised becomes a `RolloutFailure`
``_attempt``       `RolloutAttempt`, and carrying out one
``_source``        rows from an iterable or an async iterable, and its end
``_limits``        the bounds of a stream, and the margin that its dispatch budget keeps
``_ledger``        where every row is: phases, admission and accounting, in plain functions
``_line``          tasks that wait, first come first served
``_stream``        `RolloutStream`: its tasks, and those who wait for it
``_open``          `open_rollout_stream`: the block that owns the tasks
``_keep``          exceptions that are kept until the tasks beside them have ended
``_policies``      until a deadline, until a count, per group of repeats: functions over a stream
``_groups``        groups of repeats: which outcome belongs where, and when a group waits no longer
``_again``         which rows may be sent again
=================  ==========================================================================================
"""

from __future__ import annotations

from ._again import rows_to_send_again
from ._attempt import RolloutAttempt, RunRollout
from ._groups import Group, TakenGroups
from ._open import open_rollout_stream
from ._outcomes import Completed, Drained, Failed, RolloutOutcome, Statistics, Timing, Unfinished
from ._policies import Taken, take_groups, take_until_count, take_until_deadline
from ._rows import next_attempt, rollout_id
from ._stream import RolloutStream

__all__ = [
    "Completed",
    "Drained",
    "Failed",
    "Group",
    "RolloutAttempt",
    "RolloutOutcome",
    "RolloutStream",
    "RunRollout",
    "Statistics",
    "Taken",
    "TakenGroups",
    "Timing",
    "Unfinished",
    "next_attempt",
    "open_rollout_stream",
    "rollout_id",
    "rows_to_send_again",
    "take_groups",
    "take_until_count",
    "take_until_deadline",
]
