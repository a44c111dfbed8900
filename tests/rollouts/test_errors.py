"""Exceptions in the consumer's block, in the source and in rollouts, and whom they reach."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.rollouts import RolloutAttempt, RolloutStream, open_rollout_stream

Rows = Callable[[int], list[dict[str, Any]]]
Balanced = Callable[[RolloutStream], None]


async def raised_by(block: Callable[[], Awaitable[None]]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011  whatever it is, its identity is asserted
        await block()
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        ValueError("mine"),
        KeyboardInterrupt(),
        SystemExit(3),
        StopAsyncIteration(),
        ExceptionGroup("mine", [ValueError()]),
        BaseExceptionGroup("mine", [KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_the_blocks_own_error_arrives_as_itself(
    error: BaseException, scripted: Any, rows: Rows, balanced: Balanced
) -> None:
    """An exception in the block cancels the rollouts, waits for them and comes out as the same object."""
    streams: list[RolloutStream] = []

    async def block() -> None:
        async with open_rollout_stream(rows(3), scripted) as stream:
            streams.append(stream)
            await wait_all_tasks_blocked()
            raise error

    assert await raised_by(block) is error
    assert error.__cause__ is None
    assert sorted(scripted.ended) == [0, 1, 2]
    balanced(streams[0])


async def test_an_outer_cancellation_passes_through(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """A cancelled scope around the block ends it, in the block and while it waits for its tasks."""
    with trio.CancelScope() as scope:
        async with open_rollout_stream(rows(3), scripted) as stream:
            await wait_all_tasks_blocked()
            scope.cancel()
            await stream.receive()
            raise AssertionError("received")
    assert scope.cancelled_caught
    assert len(stream.unfinished()) == 3
    balanced(stream)


async def test_an_outer_cancellation_while_leaving(scripted_with: Any, rows: Rows, balanced: Balanced) -> None:
    """A cancellation that comes while the block waits for a stubborn rollout does not cut the waiting short."""
    scripted = scripted_with(stubborn=[0])

    async def block(scope: trio.CancelScope) -> None:
        with scope:
            async with open_rollout_stream(rows(1), scripted) as stream:
                await wait_all_tasks_blocked()
            balanced(stream)
            scripted.ended.append(99)

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(block, scope)
        await wait_all_tasks_blocked()
        scope.cancel()
        await wait_all_tasks_blocked()
        assert scripted.ended == []
        scripted.release(0)
    assert scripted.ended == [0, 99]


async def test_a_shielded_drain_in_a_cancelled_scope(scripted: Any, rows: Rows, balanced: Balanced) -> None:
    """In a cancelled scope, a shield around the drain still brings back everything that had finished."""
    scripted.finish(1)
    batch = []
    with trio.CancelScope() as scope:
        async with open_rollout_stream(rows(3), scripted) as stream:
            await wait_all_tasks_blocked()
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    batch = await stream.aclose_and_drain()
    assert [outcome.row["i"] for outcome in batch] == [1]
    balanced(stream)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_an_error_of_the_source_comes_after_what_was_started(
    asynchronous: bool, scripted: Any, balanced: Balanced
) -> None:
    """The exception is raised once, as itself, when everything started has been delivered; then comes the end."""
    error = ValueError("source")

    def plain() -> Iterator[dict[str, Any]]:
        yield {"i": 0}
        yield {"i": 1}
        raise error

    async def waiting() -> AsyncIterator[dict[str, Any]]:
        for row in plain():
            await trio.lowlevel.checkpoint()
            yield row

    rows: Any = waiting() if asynchronous else plain()
    async with open_rollout_stream(rows, scripted) as stream, trio.open_nursery() as nursery:
        await wait_all_tasks_blocked()
        nursery.start_soon(scripted_finish, scripted)
        assert (await stream.receive()).row["i"] == 1
        assert (await stream.receive()).row["i"] == 0
        with pytest.raises(ValueError, match="source") as caught:
            await stream.receive()
        assert caught.value is error
        for _ in range(2):
            with pytest.raises(trio.EndOfChannel):
                await stream.receive()
    balanced(stream)


async def scripted_finish(scripted: Any) -> None:
    for i in (1, 0):
        await wait_all_tasks_blocked()
        scripted.finish(i)


async def test_one_of_many_parked_consumers_gets_the_sources_error(scripted: Any) -> None:
    """With parked consumers, one gets the exception and the others the end."""

    def rows() -> Iterator[dict[str, Any]]:
        yield {"i": 0}
        raise ValueError("source")

    ends: list[str] = []

    async def consume(stream: RolloutStream) -> None:
        try:
            await stream.receive()
            ends.append("outcome")
        except (ValueError, trio.EndOfChannel) as error:
            ends.append(type(error).__name__)

    async with open_rollout_stream(rows(), scripted) as stream, trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(consume, stream)
        await wait_all_tasks_blocked()
        scripted.finish(0)
        await wait_all_tasks_blocked()
    assert sorted(ends) == ["EndOfChannel", "EndOfChannel", "ValueError", "outcome"]


@pytest.mark.parametrize("close", ["aclose", "aclose_and_drain", "leave"])
async def test_an_error_of_the_source_is_never_lost(close: str, scripted: Any, balanced: Balanced) -> None:
    """If the stream is stopped before anyone was told, leaving the block tells."""

    def rows() -> Iterator[dict[str, Any]]:
        yield {"i": 0}
        yield {"i": 1}
        raise ValueError("source")

    scripted.finish(0)
    batch = []

    async def block() -> None:
        async with open_rollout_stream(rows(), scripted) as stream:
            await wait_all_tasks_blocked()
            if close != "leave":
                batch.extend(await getattr(stream, close)() or [])
                with pytest.raises(trio.EndOfChannel):
                    await stream.receive()
                balanced(stream)

    with pytest.raises(ValueError, match="source"):
        await block()
    assert len(batch) == (close == "aclose_and_drain")


async def test_the_blocks_error_comes_before_the_sources(scripted: Any) -> None:
    """If both raised, the block's own exception arrives."""

    def rows() -> Iterator[dict[str, Any]]:
        raise ValueError("source")
        yield {}

    async def block() -> None:
        async with open_rollout_stream(rows(), scripted):
            await wait_all_tasks_blocked()
            raise KeyError("block")

    with pytest.raises(KeyError, match="block"):
        await block()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=["KeyboardInterrupt", "SystemExit"])
@pytest.mark.parametrize("wrapped", [False, True])
async def test_what_must_end_the_program_ends_the_block(
    error: BaseException, wrapped: bool, scripted: Any, rows: Rows, balanced: Balanced
) -> None:
    """KeyboardInterrupt or SystemExit in a rollout cancels block and siblings, and arrives as itself."""
    streams: list[RolloutStream] = []

    async def block() -> None:
        async with open_rollout_stream(rows(3), scripted) as stream:
            streams.append(stream)
            await wait_all_tasks_blocked()
            scripted.fail(1, BaseExceptionGroup("", [error, ValueError()]) if wrapped else error)
            async for _ in stream:
                pass
            raise AssertionError("the loop ended as if all was well")

    caught = await raised_by(block)
    if wrapped:
        assert isinstance(caught, BaseExceptionGroup)
        assert caught.exceptions[0] is error
    else:
        assert caught is error
    balanced(streams[0])
    assert len(streams[0].unfinished()) == 3


async def test_what_must_end_the_program_may_come_from_the_source(scripted: Any, balanced: Balanced) -> None:
    """A KeyboardInterrupt in the source ends the block as itself."""

    def rows() -> Iterator[dict[str, Any]]:
        yield {"i": 0}
        raise KeyboardInterrupt

    streams: list[RolloutStream] = []

    async def block() -> None:
        async with open_rollout_stream(rows(), scripted) as stream:
            streams.append(stream)
            await stream.receive()

    assert isinstance(await raised_by(block), KeyboardInterrupt)
    balanced(streams[0])


async def test_block_and_rollout_at_once_are_both_shown(scripted_with: Any, rows: Rows) -> None:
    """An error of the block and an interrupt in a rollout that is being cancelled make a group of the two."""
    interrupt, error = KeyboardInterrupt(), ValueError("block")

    async def run(attempt: RolloutAttempt) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise interrupt

    async def block() -> None:
        async with open_rollout_stream(rows(1), run):
            await wait_all_tasks_blocked()
            raise error

    caught = await raised_by(block)
    assert isinstance(caught, BaseExceptionGroup)
    assert caught.exceptions == (error, interrupt)


def test_a_real_interrupt_in_the_consumer(balanced: Balanced) -> None:
    """A SIGINT while the main task waits in receive() arrives as KeyboardInterrupt, and the accounts balance."""
    streams: list[RolloutStream] = []

    async def run(attempt: RolloutAttempt) -> None:
        await trio.sleep_forever()

    async def interrupt() -> None:
        await wait_all_tasks_blocked()
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        async with trio.open_nursery() as nursery, open_rollout_stream([{"i": 0}], run) as stream:
            streams.append(stream)
            nursery.start_soon(interrupt)
            await stream.receive()

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)) as caught:
            trio.run(main)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert isinstance(caught.value, KeyboardInterrupt) or caught.value.split(KeyboardInterrupt)[1] is None
    balanced(streams[0])
    assert len(streams[0].unfinished()) == 1


def test_real_interrupts_at_any_moment(balanced: Balanced) -> None:
    """A SIGINT in the middle of anything, user code or the stream's own, ends the block with the accounts balanced."""
    moment = interrupts = 0
    left = 0
    while left <= 0:  # until a whole run has fewer lines than that
        moment += 1
        streams: list[RolloutStream] = []
        seen: list[int] = []
        left = moment

        def count(frame: Any, event: str, argument: Any) -> Any:
            """A trace function: raises the signal at the n-th line that is run in this package or this file."""
            nonlocal left
            if "rollouts" not in frame.f_code.co_filename:
                return None
            left -= event == "line"
            if left == 0 and event == "line":
                signal.raise_signal(signal.SIGINT)
            return count

        async def run(attempt: RolloutAttempt) -> dict[str, Any]:
            await trio.lowlevel.checkpoint()
            return {}

        async def main(streams: list[RolloutStream], seen: list[int], trace: Any) -> None:
            async with open_rollout_stream(({"i": i} for i in range(3)), run, max_concurrent=2) as stream:
                streams.append(stream)
                sys.settrace(trace)
                async for outcome in stream:
                    seen.append(outcome.row["i"])
                sys.settrace(None)

        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        before = sys.gettrace()
        try:
            trio.run(main, streams, seen, count)
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            sys.settrace(before)
            signal.signal(signal.SIGINT, previous)
        balanced(streams[0])
        assert streams[0].statistics().delivered - len(seen) in (0, 1)  # the loop's own variable may hold one
    assert interrupts > 300
