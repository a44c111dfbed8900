"""Draining: all at once, under one deadline, and what is not confirmed is named."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import SessionsDraining
from gym_trio.sessions import SessionPhase, open_session_registry


async def seeded(registry: Any, author: Any, session_id: str) -> Any:
    return await registry.seed(session_id, fingerprint=1, episode=session_id, open=author.open, close=author.close)


async def test_leaving_the_block_closes_every_session(author: Any, autojump_clock: Any) -> None:
    """Seeded and minted ones alike, side by side."""
    author.close_seconds = 5
    async with open_session_registry(name="r") as registry:
        for number in range(20):
            await seeded(registry, author, f"s{number}")
        registry.open_nowait("minted", author.close)
    assert len(author.closed) == 21
    assert trio.current_time() == pytest.approx(5)
    report = registry.statistics().last_drain
    assert (report.confirmed, report.unconfirmed, report.complete) == (21, (), True)


async def test_a_cancelled_block_drains_all_the_same(author: Any, autojump_clock: Any) -> None:
    """The cancellation of the block reaches neither the drain nor a close."""
    author.close_seconds = 5
    with trio.move_on_after(1) as scope:
        async with open_session_registry(name="r") as registry:
            await seeded(registry, author, "a")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert author.closed == ["state-1"]
    assert author.cancelled_closes == 0


async def test_the_deadline_is_one_for_the_whole_drain(
    author: Any, calls: Any, caplog: Any, autojump_clock: Any
) -> None:
    """A close that was running already does not get a deadline of its own past it; every unconfirmed id is logged."""
    author.close_seconds = 100
    with caplog.at_level(logging.WARNING, logger="gym_trio.sessions"):
        async with open_session_registry(name="r", session_close_timeout_seconds=10) as registry:
            for session_id in "abc":
                await seeded(registry, author, session_id)
            calls.start("close", registry.close, "a", episode="a")
            await trio.sleep(4)
            report = await registry.drain()
            assert trio.current_time() == pytest.approx(14, abs=0.5)
            assert sorted(session_id for session_id, _ in report.unconfirmed) == ["a", "b", "c"]
            assert all("deadline" in why for _, why in report.unconfirmed)
            assert report.confirmed == 0
            assert registry.statistics().closing == 3
            author.close_seconds = 0
            assert (await registry.close("b", episode="b")).had_state
    assert {record.args[1] for record in caplog.records if "not confirmed" in record.msg} == {"a", "b", "c"}
    assert len(author.closed) == 3  # leaving the block tries the others again


async def test_a_running_close_is_joined(author: Any, calls: Any, autojump_clock: Any) -> None:
    """The drain starts no second close beside one that runs."""
    author.close_seconds = 10
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author, "a")
        calls.start("close", registry.close, "a", episode="a")
        await trio.sleep(4)
        report = await registry.drain()
        assert (report.confirmed, report.seconds) == (1, pytest.approx(6))
        assert author.closing == ["state-1"]


async def test_a_drain_stops_running_opens_and_closes_what_they_made(
    author: Any, calls: Any, autojump_clock: Any
) -> None:
    """A seed under way is cancelled and its partial state closed."""
    author.open_seconds = 60
    author.partial_when_cancelled = True
    async with open_session_registry(name="r") as registry:
        calls.start("seed", seeded, registry, author, "a")
        await trio.sleep(1)
    assert author.closed == author.made == ["state-1"]


async def test_code_that_ignores_its_cancellation_is_named_and_delays_the_exit(autojump_clock: Any) -> None:
    """The drain reports it soon after the deadline; the block ends when the code does."""

    async def stubborn(state: str) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)

    async def good(state: str) -> None:
        await trio.sleep(1)

    async with open_session_registry(name="r", session_close_timeout_seconds=5) as registry:
        late = registry.open_nowait("late", stubborn)
        registry.open_nowait("good", good)
        report = await registry.drain()
        assert 5 <= trio.current_time() < 6
        assert report.confirmed == 1
        assert report.unconfirmed == ((late, "its close ignores its cancellation and still runs"),)
        assert registry.phase(late) is SessionPhase.CLOSING
    assert trio.current_time() >= 30


async def test_a_failed_close_is_tried_again_by_the_drain(author: Any, autojump_clock: Any) -> None:
    """What a client could not close, the shutdown tries once more."""
    author.fail_closes = 1
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author, "a")
        registry.release_soon("a")
        await wait_all_tasks_blocked()
        assert registry.statistics().failed_closes == 1
    assert author.closed == ["state-1"]


async def test_drains_called_at_once_share_one_report(author: Any, calls: Any, autojump_clock: Any) -> None:
    """Neither starts a second close, and both get the same report."""
    author.close_seconds = 3
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author, "a")
        calls.start("one", registry.drain)
        calls.start("two", registry.drain)
        await trio.sleep(4)
        assert calls.results["one"] is calls.results["two"]
        assert author.closing == ["state-1"]


async def test_a_cancelled_caller_of_drain_does_not_cut_it(author: Any, calls: Any, autojump_clock: Any) -> None:
    """The drain is shielded; its caller's cancellation arrives when it is over."""
    author.close_seconds = 3
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author, "a")
        calls.start("drain", registry.drain)
        await trio.sleep(1)
        await calls.leave("drain")
        await trio.sleep(5)
        assert author.closed == ["state-1"]
        assert registry.statistics().last_drain.confirmed == 1


async def test_draining_stops_admission_for_good(author: Any) -> None:
    """Seeds and minted sessions are refused during and after a drain."""
    async with open_session_registry(name="r") as registry:
        await registry.drain()
        with pytest.raises(SessionsDraining):
            registry.open_nowait("state")
        with pytest.raises(SessionsDraining):
            await seeded(registry, author, "a")
        assert registry.statistics().draining
    assert author.opens == 0


async def test_ten_thousand_sessions_drain_together(author: Any, autojump_clock: Any) -> None:
    """Closes of 100 ms each take 100 ms in all, and a fixed number of steps each."""
    author.close_seconds = 0.1
    steps = 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += 1

    async with open_session_registry(name="r") as registry:
        for _ in range(10_000):
            registry.open_nowait("state", author.close)
        counting = Steps()
        trio.lowlevel.add_instrument(counting)
        report = await registry.drain()
        trio.lowlevel.remove_instrument(counting)
    assert report.confirmed == 10_000
    assert report.seconds == pytest.approx(0.1)
    assert steps / 10_000 < 3.1, f"{steps} steps"


async def test_many_that_are_cut_at_once_are_not_taken_for_stubborn(author: Any, autojump_clock: Any) -> None:
    """Thousands that unwind after the deadline are reported as cut, however long the unwinding takes."""

    async def slow_to_unwind(state: int) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(state * 0.1)

    async with open_session_registry(name="r", session_close_timeout_seconds=1) as registry:
        for number in range(40):
            registry.open_nowait(number, slow_to_unwind)
        report = await registry.drain()
    assert len(report.unconfirmed) == 40
    assert all("cut by its deadline" in why for _, why in report.unconfirmed)
