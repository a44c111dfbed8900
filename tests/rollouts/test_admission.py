"""When rows are pulled and started."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from types import MappingProxyType
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import Delivery, RowError, UsageError
from gym_trio.rollouts import Completed, Drained, RolloutAttempt, RolloutStream, open_rollout_stream

Rows = Callable[[int], list[dict[str, Any]]]


async def at_once(attempt: RolloutAttempt) -> dict[str, Any]:
    return {"i": attempt.row["i"]}


async def test_every_row_of_a_list_has_its_outcome(rows: Rows) -> None:
    """Rows in, one outcome each out, with the row's keys, its id and its result."""
    given = rows(10)
    async with open_rollout_stream(given, at_once) as stream:
        outcomes = [outcome async for outcome in stream]
    assert given == [{"i": i} for i in range(10)]
    assert sorted(outcome.row["i"] for outcome in outcomes) == list(range(10))
    for outcome in outcomes:
        row, result = outcome.unwrap()
        assert row["i"] == result["i"]
        assert row["_ng_rollout_id"] == f"{row['i']}-0"


@pytest.mark.parametrize("kind", ["list", "generator", "async generator", "channel", "mappings"])
async def test_any_kind_of_source(kind: str, rows: Rows) -> None:
    """Lists, generators, async generators, memory channels and read-only mappings are all sources."""

    async def asynchronous() -> AsyncIterator[dict[str, Any]]:
        for row in rows(5):
            await trio.lowlevel.checkpoint()
            yield row

    send, receive = trio.open_memory_channel[dict[str, Any]](5)
    with send, receive:
        for row in rows(5):
            send.send_nowait(row)
        send.close()
        sources: dict[str, Any] = {
            "list": rows(5),
            "generator": (row for row in rows(5)),
            "async generator": asynchronous() if kind == "async generator" else None,
            "channel": receive,
            "mappings": [MappingProxyType(row) for row in rows(5)],
        }
        async with open_rollout_stream(sources[kind], at_once, max_concurrent=2) as stream:
            seen = [outcome.row["i"] async for outcome in stream]
    assert sorted(seen) == list(range(5))


@pytest.mark.parametrize("source", [[], iter(()), ()])
async def test_no_rows_at_all(source: Any) -> None:
    """An empty source is a stream that has ended, for every receiver."""
    async with open_rollout_stream(source, at_once) as stream:
        with pytest.raises(trio.EndOfChannel):
            await stream.receive()
        assert [outcome async for outcome in stream] == []
        assert await stream.aclose_and_drain() == []


async def test_rows_are_pulled_only_when_a_slot_is_free(scripted: Any) -> None:
    """With max_concurrent=2 an endless source is read two rows ahead of what has ended, and no further."""
    pulled: list[int] = []

    def endless() -> Iterator[dict[str, Any]]:
        i = 0
        while True:
            pulled.append(i)
            yield {"i": i}
            i += 1

    async with open_rollout_stream(endless(), scripted, max_concurrent=2) as stream:
        await wait_all_tasks_blocked()
        assert pulled == [0, 1]
        scripted.finish(1)
        await wait_all_tasks_blocked()
        assert pulled == [0, 1, 2]
        assert (await stream.receive()).row["i"] == 1
        await wait_all_tasks_blocked()
        assert pulled == [0, 1, 2]
    assert pulled == [0, 1, 2]
    assert scripted.started == [0, 1, 2]


async def test_a_resident_slot_is_free_when_its_outcome_is_received(scripted: Any, rows: Rows) -> None:
    """With max_resident_tasks=2 a finished rollout keeps its slot until somebody has its outcome."""
    async with open_rollout_stream(rows(9), scripted, max_resident_tasks=2) as stream:
        for i in range(9):
            scripted.finish(i)
        await wait_all_tasks_blocked()
        assert scripted.started == [0, 1]
        assert stream.statistics().ready == 2
        await stream.receive()
        await wait_all_tasks_blocked()
        assert len(scripted.started) == 3
        assert len([outcome async for outcome in stream]) == 8


async def test_a_resident_slot_is_free_when_a_parked_consumer_is_served(scripted: Any, rows: Rows) -> None:
    """Handing an outcome to a consumer that waits counts as its receipt."""
    async with open_rollout_stream(rows(3), scripted, max_resident_tasks=1) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(stream.receive)
        await wait_all_tasks_blocked()
        scripted.finish(0)
        await wait_all_tasks_blocked()
        assert scripted.started == [0, 1]


async def test_both_bounds_hold_together(scripted: Any, rows: Rows) -> None:
    """max_concurrent bounds what runs, max_resident_tasks what runs and waits to be received."""
    async with open_rollout_stream(rows(9), scripted, max_concurrent=2, max_resident_tasks=3) as stream:
        await wait_all_tasks_blocked()
        assert scripted.started == [0, 1]
        scripted.finish(0)
        scripted.finish(1)
        await wait_all_tasks_blocked()
        assert scripted.started == [0, 1, 2]
        assert stream.statistics().in_flight == 1


@pytest.mark.parametrize("endless", ["plain", "async"])
async def test_an_endless_source_without_bounds_can_be_stopped(endless: str, scripted: Any) -> None:
    """Every pull is a checkpoint, so a source that never waits starves nobody."""

    def plain() -> Iterator[dict[str, Any]]:
        while True:
            yield {"i": 0}

    async def asynchronous() -> AsyncIterator[dict[str, Any]]:
        while True:
            yield {"i": 0}

    source: Any = plain() if endless == "plain" else asynchronous()
    async with open_rollout_stream(source, scripted) as stream:
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        pulled = stream.statistics().pulled
        assert pulled >= 5
        await stream.aclose()
        assert stream.statistics().pulled <= pulled + 1


@pytest.mark.parametrize(
    "bounds",
    [
        {"max_concurrent": 0},
        {"max_concurrent": True},
        {"max_concurrent": 1.5},
        {"max_resident_tasks": -1},
        {"rollout_timeout_seconds": -1},
        {"rollout_timeout_seconds": "3"},
        {"dispatch_budget_seconds": float("nan")},
        {"drain_margin_seconds": -0.1},
    ],
)
async def test_a_wrong_bound_is_named_before_anything_starts(bounds: dict[str, Any], scripted: Any) -> None:
    """A bound that is no count or duration is a UsageError with its name."""
    with pytest.raises(UsageError, match=next(iter(bounds))):
        async with open_rollout_stream([{"i": 0}], scripted, **bounds):
            raise AssertionError("entered")
    assert scripted.started == []


async def test_what_cannot_be_iterated_is_refused() -> None:
    """rows that are no iterable are a UsageError on entry."""
    with pytest.raises(UsageError, match="rows must be"):
        async with open_rollout_stream(5, at_once):  # type: ignore[arg-type]
            raise AssertionError("entered")


@pytest.mark.parametrize("bad", ["text", None, ["list"], {"_ng_rollout_id": "no good"}])
async def test_a_bad_row_ends_admission_and_is_unfinished(bad: Any, balanced: Callable[[RolloutStream], None]) -> None:
    """A row that is no row is a RowError with its number, raised after what was started; it is not_started."""
    async with open_rollout_stream([{"i": 0}, bad, {"i": 2}], at_once) as stream:
        assert (await stream.receive()).row["i"] == 0
        with pytest.raises(RowError, match="row 2"):
            await stream.receive()
        (left,) = stream.unfinished()
        assert left.row == bad
        assert left.delivery is Delivery.NOT_STARTED
        with pytest.raises(trio.EndOfChannel):
            await stream.receive()
    balanced(stream)


async def test_check_row_is_asked_before_a_row_starts(rows: Rows, balanced: Callable[[RolloutStream], None]) -> None:
    """What check_row raises counts as raised by the source, and names the row."""

    def check(row: dict[str, Any]) -> None:
        assert row["_ng_rollout_id"]
        if row["i"] == 2:
            raise RowError("no agent takes it")

    async with open_rollout_stream(rows(5), at_once, check_row=check) as stream:
        with pytest.raises(RowError, match="row 3: no agent takes it"):
            async for _ in stream:
                pass
    assert stream.statistics().pulled == 3
    assert [left.delivery for left in stream.unfinished()] == ["not_started"]
    balanced(stream)


async def test_what_check_row_returns_goes_with_the_attempt(rows: Rows) -> None:
    """It is worked out once per row, for the check and for the run; without a check it is nothing."""

    async def run(attempt: RolloutAttempt) -> Any:
        return attempt.checked

    for check, expected in ((lambda row: ("agent", row["i"]), [("agent", 0), ("agent", 1)]), (None, [None, None])):
        async with open_rollout_stream(rows(2), run, max_concurrent=1, check_row=check) as stream:
            assert [outcome.unwrap()[1] async for outcome in stream] == expected


async def test_the_run_cannot_take_keys_from_the_outcomes_row(rows: Rows) -> None:
    """The rollout works on its own copy: the caller's dict and the outcome's row keep their keys."""

    async def run(attempt: RolloutAttempt) -> dict[str, Any]:
        attempt.row.clear()
        return {}

    given = rows(1)
    async with open_rollout_stream(given, run) as stream:
        outcome = await stream.receive()
    assert outcome.row == {"i": 0, "_ng_rollout_id": "0-0"}
    assert given == [{"i": 0}]


def sleeper(seconds: float) -> Callable[[RolloutAttempt], Any]:
    async def run(attempt: RolloutAttempt) -> dict[str, Any]:
        await trio.sleep(attempt.row.get("seconds", seconds))
        return {}

    return run


def kinds(outcomes: list[Any]) -> tuple[int, int]:
    completed = sum(isinstance(outcome, Completed) for outcome in outcomes)
    return completed, sum(isinstance(outcome, Drained) for outcome in outcomes)


async def test_no_rollout_starts_that_cannot_finish(autojump_clock: Any, rows: Rows) -> None:
    """With a budget of 10 s, a margin of 4 and rollouts of 3 one by one, those at 0, 3 and 6 start; the rest drain."""
    async with open_rollout_stream(
        rows(8), sleeper(3), max_concurrent=1, dispatch_budget_seconds=10, drain_margin_seconds=4
    ) as stream:
        outcomes = [outcome async for outcome in stream]
    assert kinds(outcomes) == (3, 5)
    drained = [outcome for outcome in outcomes if isinstance(outcome, Drained)]
    assert "dispatch budget" in drained[0].reason
    assert stream.statistics().delivered == 8


async def test_the_budget_is_checked_after_the_slot_is_won(autojump_clock: Any, rows: Rows) -> None:
    """A row that had to wait for a slot is judged by the time at which it got it."""
    async with open_rollout_stream(
        rows(2), sleeper(7), max_concurrent=1, dispatch_budget_seconds=10, drain_margin_seconds=5
    ) as stream:
        assert kinds([outcome async for outcome in stream]) == (1, 1)


async def test_a_rollout_that_just_fits_starts(autojump_clock: Any, rows: Rows) -> None:
    """Elapsed time plus margin may reach the budget exactly."""
    async with open_rollout_stream(
        rows(2), sleeper(5), max_concurrent=1, dispatch_budget_seconds=10, drain_margin_seconds=5
    ) as stream:
        assert kinds([outcome async for outcome in stream]) == (2, 0)


async def test_without_completions_the_margin_is_zero(autojump_clock: Any, rows: Rows) -> None:
    """Before five completions an adaptive margin is 0, so rollouts start until the budget itself has passed."""
    async with open_rollout_stream(rows(9), sleeper(3), max_concurrent=1, dispatch_budget_seconds=10) as stream:
        assert kinds([outcome async for outcome in stream]) == (4, 5)


async def test_the_margin_adapts_to_the_75th_percentile(autojump_clock: Any) -> None:
    """After durations 1, 2, 3, 4, 5 the margin is 4: at 15 s of 19 one more starts, of 18.9 none."""
    for budget, expected in ((19.0, (6, 1)), (18.9, (5, 2))):
        given = [{"seconds": seconds} for seconds in (5, 1, 4, 2, 3, 9, 9)]
        async with open_rollout_stream(given, sleeper(0), max_concurrent=1, dispatch_budget_seconds=budget) as stream:
            assert kinds([outcome async for outcome in stream]) == expected


async def test_a_spent_budget_ends_the_pulling_of_an_endless_source(autojump_clock: Any) -> None:
    """A source of unknown length is not pulled again after its first drained row, and the stream ends."""

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            yield {}

    async with open_rollout_stream(
        endless(), sleeper(3), max_concurrent=1, dispatch_budget_seconds=10, drain_margin_seconds=0
    ) as stream:
        assert kinds([outcome async for outcome in stream]) == (4, 1)


async def test_drained_rows_keep_to_the_resident_bound(autojump_clock: Any, rows: Rows) -> None:
    """Drained rows are outcomes that wait to be received, and are made no faster than they are taken."""
    async with open_rollout_stream(rows(9), sleeper(1), max_resident_tasks=2, dispatch_budget_seconds=0) as stream:
        await trio.sleep(0.5)
        assert stream.statistics().pulled == 2
        await trio.sleep(5)
        assert kinds([outcome async for outcome in stream]) == (2, 7)


async def test_a_drained_row_needs_no_slot_for_running(autojump_clock: Any, rows: Rows) -> None:
    """Once the budget is spent, rows drain beside a rollout that takes its time."""
    async with open_rollout_stream(
        [{"seconds": 100}, {"seconds": 2}, {}, {}], sleeper(0), max_concurrent=2, dispatch_budget_seconds=1
    ) as stream:
        outcomes = [await stream.receive() for _ in range(3)]
        assert kinds(outcomes) == (1, 2)
        assert trio.current_time() == outcomes[0].timing.finished_at  # type: ignore[union-attr]
