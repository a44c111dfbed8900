"""Times to live: expiry closes like everyone else, and is counted."""

from __future__ import annotations

import math
import random
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import SessionConflict
from gym_trio.sessions import ConflictReason, SessionPhase, open_session_registry
from gym_trio.sessions._expiry import Expiries


async def seeded(registry: Any, author: Any, session_id: str = "a") -> Any:
    return await registry.seed(session_id, fingerprint=1, episode="1-0", open=author.open, close=author.close)


async def test_an_idle_session_is_closed_and_leaves_its_receipt(author: Any, autojump_clock: Any) -> None:
    """Its owner finds the receipt of the close that it did not ask for."""
    async with open_session_registry(name="r", idle_ttl_seconds=10) as registry:
        await seeded(registry, author)
        await trio.sleep(9)
        registry.get("a")
        await trio.sleep(9)
        assert author.closed == []
        await trio.sleep(2)
        assert author.closed == ["state-1"]
        assert registry.statistics().expired == 1
        assert (await registry.close("a", episode="1-0")).value == "observed state-1"


async def test_a_session_in_use_is_not_idle(author: Any, autojump_clock: Any) -> None:
    """The idle time begins when the last user has left."""
    async with open_session_registry(name="r", idle_ttl_seconds=10) as registry:
        await seeded(registry, author)
        with registry.using("a") as state:
            assert state == "state-1"
            await trio.sleep(100)
            assert registry.phase("a") is SessionPhase.READY
        await trio.sleep(9)
        assert registry.phase("a") is SessionPhase.READY
        await trio.sleep(2)
        assert registry.phase("a") is SessionPhase.CLOSED


async def test_the_absolute_time_ends_a_session_in_use(author: Any, autojump_clock: Any) -> None:
    """Use does not extend it."""
    async with open_session_registry(name="r", absolute_ttl_seconds=10) as registry:
        await seeded(registry, author)
        with registry.using("a"):
            await trio.sleep(11)
        assert author.closed == ["state-1"]


async def test_seeded_sessions_live_on_by_default_and_minted_ones_do_not(author: Any, autojump_clock: Any) -> None:
    """Off for agent sessions, six hours for those of plain rollouts."""
    async with open_session_registry(name="r") as registry:
        await seeded(registry, author)
        minted = registry.open_nowait("minted", author.close)
        await trio.sleep(6 * 3600 - 1)
        assert registry.knows(minted)
        await trio.sleep(2)
        assert not registry.knows(minted)
        assert author.closed == ["minted"]
        await trio.sleep(50_000)
        assert registry.phase("a") is SessionPhase.READY


async def test_an_expiry_whose_close_fails_keeps_the_state(author: Any, autojump_clock: Any) -> None:
    """It is not forgotten: it can be closed by hand, and the drain tries again."""
    author.fail_closes = 1
    async with open_session_registry(name="r", idle_ttl_seconds=1) as registry:
        await seeded(registry, author)
        await trio.sleep(5)
        assert registry.phase("a") is SessionPhase.CLOSING
    assert author.closed == ["state-1"]


async def test_a_shorter_receipt_wakes_the_sleeping_reaper(author: Any, autojump_clock: Any) -> None:
    """What falls due before the time that the reaper sleeps until is not late."""
    async with open_session_registry(name="r", idle_ttl_seconds=1000, session_close_retry_window_seconds=5) as registry:
        await seeded(registry, author)
        await wait_all_tasks_blocked()
        await registry.close("zz")
        await trio.sleep(6)
        assert not registry.knows("zz")
        assert registry.knows("a")


async def test_minted_sessions_leave_nothing_behind(author: Any, autojump_clock: Any) -> None:
    """A close forgets them at once; the id is unknown and unguessable, and releasing it again is no error."""
    async with open_session_registry(name="r") as registry:
        ids = {registry.open_nowait(number) for number in range(1000)}
        assert len(ids) == 1000
        assert min(map(len, ids)) >= 20
        with_close = registry.open_nowait("state", author.close)
        assert registry.get(with_close) == "state"
        assert await registry.release(with_close) == "observed state"
        assert await registry.release(with_close) is None
        with pytest.raises(SessionConflict) as caught:
            registry.get(with_close)
        assert caught.value.reason == ConflictReason.UNKNOWN
        for session_id in ids:
            assert await registry.release(session_id) is None
        registry.release_soon(with_close)
        assert "0 ready, 0 closing, 0 receipts" in repr(registry)


async def test_a_session_that_seeds_is_unknown_to_users(author: Any, calls: Any, autojump_clock: Any) -> None:
    """There is no state to use before the open has returned."""
    author.open_seconds = 5
    async with open_session_registry(name="r") as registry:
        calls.start("seed", seeded, registry, author)
        await trio.sleep(1)
        with pytest.raises(SessionConflict) as caught:
            registry.get("a")
        assert caught.value.reason == ConflictReason.UNKNOWN
        now = registry.statistics()
        assert (now.seeding, now.live, now.oldest_seconds) == (1, 1, 1)


async def test_churn_does_not_grow_the_heap(author: Any) -> None:
    """Entries of closed sessions are swept long before they fall due."""
    async with open_session_registry(name="r") as registry:
        kept = [registry.open_nowait(number) for number in range(50)]
        for number in range(5000):
            await registry.release(registry.open_nowait(number))
        assert len(registry._reaper._expiries) < 400
        assert all(registry.knows(session_id) for session_id in kept)


@attrs.define(eq=False)
class Perishing:
    at: float

    def due_at(self, now: float) -> float:
        return self.at


def test_expiries_agree_with_a_naive_list() -> None:
    """Random pushes, postponements and removals: everything falls due exactly when a scan says so."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    heap: Expiries[Perishing] = Expiries()
    items: set[Perishing] = set()
    for now in range(3000):
        for _ in range(rng.randrange(3)):
            item = Perishing(now + rng.randrange(1, 200))
            items.add(item)
            heap.push(item, now)
        for item in rng.sample(sorted(items, key=id), min(len(items), 2)):
            item.at = rng.choice([item.at + rng.randrange(50), math.inf])
        due = set(heap.pop_due(now))
        assert due == {item for item in items if item.at <= now}, f"seed {seed}"
        items = {item for item in items if now < item.at < math.inf}
