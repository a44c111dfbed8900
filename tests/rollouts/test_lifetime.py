"""What has been delivered is referred to by nothing in the library."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.rollouts import Failed, RolloutAttempt, RolloutOutcome, RolloutStream, open_rollout_stream


class Thing:
    """Something that can be referred to weakly."""


class Payload(dict[str, Any]):
    """A result that can be referred to weakly."""


class SourceError(Exception):
    """An exception that can be referred to weakly."""


def gone(*references: weakref.ref[Any]) -> bool:
    """Nothing refers to any of them, not even a cycle that only the collector would find."""
    return all(reference() is None for reference in references)


def source(count: int, made: list[weakref.ref[Any]]) -> Iterator[dict[str, Any]]:
    for i in range(count):
        thing = Thing()
        made.append(weakref.ref(thing))
        row = {"i": i, "thing": thing}
        del thing
        yield row
        del row


async def payload(attempt: RolloutAttempt) -> Payload:
    return Payload(i=attempt.row["i"])


async def failing(attempt: RolloutAttempt) -> Payload:
    local = attempt.row["thing"]  # a frame that a traceback would keep
    assert local
    raise ValueError(attempt.row["i"])


def watched(outcome: RolloutOutcome) -> list[weakref.ref[Any]]:
    references: list[weakref.ref[Any]] = [weakref.ref(outcome)]
    if isinstance(outcome, Failed):
        return [*references, weakref.ref(outcome.failure)]
    return [*references, weakref.ref(outcome.unwrap()[1])]


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Reference counts alone must do, so that memory does not wait for the collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("run", [payload, failing])
@pytest.mark.parametrize("parked", [True, False])
async def test_a_received_outcome_is_the_consumers_alone(run: Any, parked: bool) -> None:
    """In the very step in which it was received, and while the stream goes on, the outcome dies with its consumer."""
    things: list[weakref.ref[Any]] = []
    gates = [trio.Event() for _ in range(6)]

    async def gated(attempt: RolloutAttempt) -> Any:
        await gates[attempt.row["i"]].wait()
        return await run(attempt)

    async def finish(i: int) -> None:
        await wait_all_tasks_blocked()
        gates[i].set()

    async with open_rollout_stream(source(6, things), gated, max_concurrent=6) as stream:
        for i in range(5):
            if parked:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(finish, i)
                    outcome: RolloutOutcome | None = await stream.receive()
            else:
                await finish(i)
                await wait_all_tasks_blocked()
                outcome = await stream.receive()
            assert outcome is not None
            references = [*watched(outcome), things[i]]
            assert all(reference() is not None for reference in references)
            outcome = None
            assert gone(*references)


@pytest.mark.parametrize("run", [payload, failing])
async def test_no_reference_after_exhaustion(run: Any) -> None:
    """When the stream has ended by itself and still stands, nothing of its outcomes is left."""
    things: list[weakref.ref[Any]] = []
    references: list[weakref.ref[Any]] = []
    async with open_rollout_stream(source(20, things), run, max_concurrent=4) as stream:
        async for outcome in stream:
            references += watched(outcome)
        del outcome
        assert len(references) == 40
        assert gone(*references, *things)
    assert stream.statistics().delivered == 20


@pytest.mark.parametrize("run", [payload, failing])
async def test_no_reference_after_a_drain(run: Any) -> None:
    """What a drain has returned is its caller's alone."""
    things: list[weakref.ref[Any]] = []
    async with open_rollout_stream(source(20, things), run) as stream:
        await wait_all_tasks_blocked()
        outcomes = await stream.aclose_and_drain()
        references = [reference for outcome in outcomes for reference in watched(outcome)]
        assert len(references) == 40
        outcomes.clear()
        assert gone(*references, *things)


@pytest.mark.parametrize("leave", ["aclose", "block"])
async def test_no_reference_after_a_close(leave: str) -> None:
    """What a close discards is released by it; of unfinished rows the row stays, and nothing else."""
    things: list[weakref.ref[Any]] = []
    payloads: list[weakref.ref[Any]] = []
    attempts: list[weakref.ref[Any]] = []

    async def run(attempt: RolloutAttempt) -> Payload:
        result = Payload()
        payloads.append(weakref.ref(result))
        attempts.append(weakref.ref(attempt))
        if attempt.row["i"] == 1:
            await trio.sleep_forever()
        return result

    async with open_rollout_stream(source(3, things), run) as stream:
        await wait_all_tasks_blocked()
        if leave == "aclose":
            await stream.aclose()
            assert gone(things[0], things[2], *payloads, *attempts)
    assert gone(things[0], things[2], *payloads, *attempts)
    assert things[1]() is not None
    assert [left.row["thing"] for left in stream.unfinished()] == [things[1]()]


async def test_an_async_source_keeps_no_last_row() -> None:
    """While the stream waits for the next row of an async source, it does not hold the one before."""
    things: list[weakref.ref[Any]] = []
    more = trio.Event()

    async def rows() -> AsyncIterator[dict[str, Any]]:
        for row in source(3, things):
            yield row
            del row
        await more.wait()

    async with open_rollout_stream(rows(), payload) as stream:
        for _ in range(3):
            await stream.receive()
        await wait_all_tasks_blocked()
        assert gone(*things)


async def test_an_error_of_the_source_is_not_kept(scripted: Any) -> None:
    """Once raised, the exception of a source belongs to who caught it."""

    def rows() -> Iterator[dict[str, Any]]:
        yield {"i": 0}
        raise SourceError

    scripted.finish(0)
    async with open_rollout_stream(rows(), scripted) as stream:
        await stream.receive()
        with pytest.raises(SourceError) as caught:
            await stream.receive()
        error = weakref.ref(caught.value)
        del caught
        await wait_all_tasks_blocked()
        gc.collect()
        assert error() is None


async def test_the_source_is_let_go_when_it_has_ended(balanced: Callable[[RolloutStream], None]) -> None:
    """An exhausted or stopped iterator is not kept by the stream that still stands."""

    class Rows:
        def __init__(self, count: int) -> None:
            self.left = count

        def __iter__(self) -> Rows:
            return self

        def __next__(self) -> dict[str, Any]:
            if not self.left:
                raise StopIteration
            self.left -= 1
            return {"i": self.left}

    for count, close in ((3, False), (10**6, True)):
        rows = Rows(count)
        reference = weakref.ref(rows)
        async with open_rollout_stream(rows, payload, max_concurrent=1) as stream:
            del rows
            await stream.receive()
            if close:
                await stream.aclose()
            else:
                async for _ in stream:
                    pass
            await wait_all_tasks_blocked()
            assert reference() is None
        balanced(stream)
