"""Resumptions, counted by an instrument: they are immune to noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.rollouts import RolloutStream, open_rollout_stream

Rows = Callable[[int], list[dict[str, Any]]]
COUNT = 1024


class Steps(trio.abc.Instrument):
    """Counts the steps of the tasks whose name has a given part."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += self.part in task.name


class Counted:
    """Counts the consumers' steps inside a block."""

    def __init__(self) -> None:
        self.steps = Steps("the_consumer")

    def __enter__(self) -> Steps:
        trio.lowlevel.add_instrument(self.steps)
        return self.steps

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self.steps)


async def the_consumer(stream: RolloutStream, seen: list[int]) -> None:
    async for outcome in stream:
        seen.append(outcome.row["i"])


@pytest.mark.parametrize("consumers", [1, 64, 1024])
@pytest.mark.parametrize("bounds", [{}, {"max_concurrent": 16}, {"max_resident_tasks": 16}], ids=str)
async def test_outcomes_one_by_one_cost_one_resumption_each(
    consumers: int, bounds: dict[str, int], scripted: Any, rows: Rows
) -> None:
    """1,024 outcomes cost 1,024 consumer steps, however many are parked; the end wakes each consumer once."""
    seen: list[int] = []
    async with open_rollout_stream(rows(COUNT), scripted, **bounds) as stream, trio.open_nursery() as nursery:
        for _ in range(consumers):
            nursery.start_soon(the_consumer, stream, seen)
        await wait_all_tasks_blocked()
        with Counted() as steps:
            for i in range(COUNT - 1):
                scripted.finish(i)
                while len(seen) <= i:
                    await trio.lowlevel.checkpoint()
            assert steps.count == COUNT - 1
            scripted.finish(COUNT - 1)
            await wait_all_tasks_blocked()
        assert steps.count == COUNT + consumers - 1  # whoever got the last sees the end in the same step
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("consumers", [1, 64, 1024])
async def test_outcomes_all_at_once_cost_one_resumption_each(consumers: int, scripted: Any, rows: Rows) -> None:
    """Outcomes that are ready together cost a step each too: no consumer wakes for nothing."""
    seen: list[int] = []
    async with open_rollout_stream(rows(COUNT), scripted) as stream, trio.open_nursery() as nursery:
        for _ in range(consumers):
            nursery.start_soon(the_consumer, stream, seen)
        await wait_all_tasks_blocked()
        with Counted() as steps:
            for i in range(COUNT):
                scripted.finish(i)
            await wait_all_tasks_blocked()
        assert steps.count <= COUNT + consumers
    assert len(seen) == COUNT


@pytest.mark.parametrize("close", ["aclose", "aclose_and_drain"])
@pytest.mark.parametrize("consumers", [1, 64, 1024])
async def test_a_close_wakes_each_parked_consumer_once(consumers: int, close: str, scripted: Any, rows: Rows) -> None:
    """Closing costs one step per parked consumer, whatever is in flight."""
    async with open_rollout_stream(rows(100), scripted) as stream, trio.open_nursery() as nursery:
        for _ in range(consumers):
            nursery.start_soon(the_consumer, stream, [])
        await wait_all_tasks_blocked()
        with Counted() as steps:
            await getattr(stream, close)()
            await wait_all_tasks_blocked()
        assert steps.count == consumers


async def test_cancelled_consumers_cost_the_others_nothing(scripted: Any, rows: Rows) -> None:
    """Cancelling half of the parked consumers wakes those, once each, and no other."""
    async with open_rollout_stream(rows(1), scripted) as stream, trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in range(100)]

        async def cancellable_the_consumer(scope: trio.CancelScope) -> None:
            with scope:
                await stream.receive()

        for scope in scopes:
            nursery.start_soon(cancellable_the_consumer, scope)
            nursery.start_soon(the_consumer, stream, [])
        await wait_all_tasks_blocked()
        with Counted() as steps:
            for scope in scopes:
                scope.cancel()
            await wait_all_tasks_blocked()
        assert steps.count == 100
        await stream.aclose()


async def test_a_rollout_costs_few_steps(rows: Rows) -> None:
    """A trivial rollout costs three steps in all: one to admit it, one to run it, one to receive its outcome."""

    async def run(attempt: Any) -> dict[str, Any]:
        return {}

    steps = Steps("")
    async with open_rollout_stream(rows(1000), run, max_concurrent=8) as stream:
        trio.lowlevel.add_instrument(steps)
        async for _ in stream:
            pass
        trio.lowlevel.remove_instrument(steps)
    assert steps.count <= 3 * 1000 + 20
