"""aclose() and aclose_and_drain(), from everywhere and at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import UsageError
from gym_trio.rollouts import Completed, Failed, RolloutAttempt, RolloutOutcome, RolloutStream, open_rollout_stream

Rows = Callable[[int], list[dict[str, Any]]]
Balanced = Callable[[RolloutStream], None]


def places(outcomes: list[RolloutOutcome]) -> list[int]:
    return [outcome.row["i"] for outcome in outcomes]


class Waiter:
    """A call in a task of its own, and how it ended."""

    def __init__(self, nursery: trio.Nursery, call: Callable[[], Any]) -> None:
        self.scope = trio.CancelScope()
        self.ended: list[str] = []
        self.value: Any = None
        nursery.start_soon(self._wait, call)

    async def _wait(self, call: Callable[[], Any]) -> None:
        with self.scope:
            try:
                self.value = await call()
                self.ended.append("returned")
            except trio.EndOfChannel:
                self.ended.append("end")
        if self.scope.cancelled_caught:
            self.ended.append("cancelled")


async def test_aclose_from_inside_the_loop_ends_it(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """The iterating task may close its own stream; the loop ends, and what was in flight is unfinished."""
    scripted.finish(0)
    seen = []
    async with open_rollout_stream(rows(5), scripted, max_concurrent=2) as stream:
        async for outcome in stream:
            seen.append(outcome)
            await stream.aclose()
        balanced(stream)
        assert places(seen) == [0]
        assert [left.row["i"] for left in stream.unfinished()] in ([1], [1, 2])


async def test_aclose_from_another_task_wakes_parked_receivers(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """Every parked receiver gets EndOfChannel, and every later one too."""
    async with open_rollout_stream(rows(2), scripted) as stream, trio.open_nursery() as nursery:
        waiters = [Waiter(nursery, stream.receive) for _ in range(3)]
        await wait_all_tasks_blocked()
        await stream.aclose()
        await wait_all_tasks_blocked()
        assert [waiter.ended for waiter in waiters] == [["end"]] * 3
        with pytest.raises(trio.EndOfChannel):
            await stream.receive()
        balanced(stream)


async def test_several_closes_at_once_all_wait_for_the_tasks(
    scripted_with: Any, rows: Rows, balanced: Balanced
) -> None:
    """Each aclose() returns when the last local task has ended, and not before."""
    scripted = scripted_with(stubborn=[1])
    async with open_rollout_stream(rows(2), scripted) as stream, trio.open_nursery() as nursery:
        await wait_all_tasks_blocked()
        closers = [Waiter(nursery, stream.aclose) for _ in range(3)]
        await wait_all_tasks_blocked()
        assert [closer.ended for closer in closers] == [[], [], []]
        assert scripted.ended == [0]
        scripted.release(1)
        await wait_all_tasks_blocked()
        assert [closer.ended for closer in closers] == [["returned"]] * 3
        balanced(stream)


@pytest.mark.parametrize("close", ["aclose", "aclose_and_drain"])
async def test_a_close_before_the_first_row(close: str, scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """A stream that is closed at once has pulled nothing."""
    async with open_rollout_stream(rows(5), scripted) as stream:
        assert await getattr(stream, close)() in (None, [])
        assert stream.statistics().pulled == 0
        balanced(stream)
    assert scripted.started == []


@pytest.mark.parametrize("close", ["aclose", "aclose_and_drain"])
async def test_a_close_after_exhaustion_and_twice(close: str, scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """Closing what has ended, again and again, does nothing, and is a checkpoint each time."""
    for i in range(3):
        scripted.finish(i)
    async with open_rollout_stream(rows(3), scripted) as stream:
        assert sorted(places([outcome async for outcome in stream])) == [0, 1, 2]
        for _ in range(2):
            with trio.testing.assert_checkpoints():
                assert await getattr(stream, close)() in (None, [])
        balanced(stream)
    for _ in range(2):
        assert await getattr(stream, close)() in (None, [])
    with pytest.raises(trio.EndOfChannel):
        await stream.receive()
    assert stream.statistics().delivered == 3


async def test_aclose_releases_what_nobody_has_received(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """Finished outcomes count as discarded after aclose(), and no drain returns them."""
    scripted.finish(0)
    scripted.finish(1)
    async with open_rollout_stream(rows(3), scripted) as stream:
        await wait_all_tasks_blocked()
        await stream.aclose()
        assert stream.statistics().discarded == 2
        assert await stream.aclose_and_drain() == []
        balanced(stream)


async def test_a_drain_returns_what_had_finished_in_order(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """aclose_and_drain() gives completions and failures in the order of their ends, each once."""
    async with open_rollout_stream(rows(5), scripted) as stream:
        await wait_all_tasks_blocked()
        for step in (3, 0, 4):
            scripted.fail(step, ValueError("no")) if step == 0 else scripted.finish(step)
            await wait_all_tasks_blocked()
        outcomes = await stream.aclose_and_drain()
        assert places(outcomes) == [3, 0, 4]
        assert [type(outcome) for outcome in outcomes] == [Completed, Failed, Completed]
        assert await stream.aclose_and_drain() == []
        assert stream.statistics().delivered == 3
        balanced(stream)


async def test_a_drain_stops_admission_before_its_first_checkpoint(scripted: Any, rows: Rows) -> None:
    """Even a drain that is cancelled at once has ended admission and iteration."""
    async with open_rollout_stream(rows(9), scripted, max_concurrent=2) as stream:
        await wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.aclose_and_drain(grace_seconds=9)
        scripted.finish(0)
        await wait_all_tasks_blocked()
        assert scripted.started == [0, 1]
        with pytest.raises(trio.EndOfChannel):
            await stream.receive()
        assert places(await stream.aclose_and_drain()) == [0]


async def test_the_grace_lets_rollouts_finish(autojump_clock: Any, rows: Rows, balanced: Balanced) -> None:
    """What ends within the grace is returned; what does not is cancelled at its end, exactly."""

    async def run(attempt: RolloutAttempt) -> dict[str, Any]:
        await trio.sleep(attempt.row["i"])
        return {}

    async with open_rollout_stream(rows(6), run) as stream:
        await trio.sleep(0.5)
        started = trio.current_time()
        outcomes = await stream.aclose_and_drain(grace_seconds=3)
        assert places(outcomes) == [0, 1, 2, 3]
        assert trio.current_time() == started + 3
        balanced(stream)


async def test_a_drain_returns_as_soon_as_all_have_finished(autojump_clock: Any, rows: Rows) -> None:
    """A grace longer than needed costs nothing; an endless one waits for all."""

    async def run(attempt: RolloutAttempt) -> dict[str, Any]:
        await trio.sleep(attempt.row["i"])
        return {}

    for grace in (100, float("inf")):
        async with open_rollout_stream(rows(4), run) as stream:
            await trio.sleep(0.5)
            started = trio.current_time()
            assert places(await stream.aclose_and_drain(grace_seconds=grace)) == [0, 1, 2, 3]
            assert trio.current_time() == started + 2.5


@pytest.mark.parametrize("grace", [-1, float("nan"), None, "1"])
async def test_a_wrong_grace_is_refused_and_stops_nothing(grace: Any, scripted: Any, rows: Rows) -> None:
    """A grace that is no duration is a UsageError, and the stream goes on."""
    scripted.finish(0)
    async with open_rollout_stream(rows(1), scripted) as stream:
        with pytest.raises(UsageError, match="grace_seconds"):
            await stream.aclose_and_drain(grace)
        assert places([await stream.receive()]) == [0]


async def test_aclose_cuts_the_grace_of_a_drain(
    autojump_clock: Any, scripted: Any, rows: Rows, balanced: Balanced
) -> None:
    """The drain returns at once, with what had finished; nothing it returns is counted as discarded."""
    async with open_rollout_stream(rows(3), scripted) as stream, trio.open_nursery() as nursery:
        scripted.finish(1)
        await wait_all_tasks_blocked()
        drain = Waiter(nursery, lambda: stream.aclose_and_drain(grace_seconds=1000))
        await wait_all_tasks_blocked()
        started = trio.current_time()
        await stream.aclose()
        assert trio.current_time() == started
        balanced(stream)
        await wait_all_tasks_blocked()
        assert places(drain.value) == [1]
        s = stream.statistics()
        assert (s.delivered, s.discarded, s.unfinished) == (1, 0, 2)


async def test_a_second_drain_without_grace_cuts_the_first(autojump_clock: Any, scripted: Any, rows: Rows) -> None:
    """Of several drains at once one returns the outcomes, and the shortest grace counts."""
    async with open_rollout_stream(rows(3), scripted) as stream, trio.open_nursery() as nursery:
        scripted.finish(1)
        await wait_all_tasks_blocked()
        drains = [Waiter(nursery, lambda g=g: stream.aclose_and_drain(g)) for g in (1000, 5, 0)]  # type: ignore[misc]
        started = trio.current_time()
        await wait_all_tasks_blocked()
        assert trio.current_time() == started
        assert sorted(len(drain.value) for drain in drains) == [0, 0, 1]


async def test_a_cancelled_drain_leaves_everything_for_the_next(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """What a cancelled drain has not returned, the next returns, with what finished in between."""
    async with open_rollout_stream(rows(3), scripted) as stream, trio.open_nursery() as nursery:
        scripted.finish(0)
        await wait_all_tasks_blocked()
        drain = Waiter(nursery, lambda: stream.aclose_and_drain(grace_seconds=1000))
        await wait_all_tasks_blocked()
        drain.scope.cancel()
        await wait_all_tasks_blocked()
        assert drain.ended == ["cancelled"]
        scripted.finish(2)
        await wait_all_tasks_blocked()
        assert stream.statistics().ready == 2
        assert places(await stream.aclose_and_drain()) == [0, 2]
        balanced(stream)


async def test_a_drain_cancelled_when_it_has_been_served_still_returns(
    scripted_with: Any, rows: Rows, balanced: Balanced
) -> None:
    """A drain whose outcomes were handed to it in the tick of its cancellation returns them."""
    scripted = scripted_with(stubborn=[1])
    async with open_rollout_stream(rows(2), scripted) as stream, trio.open_nursery() as nursery:
        scripted.finish(0)
        await wait_all_tasks_blocked()
        drain = Waiter(nursery, stream.aclose_and_drain)
        await wait_all_tasks_blocked()

        class CancelWhenServed(trio.abc.Instrument):
            def task_scheduled(self, task: trio.lowlevel.Task) -> None:
                if "Waiter" in task.name:
                    drain.scope.cancel()

        trio.lowlevel.add_instrument(watch := CancelWhenServed())
        scripted.release(1)
        await wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(watch)
        assert drain.scope.cancel_called
        assert drain.ended == ["returned"]
        assert places(drain.value) == [0]
        balanced(stream)


async def test_a_cancelled_aclose_has_stopped_the_stream(scripted_with: Any, rows: Rows, balanced: Balanced) -> None:
    """aclose() in a cancelled scope releases everything; a later call waits for what is left."""
    scripted = scripted_with(stubborn=[1])
    async with open_rollout_stream(rows(2), scripted) as stream, trio.open_nursery() as nursery:
        scripted.finish(0)
        await wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.aclose()
        assert scope.cancelled_caught
        assert stream.statistics().discarded == 1
        again = Waiter(nursery, stream.aclose)
        await wait_all_tasks_blocked()
        assert again.ended == []
        scripted.release(1)
        await wait_all_tasks_blocked()
        assert again.ended == ["returned"]
        balanced(stream)


async def test_a_result_in_spite_of_cancellation_is_an_outcome(rows: Rows, balanced: Balanced) -> None:
    """A rollout that returns from its shielded cleanup has completed: a drain returns it, aclose() discards it."""

    async def run(attempt: RolloutAttempt) -> dict[str, Any]:
        try:
            await trio.sleep_forever()
        finally:
            return {"in spite": True}  # noqa: B012  the case under test

    async with open_rollout_stream(rows(2), run) as stream:
        await wait_all_tasks_blocked()
        assert len(await stream.aclose_and_drain()) == 2
        balanced(stream)
    async with open_rollout_stream(rows(2), run) as stream:
        await wait_all_tasks_blocked()
        await stream.aclose()
        assert stream.statistics().discarded == 2
        balanced(stream)


async def test_an_error_in_cleanup_after_a_cancellation_is_a_failure(rows: Rows, balanced: Balanced) -> None:
    """What a cancelled rollout raises besides Cancelled is an outcome of the drain that cancelled it."""

    async def run(attempt: RolloutAttempt) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                if attempt.row["i"]:
                    raise ValueError("cleanup")

    async with open_rollout_stream(rows(2), run) as stream:
        await wait_all_tasks_blocked()
        (outcome,) = await stream.aclose_and_drain()
        assert isinstance(outcome, Failed)
        assert outcome.failure.message == "cleanup"
        assert [left.row["i"] for left in stream.unfinished()] == [0]
        balanced(stream)


async def test_a_rollout_that_has_not_begun_is_never_begun(scripted_with: Any, rows: Rows, balanced: Balanced) -> None:
    """A close in the tick of an admission: the run is not called, and the row is not_started."""
    told = set()
    for _ in range(40):  # trio shuffles the tick
        scripted = scripted_with()
        async with open_rollout_stream(rows(1), scripted) as stream:
            while stream.statistics().in_flight == 0:
                await trio.lowlevel.checkpoint()
            begun = bool(scripted.started)
            await stream.aclose()
            assert bool(scripted.started) is begun
            (left,) = stream.unfinished()
            assert left.delivery == ("not_sent" if begun else "not_started")
            told.add(left.delivery)
            balanced(stream)
    assert "not_started" in told


async def test_leaving_the_block_is_a_close(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """Leaving early cancels what is in flight, waits for it and counts what nobody received as discarded."""
    scripted.finish(0)
    async with open_rollout_stream(rows(3), scripted) as stream:
        await wait_all_tasks_blocked()
    assert sorted(scripted.ended) == [0, 1, 2]
    balanced(stream)
    s = stream.statistics()
    assert (s.discarded, s.unfinished) == (1, 2)
    assert "closed" in repr(stream)


async def test_leaving_after_a_cancelled_drain_discards(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """What a cancelled drain left and nobody asked for again is discarded with the block."""
    scripted.finish(0)
    async with open_rollout_stream(rows(1), scripted) as stream:
        await wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.aclose_and_drain()
    balanced(stream)
    assert stream.statistics().discarded == 1


async def test_a_close_from_inside_a_rollout(rows: Rows, balanced: Balanced) -> None:
    """A rollout that closes its own stream is cancelled by it, like its siblings, and nothing hangs."""
    async with open_rollout_stream(rows(3), lambda attempt: close(attempt)) as stream:

        async def close(attempt: RolloutAttempt) -> None:
            await trio.lowlevel.checkpoint()
            await stream.aclose()

        assert [outcome async for outcome in stream] == []
        await stream.aclose()
        balanced(stream)
        assert len(stream.unfinished()) == stream.statistics().pulled > 0


async def test_the_trainers_example(autojump_clock: Any, rows: Rows, balanced: Balanced) -> None:
    """Iterate until a deadline, then drain: the batch has everything that finished, once."""

    async def run(attempt: RolloutAttempt) -> dict[str, Any]:
        await trio.sleep(attempt.row["i"] % 7)
        return {}

    batch = []
    async with open_rollout_stream(rows(100), run, max_concurrent=10) as stream:
        with trio.move_on_after(20.5):
            async for outcome in stream:
                batch.append(outcome)
        batch += await stream.aclose_and_drain()
        balanced(stream)
        assert len(batch) == stream.statistics().delivered == len({outcome.row["i"] for outcome in batch})
        assert 0 < len(batch) < 100
