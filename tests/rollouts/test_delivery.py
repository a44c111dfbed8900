"""Each outcome goes to exactly one consumer, also when consumers are cancelled as they are served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.rollouts import RolloutStream, open_rollout_stream

Rows = Callable[[int], list[dict[str, Any]]]
Balanced = Callable[[RolloutStream], None]


class Consumer:
    """One receive() in a task of its own that can be cancelled."""

    def __init__(self, nursery: trio.Nursery, stream: RolloutStream) -> None:
        self.scope = trio.CancelScope()
        self.got: list[int] = []
        nursery.start_soon(self._receive, stream)

    async def _receive(self, stream: RolloutStream) -> None:
        with self.scope:
            self.got.append((await stream.receive()).row["i"])


async def test_the_longest_waiting_consumer_is_served_first(scripted: Any, rows: Rows) -> None:
    """Parked consumers are served in the order in which they came."""
    async with open_rollout_stream(rows(3), scripted) as stream, trio.open_nursery() as nursery:
        consumers = []
        for _ in range(3):
            consumers.append(Consumer(nursery, stream))
            await wait_all_tasks_blocked()
        for i in (2, 0, 1):
            scripted.finish(i)
            await wait_all_tasks_blocked()
        assert [consumer.got for consumer in consumers] == [[2], [0], [1]]


async def test_outcomes_are_received_in_completion_order(scripted: Any, rows: Rows) -> None:
    """What is ready is received in the order in which it came to be."""
    async with open_rollout_stream(rows(4), scripted) as stream:
        await wait_all_tasks_blocked()
        for i in (2, 0, 3, 1):
            scripted.finish(i)
            await wait_all_tasks_blocked()
        assert [outcome.row["i"] async for outcome in stream] == [2, 0, 3, 1]


async def test_a_cancelled_consumer_leaves_the_outcome_to_the_next(scripted: Any, rows: Rows) -> None:
    """A consumer that is cancelled before it was given anything takes nothing."""
    async with open_rollout_stream(rows(1), scripted) as stream, trio.open_nursery() as nursery:
        first, second = Consumer(nursery, stream), None
        await wait_all_tasks_blocked()
        second = Consumer(nursery, stream)
        await wait_all_tasks_blocked()
        first.scope.cancel()
        scripted.finish(0)
        await wait_all_tasks_blocked()
        assert first.got == []
        assert second.got == [0]


@pytest.mark.parametrize("cancelled", range(2))
async def test_a_consumer_cancelled_as_it_is_served_still_has_it(scripted: Any, rows: Rows, cancelled: int) -> None:
    """A consumer that has been given an outcome and is cancelled in the same tick returns with it."""
    async with open_rollout_stream(rows(2), scripted) as stream, trio.open_nursery() as nursery:
        consumers = []
        for _ in range(2):
            consumers.append(Consumer(nursery, stream))
            await wait_all_tasks_blocked()

        class CancelWhenServed(trio.abc.Instrument):
            served = 0

            def task_scheduled(self, task: trio.lowlevel.Task) -> None:
                if "Consumer" in task.name:
                    if self.served == cancelled:
                        consumers[cancelled].scope.cancel()
                    self.served += 1

        trio.lowlevel.add_instrument(watch := CancelWhenServed())
        scripted.finish(0)
        await wait_all_tasks_blocked()
        scripted.finish(1)
        await wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(watch)
        assert consumers[cancelled].scope.cancel_called
        assert [consumer.got for consumer in consumers] == [[0], [1]]
        assert stream.statistics().delivered == 2


async def test_a_receive_in_a_cancelled_scope_takes_nothing(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """With an outcome ready, a cancelled receive() raises Cancelled and leaves it."""
    scripted.finish(0)
    async with open_rollout_stream(rows(1), scripted) as stream:
        await wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.receive()
        assert scope.cancelled_caught
        assert stream.statistics().ready == 1
        assert (await stream.receive()).row["i"] == 0
    balanced(stream)


async def test_receiving_is_a_checkpoint_and_does_not_starve_others(scripted: Any, rows: Rows) -> None:
    """A consumer that finds everything ready lets other tasks run between any two outcomes."""
    for i in range(10):
        scripted.finish(i)
    async with open_rollout_stream(rows(10), scripted) as stream, trio.open_nursery() as nursery:
        await wait_all_tasks_blocked()
        turns: list[str] = []

        async def other() -> None:
            for _ in range(10):
                turns.append("other")
                await trio.lowlevel.checkpoint()

        nursery.start_soon(other)
        async for _ in stream:
            turns.append("outcome")
        assert "outcomeoutcomeoutcome" not in "".join(turns)


async def test_many_consumers_share_one_stream(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """With more consumers than outcomes, every outcome is received once and every consumer's loop ends."""
    seen: list[int] = []

    async def consume(stream: RolloutStream) -> None:
        async for outcome in stream:
            seen.append(outcome.row["i"])

    async with open_rollout_stream(rows(50), scripted, max_concurrent=7) as stream, trio.open_nursery() as nursery:
        for _ in range(80):
            nursery.start_soon(consume, stream)
        for i in range(50):
            scripted.finish(i)
    assert sorted(seen) == list(range(50))
    balanced(stream)


async def test_a_served_consumer_keeps_its_outcome_through_a_close(scripted: Any, rows: Rows) -> None:
    """A close in the tick in which a consumer was served takes nothing from it."""
    async with open_rollout_stream(rows(2), scripted) as stream, trio.open_nursery() as nursery:
        consumer = Consumer(nursery, stream)
        await wait_all_tasks_blocked()

        class CloseWhenServed(trio.abc.Instrument):
            def task_scheduled(self, task: trio.lowlevel.Task) -> None:
                if "Consumer" in task.name:
                    nursery.start_soon(stream.aclose)
                    trio.lowlevel.remove_instrument(self)

        trio.lowlevel.add_instrument(CloseWhenServed())
        scripted.finish(0)
        await wait_all_tasks_blocked()
        assert consumer.got == [0]
        s = stream.statistics()
        assert (s.pulled, s.delivered, s.unfinished) == (2, 1, 1)
