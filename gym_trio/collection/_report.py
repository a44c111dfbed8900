"""What a run tells: while it goes on (`Progress`), and when it has ended (`RunReport`)."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs
import trio

from ..errors import Delivery
from ..metrics import RunningReward
from ..rollouts import rollout_id
from ._keys import ATTEMPT, ROLLOUT, ROLLOUT_ID, TASK
from ._ledger import Coverage
from ._paths import RunFiles


class Ending(enum.StrEnum):
    """Why no more rows were sent."""

    DONE = "done"  # every row that was to be sent has its outcome
    BUDGET = "budget"  # the dispatch budget would not have let the others finish
    STOPPED = "stopped"  # a stop was asked for, and what was in flight had its grace


@attrs.frozen
class InFlight:
    """A rollout that was sent and has not come back."""

    task: int | None
    rollout: int | None
    attempt: int
    rollout_id: str
    agent: str | None
    age_seconds: float


class StopRequest:
    """How a run is told to stop, by whoever reads the signals.

    ``drain()``: no further row is sent; what is in flight has the run's grace. ``cut()``: the grace is over now.
    Both may be called at any time and more than once, from the run's own thread.
    """

    def __init__(self) -> None:
        self._drain = trio.Event()
        self._cut = trio.Event()

    def drain(self) -> None:
        self._drain.set()

    def cut(self) -> None:
        self._drain.set()
        self._cut.set()

    @property
    def requested(self) -> bool:
        return self._drain.is_set()

    async def wait_drain(self) -> None:
        """Wait until a stop is asked for."""
        await self._drain.wait()

    async def wait_cut(self) -> None:
        """Wait until the grace is over by request."""
        await self._cut.wait()


class Progress:
    """How far a run is. Read it at any time; only the run changes it."""

    def __init__(self) -> None:
        self.to_send = 0  # rollouts that this run has to make
        self.completed = 0
        self.failed = 0
        self.drained = 0  # pulled and not sent, because they could not have finished; they leave no line
        self.withdrawn = 0  # ended without an outcome of their own; they leave no line
        self.late = 0  # results of an attempt older than one that is known; they leave no line
        self.failure_classes: Counter[str] = Counter()
        self._reward = RunningReward()
        self._since: dict[tuple[Any, Any], tuple[float, Mapping[str, Any]]] = {}

    @property
    def finished(self) -> int:
        return self.completed + self.failed + self.drained + self.withdrawn + self.late

    @property
    def mean_reward(self) -> float | None:
        """The mean of the rewards so far, without masked rollouts and failures."""
        return self._reward.statistics().mean_reward

    def in_flight(self) -> list[InFlight]:
        """What was sent and has not come back, the oldest first."""
        now = trio.current_time()
        return [
            InFlight(
                task=row.get(TASK),
                rollout=row.get(ROLLOUT),
                attempt=row.get(ATTEMPT, 0),
                rollout_id=rollout_id(row, 0),
                agent=(row.get("agent_ref") or {}).get("name"),
                age_seconds=now - since,
            )
            for since, row in self._since.values()
        ]

    def sent(self, row: Mapping[str, Any]) -> None:
        """Note that a row was pulled."""
        kept = {name: row[name] for name in (TASK, ROLLOUT, ATTEMPT, ROLLOUT_ID, "agent_ref") if name in row}
        self._since[_key(row)] = (trio.current_time(), kept)

    def ended(self, row: Mapping[str, Any]) -> None:
        """Note that a row has its outcome."""
        self._since.pop(_key(row), None)

    def scored(self, row: Mapping[str, Any]) -> None:
        """Note a result row."""
        self.completed += 1
        self._reward.add(row)


def _key(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get(TASK), row.get(ROLLOUT)


@attrs.frozen(kw_only=True)
class UnfinishedRollout:
    """A rollout that was pulled and has no outcome; it leaves no line, and a resumed run makes it again."""

    task: int | None
    rollout: int | None
    delivery: Delivery


@attrs.frozen(kw_only=True)
class RunReport:
    """How a run ended."""

    files: RunFiles
    ending: Ending
    coverage: Coverage
    resumed: bool
    completed: int  # by this run alone, as the four that follow
    failed: int
    drained: int
    withdrawn: int
    unfinished: tuple[UnfinishedRollout, ...]
    failure_classes: Mapping[str, int]
    late: int  # results of an attempt older than one that is known; they count for nothing
    mean_reward: float | None  # of this run's own results
    timing: Mapping[str, Any] = attrs.field(repr=False)
    aggregate: list[dict[str, Any]] | None = attrs.field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every rollout of the run has a result, this run's or an earlier one's."""
        return self.coverage.complete
