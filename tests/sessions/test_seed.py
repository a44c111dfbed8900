"""Seeding: one open per id, and nothing that it made is ever lost."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import SessionConflict, SessionsDraining, SessionSetupError
from gym_trio.sessions import ConflictReason, SessionPhase, open_session_registry


async def seed(registry: Any, author: Any, session_id: str = "a", body: str = "body", episode: str = "1-0") -> Any:
    return await registry.seed(session_id, fingerprint=body, episode=episode, open=author.open, close=author.close)


async def test_equal_seeds_give_the_same_state_from_one_open(author: Any, autojump_clock: Any) -> None:
    """A repeated seed opens nothing and answers as the first did."""
    async with open_session_registry(name="r") as registry:
        first = await seed(registry, author)
        assert await seed(registry, author) == first == registry.get("a")
        assert author.opens == 1


async def test_seeds_from_two_clients_at_once_share_one_open(author: Any, calls: Any, autojump_clock: Any) -> None:
    """The second client joins the open that the first has started."""
    author.open_seconds = 1
    async with open_session_registry(name="r") as registry:
        calls.start("one", seed, registry, author)
        calls.start("two", seed, registry, author)
        await trio.sleep(2)
        assert calls.results == {"one": "state-1", "two": "state-1"}
        assert author.opens == 1


@pytest.mark.parametrize("change", [{"body": "other"}, {"episode": "2-0"}])
@pytest.mark.parametrize("open_seconds", [0, 5])
async def test_another_body_is_a_conflict(
    author: Any, calls: Any, change: dict[str, str], open_seconds: float, autojump_clock: Any
) -> None:
    """An id is bound to its first seed, while that runs and afterwards."""
    author.open_seconds = open_seconds
    async with open_session_registry(name="r") as registry:
        calls.start("first", seed, registry, author)
        await wait_all_tasks_blocked()
        with pytest.raises(SessionConflict) as caught:
            await seed(registry, author, **change)
        assert caught.value.reason == ConflictReason.OTHER_SEED


async def test_a_closing_and_a_closed_id_refuse_seeds(author: Any, calls: Any, autojump_clock: Any) -> None:
    """Closing wins over an equal seed, and so does closed."""
    author.close_seconds = 1
    async with open_session_registry(name="r") as registry:
        await seed(registry, author)
        calls.start("close", registry.close, "a", episode="1-0")
        await wait_all_tasks_blocked()
        with pytest.raises(SessionConflict) as caught:
            await seed(registry, author)
        assert caught.value.reason == ConflictReason.CLOSING
        await trio.sleep(2)
        with pytest.raises(SessionConflict) as caught:
            await seed(registry, author)
        assert caught.value.reason == ConflictReason.CLOSED


async def test_an_open_that_raises_spends_the_id_and_closes_nothing(author: Any, autojump_clock: Any) -> None:
    """Every waiter gets what open raised; a close finds nothing to close; a seed is refused."""

    async def fail() -> str:
        raise ValueError("no sandbox")

    async with open_session_registry(name="r") as registry:
        with pytest.raises(ValueError, match="no sandbox"):
            await registry.seed("a", fingerprint=1, open=fail, close=author.close)
        receipt = await registry.close("a")
        assert (receipt.value, receipt.had_state) == (None, False)
        with pytest.raises(SessionConflict):
            await registry.seed("a", fingerprint=1, open=author.open, close=author.close)
        assert author.closing == []


@pytest.mark.parametrize("grouped", [False, True])
async def test_what_a_failed_open_hands_over_is_closed(author: Any, grouped: bool, autojump_clock: Any) -> None:
    """The state in a SessionSetupError is closed at once, also when a nursery has wrapped it in a group."""

    async def fail() -> str:
        error = SessionSetupError("half", "the browser did not start")
        if grouped:
            raise ExceptionGroup("nursery", [OSError("lost"), ExceptionGroup("inner", [error])])
        raise error

    async with open_session_registry(name="r") as registry:
        with pytest.raises(SessionSetupError, match="browser"):
            await registry.seed("a", fingerprint=1, open=fail, close=author.close)
        await wait_all_tasks_blocked()
        assert author.closed == ["half"]
        assert (await registry.close("a")).value == "observed half"
        assert author.closing == ["half"]


async def test_a_seed_whose_client_has_left_already_starts_nothing(author: Any, autojump_clock: Any) -> None:
    """Seeding under a scope that is cancelled spends no id."""
    async with open_session_registry(name="r") as registry:
        with trio.CancelScope() as scope:
            scope.cancel()
            await seed(registry, author)
        await wait_all_tasks_blocked()
        assert scope.cancelled_caught
        assert author.opens == 0
        assert not registry.knows("a")


async def test_an_open_that_is_told_to_stop_before_its_first_step_is_not_called(
    author: Any, calls: Any, autojump_clock: Any
) -> None:
    """A drain in the tick of the seed, ahead of the open's first step, leaves a spent id and no state."""
    for _ in range(50):  # the scheduler's order is random; both orders occur
        async with open_session_registry(name="r") as registry:
            calls.start("seed", seed, registry, author)
            while not registry.knows("a"):
                await trio.lowlevel.checkpoint()
            await registry.drain()
            assert author.made == author.closed
            assert registry.phase("a") is SessionPhase.CLOSED


@pytest.mark.parametrize("partial", [False, True])
async def test_an_open_whose_client_leaves_is_cancelled(
    author: Any, calls: Any, partial: bool, autojump_clock: Any
) -> None:
    """Plain cancellation leaves nothing to close; a partial state that it hands over is closed without a caller."""
    author.open_seconds = 60
    author.partial_when_cancelled = partial
    async with open_session_registry(name="r") as registry:
        calls.start("seed", seed, registry, author)
        await trio.sleep(1)
        await calls.leave("seed")
        assert calls.results["seed"] == "left"
        assert author.cancelled_opens == 1
        assert author.closed == (["state-1"] if partial else [])
        receipt = await registry.close("a", episode="1-0")
        assert receipt.had_state is partial
        assert not registry.claims.find("1-0")


async def test_an_open_that_returns_after_its_client_left_is_closed_and_never_used(
    author: Any, calls: Any, autojump_clock: Any
) -> None:
    """A state that comes too late goes straight to its close."""

    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            return str(await author.open())

    author.open_seconds = 5
    async with open_session_registry(name="r") as registry:
        calls.start("seed", registry.seed, "a", fingerprint=1, open=stubborn, close=author.close)
        await trio.sleep(1)
        await calls.leave("seed")
        with pytest.raises(SessionConflict):
            registry.get("a")
        await trio.sleep(5)
        assert author.closed == author.made == ["state-1"]


async def test_a_late_open_is_closed_even_after_the_close_that_stopped_it_was_cut(
    author: Any, calls: Any, autojump_clock: Any
) -> None:
    """When an open outlives the close's whole deadline, what it brings is closed by a new one that nobody asked for."""

    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            return str(await author.open())

    author.open_seconds = 10
    async with open_session_registry(name="r", session_close_timeout_seconds=2) as registry:
        calls.start("seed", registry.seed, "a", fingerprint=1, open=stubborn, close=author.close)
        await trio.sleep(1)
        await calls.leave("seed")
        await trio.sleep(4)
        assert registry.phase("a") is SessionPhase.CLOSING
        assert registry.statistics().failed_closes == 1
        await trio.sleep(6)
        assert author.closed == ["state-1"]
        assert registry.phase("a") is SessionPhase.CLOSED


async def test_a_client_that_leaves_after_the_open_keeps_the_session(author: Any, calls: Any) -> None:
    """Once ready it waits for a repeated seed or a close."""
    async with open_session_registry(name="r") as registry:
        calls.start("seed", seed, registry, author)
        await wait_all_tasks_blocked()
        await calls.leave("seed")
        assert registry.phase("a") is SessionPhase.READY
        assert await seed(registry, author) == "state-1"


async def test_an_open_lives_as_long_as_one_waiter_stays(author: Any, calls: Any, autojump_clock: Any) -> None:
    """The first client may leave; only the last one's leaving cancels."""
    author.open_seconds = 10
    async with open_session_registry(name="r") as registry:
        calls.start("one", seed, registry, author)
        calls.start("two", seed, registry, author)
        await trio.sleep(1)
        await calls.leave("one")
        assert author.cancelled_opens == 0
        await calls.leave("two")
        assert author.cancelled_opens == 1


async def test_cleanup_inside_a_cancelled_open_completes_within_its_bound(
    author: Any, calls: Any, autojump_clock: Any
) -> None:
    """Shielded cleanup that a cancelled open has entered runs to its end; the close waits for it."""
    cleaned = []

    async def open_and_clean() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(3, shield=True):
                await trio.sleep(2)
                cleaned.append(trio.current_time())
        raise AssertionError

    async with open_session_registry(name="r", session_close_timeout_seconds=5) as registry:
        calls.start("seed", registry.seed, "a", fingerprint=1, open=open_and_clean, close=author.close)
        await trio.sleep(1)
        await calls.leave("seed")
        receipt = await registry.close("a")
        assert cleaned
        assert not receipt.had_state


async def test_draining_refuses_new_seeds_and_withdraws_running_ones(
    author: Any, calls: Any, autojump_clock: Any
) -> None:
    """Both get SessionsDraining, so that their clients know to go elsewhere."""
    author.open_seconds = 10
    async with open_session_registry(name="r") as registry:
        calls.start("running", seed, registry, author)
        await trio.sleep(1)
        await registry.drain()
        await wait_all_tasks_blocked()
        assert isinstance(calls.results["running"], SessionsDraining)
        with pytest.raises(SessionsDraining, match="r is shutting down"):
            await seed(registry, author, "b")


async def test_a_waiter_that_outlives_its_record_never_touches_the_next_one(
    author: Any, calls: Any, autojump_clock: Any
) -> None:
    """With no receipt window, a withdrawn seed's waiter wakes when its id belongs to another session already."""
    author.open_seconds = 1
    async with open_session_registry(name="r", session_close_retry_window_seconds=0) as registry:
        calls.start("old", seed, registry, author)
        await wait_all_tasks_blocked()
        registry.release_soon("a")
        await trio.sleep(1)
        while registry.knows("a"):
            await trio.lowlevel.checkpoint()
        assert await seed(registry, author, body="new") == "state-2"
        assert isinstance(calls.results["old"], SessionConflict)
        assert registry.phase("a") is SessionPhase.READY
