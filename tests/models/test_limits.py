"""Concurrency and rate limits: exact, fair between rollouts, and nothing is lost by a cancellation."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
import trio
import trio.testing

from gym_trio.models._fair_limiter import FairLimiter


@pytest.fixture
async def paced():
    """Makes limiters whose pacers run."""
    async with trio.open_nursery() as nursery:

        def make(*arguments):
            limiter = FairLimiter(*arguments)
            nursery.start_soon(limiter.pace)
            return limiter

        yield make
        nursery.cancel_scope.cancel()


async def hold(limiter, rollout, seconds, log) -> None:
    async with limiter.slot(rollout):
        log.append((rollout, trio.current_time()))
        await trio.sleep(seconds)


async def test_no_more_than_the_limit_at_once(paced, autojump_clock) -> None:
    """Ten calls of one second under a limit of three take four seconds, three at a time."""
    limiter, log = paced(3), []
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(hold, limiter, "a", 1, log)
        await trio.testing.wait_all_tasks_blocked()
        assert (limiter.statistics().in_flight, limiter.statistics().waiting) == (3, 7)
    assert trio.current_time() - began == 4
    assert limiter.statistics().in_flight == 0
    assert max(Counter(time for _, time in log).values()) == 3


async def test_rollouts_take_turns(paced, autojump_clock) -> None:
    """A rollout that queues a hundred calls does not keep another one with one call waiting for them."""
    limiter, log = paced(1), []
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(hold, limiter, "greedy", 1, log)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(hold, limiter, "modest", 1, log)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert "modest" in [rollout for rollout, _ in log[:3]]


async def test_a_rate_is_kept(paced, autojump_clock) -> None:
    """At 60 a minute, each minute starts 60 calls, evenly after the first."""
    limiter, log = paced(None, 60), []
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(hold, limiter, str(number % 3), 0, log)
    times = [time for _, time in log]
    assert len(times) == 20
    assert times[-1] - times[0] == pytest.approx(19, abs=0.01)
    assert all(later - earlier >= 0.99 for earlier, later in itertools.pairwise(times))


async def test_a_high_rate_may_come_in_bursts_of_a_second(paced, autojump_clock) -> None:
    """At 600 a minute a second's worth starts at once, and the rest at the rate."""
    limiter, log = paced(None, 600), []
    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(hold, limiter, "a", 0, log)
    times = [time - log[0][1] for _, time in log]
    assert 10 <= sum(time == 0 for time in times) <= 11
    assert times[-1] == pytest.approx(3, abs=0.2)


async def test_a_pause_holds_everybody_and_is_not_shortened(paced, autojump_clock) -> None:
    """During a pause nothing starts, what runs goes on, and a shorter pause changes nothing."""
    limiter, log = paced(2), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, limiter, "a", 3, log)
        await trio.testing.wait_all_tasks_blocked()
        limiter.pause(10)
        limiter.pause(1)
        assert limiter.statistics().paused_seconds == 10
        nursery.start_soon(hold, limiter, "b", 1, log)
    assert log[1][1] - log[0][1] == 10


async def test_cancelled_waits_take_nothing_with_them(paced, autojump_clock) -> None:
    """A waiter that is cancelled, even in the tick in which it is admitted, leaves its slot to the next."""
    limiter, log = paced(1), []
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as leaving:
            async with trio.open_nursery() as inner:
                first = trio.CancelScope()

                async def holder() -> None:
                    with first:
                        await hold(limiter, "a", 100, log)

                nursery.start_soon(holder)
                await trio.testing.wait_all_tasks_blocked()
                inner.start_soon(hold, limiter, "b", 1, log)
                nursery.start_soon(hold, limiter, "c", 1, log)
                await trio.testing.wait_all_tasks_blocked()
                first.cancel()
                await trio.testing.wait_all_tasks_blocked()
                leaving.cancel()
    assert log[-1][0] == "c"
    assert (limiter.statistics().in_flight, limiter.statistics().waiting) == (0, 0)
    with trio.CancelScope() as gone:
        gone.cancel()
        async with limiter.slot("d"):
            await trio.lowlevel.checkpoint()
    assert limiter.statistics().in_flight == 0


async def test_a_slot_handed_over_in_the_tick_of_a_cancellation_is_given_back() -> None:
    """Admitted and cancelled at once: the slot goes on to the next waiter."""
    limiter, log = FairLimiter(1), []
    scope = trio.CancelScope()

    async def wait(rollout: str, inside: trio.CancelScope) -> None:
        with inside:
            await hold(limiter, rollout, 0, log)

    async with trio.open_nursery() as nursery, limiter.slot("a"):
        nursery.start_soon(wait, "b", scope)
        nursery.start_soon(wait, "c", trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
    assert [rollout for rollout, _ in log] == ["c"]
    assert limiter.statistics().in_flight == 0


async def test_the_limit_of_a_server_is_kept_at_its_endpoint(open_vllm, chat_answer, autojump_clock) -> None:
    """With two slots the provider never has more than two calls; waiting is in the record."""
    running = peak = 0

    async def answer(*_):
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await trio.sleep(1)
        running -= 1
        return 200, {}, chat_answer()

    async with open_vllm(answer, max_concurrent_requests=2) as model, trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(model.respond, f"{number}-0")
    assert peak == 2
    waits = sorted(call.attempts[0].waited_seconds for call in model.records.calls)
    assert waits == pytest.approx([0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize("seed", range(10))
async def test_no_slot_is_lost_whatever_is_cancelled_when(seed, open_vllm, chat_answer, autojump_clock) -> None:
    """Two hundred calls end by answers, errors and cancellations at any moment; then the slots are all there."""
    chance = random.Random(seed)
    settled = False

    async def answer(*_):
        if settled:
            await trio.sleep(1)
            return 200, {}, chat_answer()
        await trio.sleep(chance.choice([0, 0.1, 1]))
        status = chance.choice([200, 200, 200, 429, 503, 400])
        return status, {"retry-after": "1"} if status == 429 else {}, chat_answer() if status == 200 else {}

    async def call(model, number: int) -> None:
        await trio.sleep(chance.uniform(0, 10))
        with trio.move_on_after(chance.choice([0, 0.05, 0.5, 1, 3, 50])):
            if chance.random() < 0.5:
                await model.respond(f"{number % 7}-0")
            else:
                await model.stream("/v1/messages", {"messages": [], "max_tokens": 1}, f"{number % 7}-0")

    async with open_vllm(answer, max_concurrent_requests=5, requests_per_minute=3000) as model:
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(call, model, number)
        assert model.records.begun == len(model.records.calls) > 50
        settled = True
        await trio.sleep(400)  # pauses and rates are over
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(model.respond, f"{number}-1")
        assert trio.current_time() - began == 2
