"""How sources end: suspended, exhausted, failing, and whose they are afterwards."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.rollouts import RolloutAttempt, RolloutStream, open_rollout_stream

Balanced = Callable[[RolloutStream], None]


async def at_once(attempt: RolloutAttempt) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("close", ["aclose", "aclose_and_drain"])
async def test_a_suspended_source_is_cancelled(close: str, scripted: Any, balanced: Balanced) -> None:
    """A close cancels the pull that an async source is suspended in, and waits for the source's cleanup."""
    ended: list[str] = []

    async def rows() -> AsyncIterator[dict[str, Any]]:
        try:
            yield {"i": 0}
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            ended.append("source")

    async with open_rollout_stream(rows(), scripted) as stream:
        await wait_all_tasks_blocked()
        await getattr(stream, close)()
        assert ended == ["source"]
        balanced(stream)


@pytest.mark.parametrize("grace", [0, 5])
async def test_a_drain_cancels_the_pull_at_once(grace: float, autojump_clock: Any) -> None:
    """The grace is for rollouts, not for the source."""
    ended: list[float] = []

    async def rows() -> AsyncIterator[dict[str, Any]]:
        yield {"i": 0}
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    async def run(attempt: RolloutAttempt) -> None:
        await trio.sleep_forever()

    async with open_rollout_stream(rows(), run) as stream:
        await trio.sleep(1)
        await stream.aclose_and_drain(grace_seconds=grace)
        assert trio.current_time() - ended[0] == grace


async def test_an_async_generator_is_closed_wherever_it_stands(scripted: Any) -> None:
    """An async generator that waits for a slot, not in a pull, is closed before the close returns."""
    ended: list[str] = []

    async def rows() -> AsyncIterator[dict[str, Any]]:
        try:
            for i in itertools.count():
                yield {"i": i}
        finally:
            await trio.lowlevel.checkpoint()
            ended.append("source")

    async with open_rollout_stream(rows(), scripted, max_concurrent=2) as stream:
        await wait_all_tasks_blocked()
        await stream.aclose()
        assert ended == ["source"]


async def test_an_async_generator_that_hangs_in_its_cleanup_is_bounded(autojump_clock: Any, scripted: Any) -> None:
    """A source whose cleanup does not end delays the close by a bounded time."""

    async def rows() -> AsyncIterator[dict[str, Any]]:
        try:
            for i in itertools.count():
                yield {"i": i}
        finally:
            await trio.sleep_forever()

    async with open_rollout_stream(rows(), scripted, max_concurrent=2) as stream:
        await trio.sleep(1)
        await stream.aclose()
        assert trio.current_time() == 1 + 5


async def test_a_generator_of_the_callers_goes_on_in_the_next_stream() -> None:
    """A trainer's endless iterator is not used up by a step that stops early: no row is lost or repeated."""
    rows = ({"i": i} for i in itertools.count())
    seen: list[int] = []
    unfinished: list[int] = []
    for _ in range(3):
        async with open_rollout_stream(rows, at_once, max_concurrent=4) as stream:
            for _ in range(5):
                seen.append((await stream.receive()).row["i"])
            seen += [outcome.row["i"] for outcome in await stream.aclose_and_drain()]
        unfinished += [left.row["i"] for left in stream.unfinished()]
    assert sorted(seen + unfinished) == list(range(len(seen) + len(unfinished)))


async def test_a_generator_of_the_streams_own_is_closed() -> None:
    """A generator that nobody else holds, or that came of iterating the rows, is closed with the pulling."""
    ended: list[str] = []

    def generator() -> Iterator[dict[str, Any]]:
        try:
            for i in itertools.count():
                yield {"i": i}
        finally:
            ended.append("source")

    class Rows:
        made: ClassVar[list[Any]] = []  # keeps them, so that letting go of them would not be enough

        def __iter__(self) -> Iterator[dict[str, Any]]:
            self.made.append(generator())
            return iter(self.made[-1])

    for rows in (generator, Rows):
        async with open_rollout_stream(rows(), at_once, max_concurrent=2) as stream:
            await stream.receive()
            await stream.aclose()
            assert ended == ["source"]
        ended.clear()


async def test_a_memory_channel_of_the_callers_stays_open(scripted: Any) -> None:
    """Closing a stream does not close the channel its rows come from; rows not pulled stay in it."""
    send, receive = trio.open_memory_channel[dict[str, Any]](10)
    with send, receive:
        for i in range(5):
            send.send_nowait({"i": i})
        async with open_rollout_stream(receive, scripted, max_concurrent=2) as stream:
            await wait_all_tasks_blocked()
            await stream.aclose()
            assert stream.statistics().pulled == 2
        assert receive.receive_nowait() == {"i": 2}


async def test_a_source_that_fails_in_its_cleanup(scripted: Any, balanced: Balanced) -> None:
    """What a source raises as it is closed is an error of the source: told on leaving the block."""

    async def rows() -> AsyncIterator[dict[str, Any]]:
        try:
            yield {"i": 0}
            await trio.sleep_forever()
        finally:
            raise ValueError("cleanup")

    async def block() -> None:
        async with open_rollout_stream(rows(), scripted) as stream:
            await wait_all_tasks_blocked()
            await stream.aclose()
            balanced(stream)

    with pytest.raises(ValueError, match="cleanup"):
        await block()


async def test_an_iterable_that_cannot_begin(scripted: Any) -> None:
    """What iter(rows) raises is raised on entry."""

    class Rows:
        def __iter__(self) -> Iterator[dict[str, Any]]:
            raise OSError("no file")

    with pytest.raises(OSError, match="no file"):
        async with open_rollout_stream(Rows(), scripted):
            raise AssertionError("entered")


async def test_a_source_with_a_nursery_of_its_own(scripted: Any, balanced: Balanced) -> None:
    """A class-based source that runs tasks inside each pull is cancelled cleanly, groups and all."""

    class Rows:
        def __aiter__(self) -> Rows:
            return self

        async def __anext__(self) -> dict[str, Any]:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await trio.sleep_forever()
            raise AssertionError

    async with open_rollout_stream(Rows(), scripted) as stream:
        await wait_all_tasks_blocked()
        await stream.aclose()
        balanced(stream)


async def test_a_close_from_inside_the_source(balanced: Balanced) -> None:
    """A source that closes its own stream is cancelled by that, and nothing hangs."""
    streams: list[RolloutStream] = []

    async def rows() -> AsyncIterator[dict[str, Any]]:
        yield {"i": 0}
        await streams[0].aclose()

    async with open_rollout_stream(rows(), at_once) as stream:
        streams.append(stream)
        await wait_all_tasks_blocked()
        await stream.aclose()
        balanced(stream)
