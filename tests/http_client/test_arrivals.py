"""Waiting for input through one epoll set: nothing that comes is missed, and nothing is told of twice."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import trio
import trio.testing

from gym_trio.http._arrivals import Arrivals, Inlet, open_arrivals


class Reader(Inlet):
    """Reads one end of a pair, as the connections of client and server do."""

    def __init__(self, arrivals: Arrivals, pair: tuple[socket.socket, socket.socket] | None = None) -> None:
        super().__init__(self.count_end)
        self.ends = 0
        self.sock, self.peer = pair or socket.socketpair()
        self.sock.setblocking(False)
        self.descriptor = self.sock.fileno()
        arrivals.watch(self.descriptor, self)

    def count_end(self) -> None:
        self.ends += 1

    def read_nowait(self, size: int) -> bytes | None:
        self.before_read()
        try:
            data = self.sock.recv(size)
        except BlockingIOError:
            return None
        if len(data) == size:
            self.after_full_read()
        return data

    async def read(self, size: int = 100) -> bytes:
        data = None
        while data is None:
            await self.wait_for_input()
            data = self.read_nowait(size)
        return data


@pytest.fixture
async def arrivals() -> AsyncIterator[Arrivals]:
    with open_arrivals() as found:
        if found is None:
            pytest.skip("no epoll here")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.run)
            yield found
            nursery.cancel_scope.cancel()


@pytest.fixture
def reader(arrivals: Arrivals) -> Iterator[Reader]:
    made = Reader(arrivals)
    with made.peer, made.sock:
        yield made
        arrivals.forget(made.descriptor)


@pytest.mark.parametrize("told", ["while waiting", "before", "before, unheard"])
async def test_input(reader: Reader, nursery: trio.Nursery, told: str) -> None:
    """Whether it comes before or after the wait has begun."""
    found = []

    async def read() -> None:
        found.append(await reader.read())

    if told == "while waiting":
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
    reader.peer.send(b"x")
    if told == "before":
        await trio.testing.wait_all_tasks_blocked()
    if told != "while waiting":
        nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    assert found == [b"x"]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
async def test_what_is_left_of_a_read_is_read_next(reader: Reader, size: int) -> None:
    """Also when the end of the input had come with it, and when nothing is left of it."""
    reader.peer.send(b"1234")
    reader.peer.close()
    found = []
    while data := await reader.read(size):
        found.append(data)
    assert b"".join(found) == b"1234"
    assert reader.ends == 1
    assert await reader.read() == b""


async def test_a_read_of_just_what_was_there(reader: Reader, nursery: trio.Nursery) -> None:
    """There might have been more: one false alarm, and then the wait."""
    found = []

    async def read() -> None:
        found.append(await reader.read(4))

    reader.peer.send(b"1234")
    await read()
    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    assert found == [b"1234"]
    reader.peer.send(b"5")
    await trio.testing.wait_all_tasks_blocked()
    assert found == [b"1234", b"5"]


@pytest.fixture
def tcp_reader(arrivals: Arrivals) -> Iterator[Reader]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        made = Reader(arrivals, (listener.accept()[0], peer))
    with made.peer, made.sock:
        yield made
        arrivals.forget(made.descriptor)


@pytest.mark.parametrize("marks", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
async def test_what_is_behind_urgent_data(tcp_reader: Reader, size: int, marks: int) -> None:
    """The kernel ends a read before it, however much is there behind it, and leaves it out."""
    found = b""
    with trio.fail_after(10):
        for count in range(marks):
            tcp_reader.peer.send(b"123")
            tcp_reader.peer.send(b"!", socket.MSG_OOB)
            tcp_reader.peer.send(b"456")
            while len(found) < 6 * (count + 1):
                found += await tcp_reader.read(size)
    assert found == b"123456" * marks
    with trio.move_on_after(0) as scope:
        await tcp_reader.read()
    assert scope.cancelled_caught
    assert tcp_reader.ends == 0


async def test_the_end_is_told_before_what_precedes_it_is_read(reader: Reader) -> None:
    """Once, while nobody reads."""
    reader.peer.send(b"unread")
    await trio.testing.wait_all_tasks_blocked()
    assert reader.ends == 0
    reader.peer.shutdown(socket.SHUT_WR)
    await trio.testing.wait_all_tasks_blocked()
    assert reader.ends == 1
    reader.peer.close()
    await trio.testing.wait_all_tasks_blocked()
    assert reader.ends == 1
    assert [await reader.read(), await reader.read()] == [b"unread", b""]


async def test_a_wait_can_be_cancelled_and_begun_again(reader: Reader) -> None:
    """What comes meanwhile is there for the next."""
    with trio.move_on_after(0) as scope:
        await reader.read()
    assert scope.cancelled_caught
    reader.peer.send(b"x")
    await trio.testing.wait_all_tasks_blocked()
    with trio.move_on_after(0) as scope:
        await reader.read()
    assert scope.cancelled_caught
    assert await reader.read() == b"x"


async def test_a_wait_can_be_stopped(reader: Reader, nursery: trio.Nursery) -> None:
    """Only one that goes on; the next one waits as ever."""
    ended = []

    async def read() -> None:
        with contextlib.suppress(trio.ClosedResourceError):
            ended.append(await reader.read())
            return
        ended.append(None)

    reader.stop_waiting()
    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    reader.stop_waiting()
    reader.stop_waiting()
    await trio.testing.wait_all_tasks_blocked()
    assert ended == [None]
    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    reader.arrived()
    reader.wake()
    reader.peer.send(b"x")
    reader.stop_waiting()  # woken already
    await trio.testing.wait_all_tasks_blocked()
    assert ended == [None, b"x"]


async def test_two_tasks_cannot_wait(reader: Reader, nursery: trio.Nursery) -> None:
    """As in trio itself."""
    nursery.start_soon(reader.read)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await reader.read()
    reader.peer.send(b"x")


async def test_a_number_that_is_used_again(arrivals: Arrivals) -> None:
    """A copy of the first socket, as a forked child has one, keeps it open; its news do not reach the second."""
    first = Reader(arrivals)
    copy = os.dup(first.descriptor)
    arrivals.forget(first.descriptor)
    first.sock.close()
    second = Reader(arrivals)
    assert second.descriptor == first.descriptor
    first.peer.send(b"for the first")
    first.peer.close()
    await trio.testing.wait_all_tasks_blocked()
    assert second.ends == 0
    with trio.move_on_after(0) as scope:
        await second.read()
    assert scope.cancelled_caught
    arrivals.forget(second.descriptor)
    os.close(copy)
    second.peer.close()
    second.sock.close()


async def test_more_at_once_than_are_told_of_at_once(arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is told of next."""
    monkeypatch.setattr("gym_trio.http._arrivals._TOLD_AT_ONCE", 3)
    readers = [Reader(arrivals) for _ in range(20)]
    for reader in readers:
        reader.peer.send(b"x")
    for reader in readers:
        assert await reader.read() == b"x"
        arrivals.forget(reader.descriptor)
        reader.peer.close()
        reader.sock.close()


async def test_who_leaves_is_told_of_before_those_who_speak(arrivals: Arrivals, nursery: trio.Nursery) -> None:
    """Input wakes a few tasks at a time, in order; an end has no turn to wait for, however much input came before."""
    arrivals.woken_at_once = 3
    order: list[int | str] = []

    async def read(number: int, reader: Reader) -> None:
        await reader.read()
        order.append(number)

    readers = [Reader(arrivals) for _ in range(12)]
    for number, reader in enumerate(readers[:10]):
        nursery.start_soon(read, number, reader)
    for reader in readers[10:]:
        reader.on_end = lambda: order.append("left")
    await trio.testing.wait_all_tasks_blocked()
    for reader in readers[:10]:
        reader.peer.send(b"x")
    for reader in readers[10:]:
        reader.peer.close()
    await trio.testing.wait_all_tasks_blocked()
    assert order[:2] == ["left", "left"]
    steps = [sorted(order[at : at + 3]) for at in range(2, 12, 3)]
    assert steps == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    for reader in readers:
        arrivals.forget(reader.descriptor)
        reader.peer.close()
        reader.sock.close()


@pytest.mark.parametrize("again", ["more", "cancelled", "cancelled, and waits again"])
async def test_a_task_whose_turn_has_not_come(arrivals: Arrivals, nursery: trio.Nursery, again: str) -> None:
    """More that comes meanwhile gives it no second turn; and what it does not wait for any more wakes nobody."""
    arrivals.woken_at_once = 1
    first, between, second = Reader(arrivals), Reader(arrivals), Reader(arrivals)
    scope, looks, found = trio.CancelScope(), 0, b""

    async def read_first() -> None:
        await first.read()
        second.peer.send(b"z")
        if again != "more":
            scope.cancel()

    async def read_second() -> None:
        nonlocal looks, found
        while True:
            await second.wait_for_input()
            looks += 1
            found += second.read_nowait(100) or b""

    async def read_second_in_scope() -> None:
        with scope:
            await read_second()
        if again == "cancelled, and waits again":
            await read_second()

    nursery.start_soon(read_first)
    nursery.start_soon(between.read)
    nursery.start_soon(read_second_in_scope)
    await trio.testing.wait_all_tasks_blocked()
    for reader in (first, between, second):
        reader.peer.send(b"y")
    await trio.testing.wait_all_tasks_blocked()
    assert (looks, found) == ((0, b"") if again == "cancelled" else (1, b"yz"))
    second.peer.send(b"!")
    await trio.testing.wait_all_tasks_blocked()
    assert (looks, found) == ((0, b"") if again == "cancelled" else (2, b"yz!"))
    for reader in (first, between, second):
        arrivals.forget(reader.descriptor)
        reader.peer.close()
        reader.sock.close()


@pytest.mark.parametrize("closes", ["the one that waits for its turn", "all"])
async def test_a_socket_that_is_closed_before_its_turn_comes(
    arrivals: Arrivals, nursery: trio.Nursery, closes: str
) -> None:
    """Its input was seen, and another socket has its number by now: that one is not woken."""
    arrivals.woken_at_once = 1
    first, second = Reader(arrivals), Reader(arrivals)
    others: list[Reader] = []

    async def read() -> None:
        await first.read()
        for reader in (second,) if closes != "all" else (first, second):
            arrivals.forget(reader.descriptor)
            reader.sock.close()
            others.append(Reader(arrivals))

    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    first.peer.send(b"x")
    second.peer.send(b"y")
    await trio.testing.wait_all_tasks_blocked()
    for other in others:
        with trio.move_on_after(0) as scope:
            await other.read()
        assert scope.cancelled_caught
        assert other.ends == 0
    for reader in (first, second, *others):
        arrivals.forget(reader.descriptor)
        reader.peer.close()
        reader.sock.close()


async def test_without_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other platforms do without."""
    monkeypatch.delattr(select, "EPOLLRDHUP")
    with open_arrivals() as arrivals:
        assert arrivals is None
