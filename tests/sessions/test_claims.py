"""Claims and phases: what is at work can be found and stopped; no move that is not drawn."""

from __future__ import annotations

import itertools

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import SessionError
from gym_trio.sessions import Claims, SessionPhase
from gym_trio.sessions._phases import _MOVES, Happening, transition


async def test_stop_cancels_a_run_once(nursery: trio.Nursery) -> None:
    """The first stop says True and cuts the block; later ones, during its cleanup and after it, say False."""
    claims = Claims()
    ended: list[bool] = []
    cleaned = trio.Event()

    async def run() -> None:
        with claims.run("3-1") as claim:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await cleaned.wait()
        ended.append(claim.stopped)

    nursery.start_soon(run)
    await wait_all_tasks_blocked()
    assert claims.find("3-1").runs == claims.running == 1
    assert claims.stop("3-2") is False
    assert claims.stop("3-1") is True
    await wait_all_tasks_blocked()
    assert claims.stop("3-1") is False
    cleaned.set()
    await wait_all_tasks_blocked()
    assert ended == [True]
    assert claims.stop("3-1") is False
    assert not claims.find("3-1")


async def test_a_run_that_ends_by_itself_was_not_stopped() -> None:
    """Also when it was asked to and had finished before the cancellation reached it."""
    claims = Claims()
    with claims.run("a") as claim:
        claims.stop("a")
    assert not claim.stopped
    assert not claims.find("a")


async def test_a_block_that_raises_releases_its_claim() -> None:
    """The exception passes through."""
    claims = Claims()
    with pytest.raises(ValueError, match="x"), claims.run("a"):
        raise ValueError("x")
    assert claims.running == 0


async def test_one_attempt_may_be_claimed_twice(nursery: trio.Nursery) -> None:
    """A repeated request has a claim of its own; stop cancels both."""
    claims = Claims()
    stopped: list[bool] = []

    async def run() -> None:
        with claims.run("a") as claim:
            await trio.sleep_forever()
        stopped.append(claim.stopped)

    nursery.start_soon(run)
    nursery.start_soon(run)
    await wait_all_tasks_blocked()
    assert claims.find("a").runs == 2
    assert claims.stop("a")
    await wait_all_tasks_blocked()
    assert stopped == [True, True]


def test_sessions_are_found_until_they_are_dropped() -> None:
    """Dropping what is not there is no error."""
    claims = Claims()
    claims.add_session("1-0", "a")
    claims.add_session("1-0", "b")
    assert claims.find("1-0").sessions == ("a", "b")
    claims.drop_session("1-0", "a")
    claims.drop_session("1-0", "b")
    claims.drop_session("1-0", "b")
    assert not claims.find("1-0")


@pytest.mark.parametrize(("phase", "happening"), list(itertools.product(SessionPhase, Happening)))
def test_moves_that_are_not_drawn_are_refused_with_a_sentence(phase: SessionPhase, happening: Happening) -> None:
    """Closed is final; nothing leads back; a confirmed close is reached from closing alone."""
    order = list(SessionPhase)
    if (phase, happening) in _MOVES:
        assert order.index(transition(phase, happening)) >= order.index(phase)
    else:
        with pytest.raises(SessionError, match=f"{phase.value} cannot have: {happening.value}"):
            transition(phase, happening)
    assert not any(start is SessionPhase.CLOSED for start, _ in _MOVES)
    assert [start for (start, what) in _MOVES if what is Happening.CLOSE_CONFIRMED] == [SessionPhase.CLOSING]
