"""``eval reverify``: the rewards of recorded rollouts by the verifier as it is now, without a model."""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import attrs
import trio

from ..errors import FailureKind, RolloutFailure, Stage, TransportError
from ..rollouts import Completed, RolloutAttempt, RolloutOutcome, RolloutStream, open_rollout_stream
from ._collect import GRACE_SECONDS, Aggregate, OnOutcome, collect
from ._jsonl import read_jsonl
from ._keys import ROLLOUT, TASK
from ._prepare import PreparedRun
from ._report import Progress, RunReport, StopRequest

Verify = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any] | float]]

PREVIOUS_REWARD = "_ng_previous_reward"
_TOLERANCE = 1e-9
_SHOWN = 100
_CHECK_EVERY = 500
# What the earlier verifier said; none of it may pass for what this one says.
_EARLIER = ("reward", "reward_components", "mask_sample", "failure_kind", "failure_reason", "ng_perf")


@attrs.frozen
class RewardChange:
    """A rollout whose reward is not what it was."""

    task: int
    rollout: int
    before: float | None
    after: float | None


@attrs.frozen(kw_only=True)
class Reverified:
    """How a reverification ended, and what it changed."""

    report: RunReport
    same: int
    changed: int
    changes: tuple[RewardChange, ...]  # the first hundred


async def reverify_rollouts(
    run: PreparedRun,
    verify: Verify,
    *,
    max_concurrent: int | None = 64,
    timeout_seconds: float | None = None,
    progress: Progress | None = None,
    on_outcome: OnOutcome | None = None,
    stop: StopRequest | None = None,
    grace_seconds: float = GRACE_SECONDS,
    aggregate: Aggregate | None = None,
) -> Reverified:
    """Verify every recorded rollout of ``run`` again, and write it with its new reward.

    ``run`` is prepared with ``recorded=True`` and the recorded rollouts as its rows. ``verify`` gets a row without what
    an earlier verifier said of it, and gives a reward or a verify response. A row that it cannot verify is a failure
    row; the earlier reward stands beside the new one as ``_ng_previous_reward``. Resume, lock, stop and files are those
    of any run.

    **Cancellation** and **Errors**: as `collect`.
    """
    tally = _Tally()
    if run.resumed:
        await trio.to_thread.run_sync(tally.add_earlier, run.files.output)

    async def attempt(rollout: RolloutAttempt) -> dict[str, Any]:
        row = {name: value for name, value in rollout.row.items() if name not in _EARLIER}
        rollout.mark_sent()
        try:
            said = await verify(row)
        except (RolloutFailure, TransportError):
            raise
        except Exception as error:  # noqa: BLE001  a verifier is anyone's code; what it raises is this row's failure
            raise RolloutFailure(
                FailureKind.VERIFIER_ERROR,
                str(error) or type(error).__name__,
                getattr(error, "status", None),
                Stage.VERIFICATION,
                body=getattr(error, "body", ""),
                exception_type=type(error).__name__,
            ) from None
        verdict = said if isinstance(said, Mapping) else {"reward": said}
        return {**row, **verdict, PREVIOUS_REWARD: rollout.row.get("reward")}

    @contextlib.asynccontextmanager
    async def open_stream(rows: Iterator[dict[str, Any]]) -> AsyncIterator[RolloutStream]:
        opened = open_rollout_stream(
            rows, attempt, max_concurrent=max_concurrent, rollout_timeout_seconds=timeout_seconds
        )
        async with opened as stream:
            yield stream

    def note(outcome: RolloutOutcome) -> None:
        if isinstance(outcome, Completed):
            tally.add(outcome.result)
        if on_outcome is not None:
            on_outcome(outcome)

    report = await collect(
        run,
        open_stream,
        progress=progress,
        on_outcome=note,
        stop=stop,
        grace_seconds=grace_seconds,
        aggregate=aggregate,
    )
    return Reverified(report=report, same=tally.same, changed=tally.changed, changes=tuple(tally.changes))


class _Tally:
    """Counts over the whole reverification, also where it is resumed."""

    def __init__(self) -> None:
        self.same = 0
        self.changed = 0
        self.changes: list[RewardChange] = []

    def add_earlier(self, output: pathlib.Path) -> None:
        """Add what was verified before, from a thread."""
        for number, row in read_jsonl(output) if output.exists() else ():
            if number % _CHECK_EVERY == 1:
                trio.from_thread.check_cancelled()
            if PREVIOUS_REWARD in row:
                self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        before, after = row.get(PREVIOUS_REWARD), row.get("reward")
        if _equal(before, after):
            self.same += 1
            return
        self.changed += 1
        if len(self.changes) < _SHOWN:
            self.changes.append(RewardChange(row[TASK], row[ROLLOUT], before, after))


def _equal(before: Any, after: Any) -> bool:
    if isinstance(before, int | float) and isinstance(after, int | float):
        return math.isclose(before, after, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return bool(before == after)
