"""Every row is in exactly one place, at every instant, and how far it got is told truthfully."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.rollouts import Drained, RolloutAttempt, RolloutStream, open_rollout_stream

Rows = Callable[[int], list[dict[str, Any]]]
Balanced = Callable[[RolloutStream], None]


async def test_statistics_are_a_frozen_snapshot(scripted: Any, rows: Rows) -> None:
    """statistics() tells where rows are now, and the record does not change afterwards."""
    async with open_rollout_stream(rows(5), scripted, max_concurrent=3) as stream:
        before = stream.statistics()
        await wait_all_tasks_blocked()
        scripted.finish(0)
        scripted.finish(1)
        await wait_all_tasks_blocked()
        await stream.receive()
        now = stream.statistics()
        assert attrs.asdict(before) == dict.fromkeys(attrs.asdict(before), 0)
        assert (now.pulled, now.in_flight, now.ready, now.delivered, now.discarded) == (5, 3, 1, 1, 0)
        assert now.unfinished == len(stream.unfinished()) == 3
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            now.pulled = 9  # type: ignore[misc]


async def test_unfinished_tells_how_far_each_row_got(scripted: Any, balanced: Balanced) -> None:
    """not_started, not_sent and possibly_delivered are told apart, in the order of pulling."""

    async def rows() -> AsyncIterator[dict[str, Any]]:
        yield {"i": 0}
        yield {"i": 1}
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            yield {"i": 2}  # an async source may hand over a row although its pull was cancelled

    async with open_rollout_stream(rows(), scripted) as stream:
        await wait_all_tasks_blocked()
        scripted.attempts[1].mark_sent()
        assert [(left.row["i"], left.delivery) for left in stream.unfinished()] == [
            (0, "not_sent"),
            (1, "possibly_delivered"),
        ]
        await stream.aclose()
        told = {left.row["i"]: left.delivery for left in stream.unfinished()}
        assert told == {0: "not_sent", 1: "possibly_delivered", 2: "not_started"}
        assert scripted.started == [0, 1]
        balanced(stream)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        stream.unfinished()[0].row = None  # type: ignore[misc]


async def test_drained_outcomes_count_as_delivered_or_discarded(rows: Rows, balanced: Balanced) -> None:
    """A Drained row is an outcome like any other in the accounts."""

    async def run(attempt: RolloutAttempt) -> None:
        raise AssertionError("started")

    bounds = {"dispatch_budget_seconds": 0.0, "drain_margin_seconds": 1.0}
    async with open_rollout_stream(rows(4), run, **bounds) as stream:  # type: ignore[arg-type]
        await wait_all_tasks_blocked()
        assert isinstance(await stream.receive(), Drained)
        assert len(await stream.aclose_and_drain()) == 3
        assert stream.statistics().delivered == 4
        balanced(stream)
    async with open_rollout_stream(rows(4), run, **bounds) as stream:  # type: ignore[arg-type]
        await wait_all_tasks_blocked()
    assert stream.statistics().discarded == 4
    balanced(stream)


class CancelAt(trio.abc.Instrument):
    """Cancels its scope right before the n-th task step from now."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.scope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


class Scene:
    """Consumers, a drain and a close over eight rows, one part of which runs in the scope that is cancelled."""

    def __init__(self, scripted: Any, rows: list[dict[str, Any]], part: str, parked: int) -> None:
        self.scripted = scripted
        self.rows = rows
        self.part = part
        self.parked = parked
        self.seen: list[int] = []

    def scope(self, part: str, watch: CancelAt) -> trio.CancelScope:
        return watch.scope if part == self.part else trio.CancelScope()

    async def consume(self, stream: RolloutStream, scope: trio.CancelScope) -> None:
        with scope:
            async for outcome in stream:
                self.seen.append(outcome.row["i"])

    async def play(self, watch: CancelAt) -> RolloutStream:
        with self.scope("outer", watch):
            async with open_rollout_stream(self.rows, self.scripted, max_concurrent=4) as stream:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.consume, stream, self.scope("receive", watch))
                    for _ in range(self.parked):
                        nursery.start_soon(self.consume, stream, trio.CancelScope())
                    for i in (0, 2, 1):
                        self.scripted.finish(i)
                        await trio.lowlevel.checkpoint()
                    self.scripted.release(3)
                    with self.scope("aclose_and_drain", watch):
                        self.seen += [outcome.row["i"] for outcome in await stream.aclose_and_drain()]
                    with self.scope("aclose", watch):
                        await stream.aclose()
                with self.scope("block", watch):
                    await trio.lowlevel.checkpoint()
        self.scripted.release(3)
        return stream


@pytest.mark.parametrize("part", ["receive", "aclose", "aclose_and_drain", "block", "outer"])
@pytest.mark.parametrize("parked", [0, 1])
async def test_the_accounts_balance_whatever_step_is_interrupted(
    part: str, parked: int, scripted_with: Any, rows: Rows, balanced: Balanced
) -> None:
    """One scene, cancelled at each of its task steps in turn: every outcome is received once, every row accounted."""
    steps = 0
    cancelled = True
    while cancelled:
        steps += 1
        watch, scene = CancelAt(steps), Scene(scripted_with(stubborn=[3]), rows(8), part, parked)
        if part == "outer":
            scene.scripted.release(3)  # nobody is left to do it
        trio.lowlevel.add_instrument(watch)
        stream = await scene.play(watch)
        trio.lowlevel.remove_instrument(watch)
        balanced(stream)
        assert len(scene.seen) == len(set(scene.seen)) == stream.statistics().delivered
        cancelled = watch.left <= 0
    assert steps > 10
