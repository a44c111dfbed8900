"""Closing: once, whoever asks and however often; no receipt without a confirmed close."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import ConfigError, SessionCloseFailed, SessionConflict, UsageError
from gym_trio.sessions import ConflictReason, SessionPhase, SessionTimeouts, open_session_registry


async def seeded(registry: Any, author: Any, session_id: str = "a") -> Any:
    return await registry.seed(session_id, fingerprint=1, episode="1-0", open=author.open, close=author.close)


async def test_a_repeated_close_gives_the_first_receipt(author: Any, autojump_clock: Any) -> None:
    """The close runs once; later callers get its receipt, the same object."""
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author)
        first = await registry.close("a", episode="1-0")
        assert first.value == "observed state-1"
        assert await registry.close("a", episode="1-0") is first
        assert author.closing == ["state-1"]


async def test_callers_join_the_running_close(author: Any, calls: Any, autojump_clock: Any) -> None:
    """Ten callers, one close, ten equal receipts."""
    author.close_seconds = 1
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author)
        for number in range(10):
            calls.start(str(number), registry.close, "a", episode="1-0")
        await trio.sleep(2)
        assert len({id(receipt) for receipt in calls.results.values()}) == 1
        assert author.closing == ["state-1"]


async def test_a_close_goes_on_when_its_client_leaves(author: Any, calls: Any, autojump_clock: Any) -> None:
    """The next caller joins it and gets its receipt."""
    author.close_seconds = 5
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author)
        calls.start("one", registry.close, "a", episode="1-0")
        await trio.sleep(1)
        await calls.leave("one")
        assert author.cancelled_closes == 0
        assert (await registry.close("a", episode="1-0")).value == "observed state-1"
        assert trio.current_time() == pytest.approx(5)
        assert author.closing == ["state-1"]


async def test_a_close_under_a_cancelled_scope_still_closes(author: Any, autojump_clock: Any) -> None:
    """Even a caller that is cancelled on the spot has started the close."""
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author)
        with trio.CancelScope() as scope:
            scope.cancel()
            await registry.close("a", episode="1-0")
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert author.closed == ["state-1"]


async def test_a_close_that_raises_keeps_the_state(author: Any, autojump_clock: Any) -> None:
    """No receipt, the cause is told, and the next call tries again with the same state."""
    author.fail_closes = 2
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author)
        for _ in range(2):
            with pytest.raises(SessionCloseFailed, match="the provider is down") as caught:
                await registry.close("a", episode="1-0")
            assert isinstance(caught.value.__cause__, RuntimeError)
            assert registry.phase("a") is SessionPhase.CLOSING
            assert registry.claims.find("1-0").sessions == ("a",)
            with pytest.raises(SessionConflict):
                registry.get("a")
        assert (await registry.close("a", episode="1-0")).value == "observed state-1"
        assert author.closing == ["state-1"] * 3
        assert not registry.claims.find("1-0")


async def test_a_close_cut_by_its_deadline_keeps_the_state(author: Any, autojump_clock: Any) -> None:
    """It gives no receipt at the deadline, and a further call tries again."""
    author.close_seconds = 100
    async with open_session_registry(name="r", session_close_timeout_seconds=3) as registry:
        await seeded(registry, author)
        with pytest.raises(SessionCloseFailed, match="deadline after 3 s"):
            await registry.close("a", episode="1-0")
        assert trio.current_time() == pytest.approx(3)
        assert author.cancelled_closes == 1
        author.close_seconds = 0
        assert (await registry.close("a", episode="1-0")).had_state


async def test_a_close_that_swallows_its_cancellation_gives_no_receipt(autojump_clock: Any) -> None:
    """Returning after the deadline proves nothing."""
    runs = []

    async def close(state: str) -> str:
        runs.append(state)
        if len(runs) == 1:
            with trio.CancelScope() as scope:
                scope.deadline = trio.current_time() + 2
                await trio.sleep_forever()
        return "done"

    async def opened() -> str:
        return "s"

    async with open_session_registry(name="r", session_close_timeout_seconds=2) as registry:
        await registry.seed("a", fingerprint=1, open=opened, close=close)
        with pytest.raises(SessionCloseFailed):
            await registry.close("a")
        assert (await registry.close("a")).value == "done"
        assert runs == ["s", "s"]


async def test_callers_are_answered_although_the_close_ignores_its_cancellation(
    calls: Any, autojump_clock: Any
) -> None:
    """They get no receipt soon after the deadline; no second close starts beside the first; later it can be retried."""
    running: list[int] = []
    most: list[int] = []

    async def close(state: str) -> str:
        running.append(1)
        most.append(len(running))
        with trio.CancelScope(shield=True):
            await trio.sleep(10 if len(most) == 1 else 0)
        running.pop()
        return "done"

    async def opened() -> str:
        return "s"

    async with open_session_registry(name="r", session_close_timeout_seconds=2) as registry:
        await registry.seed("a", fingerprint=1, open=opened, close=close)
        with pytest.raises(SessionCloseFailed, match="ignores its cancellation"):
            await registry.close("a")
        assert 2 <= trio.current_time() < 3
        with pytest.raises(SessionCloseFailed):
            await registry.close("a")
        assert 2 <= trio.current_time() < 3
        await trio.sleep(10)
        assert (await registry.close("a")).value == "done"
        assert most == [1, 1]


async def test_closing_an_unknown_id_spends_it(author: Any, autojump_clock: Any) -> None:
    """The close is answered as one with nothing to close, again and again, and a later seed is refused."""
    async with open_session_registry(name="r") as registry:
        first = await registry.close("zz", episode="1-0")
        assert (first.session_id, first.value, first.had_state) == ("zz", None, False)
        assert await registry.close("zz", episode="1-0") is first
        with pytest.raises(SessionConflict) as caught:
            await seeded(registry, author, "zz")
        assert caught.value.reason == ConflictReason.CLOSED
        assert author.opens == 0


@pytest.mark.parametrize("before", ["seed", "seed and close", "close"])
async def test_another_episode_cannot_close(author: Any, before: str, autojump_clock: Any) -> None:
    """A session, its receipt and a spent id belong to their episode."""
    async with open_session_registry(name="r") as registry:
        if "seed" in before:
            await seeded(registry, author)
        if "close" in before:
            await registry.close("a", episode="1-0")
        with pytest.raises(SessionConflict) as caught:
            await registry.close("a", episode="9-0")
        assert caught.value.reason == ConflictReason.OTHER_EPISODE
        assert len(author.closed) == (before == "seed and close")


async def test_a_close_during_the_seed_waits_for_the_whole_state(author: Any, calls: Any, autojump_clock: Any) -> None:
    """The open goes on, what it made is closed, and the seed is told that the session is closing."""
    author.open_seconds = 6
    async with open_session_registry(name="r", session_close_timeout_seconds=10) as registry:
        calls.start("seed", seeded, registry, author)
        await trio.sleep(1)
        receipt = await registry.close("a", episode="1-0")
        assert receipt.value == "observed state-1"
        assert trio.current_time() == pytest.approx(6)
        await wait_all_tasks_blocked()
        assert isinstance(calls.results["seed"], SessionConflict)
        assert author.cancelled_opens == 0


@pytest.mark.parametrize("partial", [False, True])
async def test_a_close_that_waits_for_an_open_until_its_deadline_stops_it(
    author: Any, calls: Any, partial: bool, autojump_clock: Any
) -> None:
    """There is no receipt; the open is cancelled, and a partial state closed without anyone asking."""
    author.open_seconds = 3600
    author.partial_when_cancelled = partial
    async with open_session_registry(name="r", session_close_timeout_seconds=10) as registry:
        calls.start("seed", seeded, registry, author)
        await trio.sleep(1)
        with pytest.raises(SessionCloseFailed):
            await registry.close("a", episode="1-0")
        await wait_all_tasks_blocked()
        assert author.cancelled_opens == 1
        assert author.closed == author.made
        assert registry.phase("a") is SessionPhase.CLOSED
        assert isinstance(calls.results["seed"], SessionConflict)


async def test_a_close_during_a_seed_whose_client_then_leaves(author: Any, calls: Any, autojump_clock: Any) -> None:
    """The open is cancelled as soon as nobody waits for its session."""
    author.open_seconds = 3600
    author.partial_when_cancelled = True
    async with open_session_registry(name="r") as registry:
        calls.start("seed", seeded, registry, author)
        await trio.sleep(1)
        calls.start("close", registry.close, "a", episode="1-0")
        await trio.sleep(1)
        await calls.leave("seed")
        assert author.closed == author.made == ["state-1"]
        assert calls.results["close"].value == "observed state-1"


@pytest.mark.parametrize("order", ["seed first", "close first"])
async def test_seed_and_close_of_one_id_in_the_same_tick(
    author: Any, calls: Any, order: str, autojump_clock: Any
) -> None:
    """Whichever comes first, nothing is left open and the close is confirmed."""
    async with open_session_registry(name="r") as registry:
        both = [("seed", seeded, (registry, author)), ("close", registry.close, ("a",))]
        for name, call, args in both if order == "seed first" else reversed(both):
            options = {"episode": "1-0"} if name == "close" else {}
            calls.start(name, call, *args, **options)
        await wait_all_tasks_blocked()
        assert registry.phase("a") is SessionPhase.CLOSED
        assert author.made == author.closed
        assert calls.results["close"].session_id == "a"


async def test_a_receipt_is_kept_for_its_window_and_not_longer(author: Any, autojump_clock: Any) -> None:
    """Replays do not extend it; afterwards the id is unknown again."""
    async with open_session_registry(name="r", session_close_retry_window_seconds=10) as registry:
        await seeded(registry, author)
        receipt = await registry.close("a", episode="1-0")
        await trio.sleep(9)
        assert await registry.close("a", episode="1-0") is receipt
        await trio.sleep(2)
        assert not registry.knows("a")
        assert not (await registry.close("a", episode="1-0")).had_state


async def test_a_waiting_closer_gets_its_receipt_although_the_record_has_expired(
    author: Any, calls: Any, autojump_clock: Any
) -> None:
    """With a window of zero the record is gone before its waiters run."""
    author.close_seconds = 1
    async with open_session_registry(name="r", session_close_retry_window_seconds=0) as registry:
        await seeded(registry, author)
        calls.start("one", registry.close, "a", episode="1-0")
        calls.start("two", registry.close, "a", episode="1-0")
        await trio.sleep(2)
        assert {receipt.value for receipt in calls.results.values()} == {"observed state-1"}
        assert not registry.knows("a")


async def test_releasing_a_seeded_session_leaves_its_receipt(author: Any, autojump_clock: Any) -> None:
    """Its owner finds it; releasing again gives the same value; so does release_soon, which changes nothing."""
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author)
        assert await registry.release("a") == await registry.release("a") == "observed state-1"
        registry.release_soon("a")
        assert (await registry.close("a", episode="1-0")).value == "observed state-1"
        assert author.closing == ["state-1"]


async def test_a_base_exception_in_a_close_is_not_swallowed(author: Any) -> None:
    """A close that is interrupted leaves no receipt, and the interrupt reaches the registry's block."""

    class Interrupt(BaseException):
        pass

    async def interrupted(state: str) -> None:
        if not author.closing:
            author.closing.append(state)
            raise Interrupt

    async def use() -> None:
        async with open_session_registry(name="r", session_close_timeout_seconds=1) as registry:
            await registry.seed("a", fingerprint=1, open=author.open, close=interrupted)
            registry.release_soon("a")
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await use()
    assert caught.group_contains(Interrupt)


async def test_a_session_that_could_not_be_closed_can_be_closed_after_the_registry(
    author: Any, autojump_clock: Any
) -> None:
    """The handle outlives the registry's block; the close then runs in its caller, shielded and bounded."""
    author.fail_closes = 1
    async with open_session_registry(name="r", session_close_timeout_seconds=5) as registry:
        await seeded(registry, author)
    assert registry.statistics().last_drain.unconfirmed[0][0] == "a"
    author.close_seconds = 1
    with trio.CancelScope() as scope:
        scope.cancel()
        await registry.close("a", episode="1-0")
    assert author.closed == ["state-1"]
    assert (await registry.close("a", episode="1-0")).value == "observed state-1"


@pytest.mark.parametrize("key", [field for field in SessionTimeouts.__annotations__])
@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), "60", True])
async def test_timeouts_must_be_finite_and_not_negative(key: str, value: Any) -> None:
    """A wrong one is refused under its own name before anything starts."""
    with pytest.raises(ConfigError, match=key):
        async with open_session_registry(name="r", **{key: value}):
            raise AssertionError
    assert issubclass(ConfigError, UsageError)


async def test_a_close_timeout_of_zero_cuts_every_close_that_waits(author: Any, autojump_clock: Any) -> None:
    """Zero is allowed and means: no time at all."""
    async with open_session_registry(name="r", session_close_timeout_seconds=0) as registry:
        await seeded(registry, author)
        with pytest.raises(SessionCloseFailed):
            await registry.close("a", episode="1-0")
