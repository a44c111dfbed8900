"""The pool's decisions, without a transport around it."""

from __future__ import annotations

import math
import socket
import sys

import pytest
import trio

from gym_trio.errors import TransportError
from gym_trio.http._origin_connection import Connection
from gym_trio.http._pool import OriginPool


class Sockets:
    """Makes connections whose far ends the test holds."""

    def __init__(self) -> None:
        self._far: dict[Connection, socket.socket] = {}

    def make(self) -> Connection:
        near, far = socket.socketpair()
        near.setblocking(False)
        connection = Connection(near)
        self._far[connection] = far
        return connection

    def far(self, connection: Connection) -> socket.socket:
        return self._far[connection]

    def close(self) -> None:
        for connection, far in self._far.items():
            connection.close()
            far.close()


@pytest.fixture
async def sockets():
    made = Sockets()
    yield made
    made.close()


async def connect(pool: OriginPool, sockets: Sockets) -> Connection:
    permit = await pool.acquire()
    assert isinstance(permit, trio.CancelScope)
    connection = sockets.make()
    pool.connected(permit, connection)
    return connection


async def test_idle_connections_come_back_last_in_first_out(sockets: Sockets) -> None:
    """And each only once."""
    pool = OriginPool(math.inf, None, 10)
    made = [await connect(pool, sockets) for _ in range(3)]
    for connection in made:
        pool.release(connection)
    assert [pool.take_idle() for _ in range(4)] == [made[2], made[1], made[0], None]
    assert len(pool.connections) == 3


async def test_finding_and_freeing_does_not_depend_on_how_many_there_are(sockets: Sockets) -> None:
    """The number of Python calls is the same with ten idle or waiting as with ten thousand."""

    async def calls(idle: int, waiting: int) -> int:
        pool = OriginPool(math.inf, 1, 10)
        spare = sockets.make()
        count = 0

        def count_calls(frame, event, arg) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        first = await connect(pool, sockets)
        for _ in range(idle):
            pool.connections.add(spare)
            pool._idle.append(spare)
            spare.idle_until = math.inf
        async with trio.open_nursery() as nursery:
            if waiting:
                pool._idle.clear()
                for _ in range(waiting):
                    nursery.start_soon(pool.acquire)
                await trio.testing.wait_all_tasks_blocked()
            sys.setprofile(count_calls)
            pool.release(first)
            if not waiting:
                pool.take_idle()
            sys.setprofile(None)
            nursery.cancel_scope.cancel()
        return count

    assert await calls(10, 0) == await calls(10_000, 0)
    assert await calls(0, 10) == await calls(0, 5_000)


async def test_a_connection_handed_over_dead_becomes_its_waiters_permission(sockets: Sockets) -> None:
    """The waiter does not go to the end of the queue for it, and the limit holds."""
    pool = OriginPool(math.inf, 1, 10)
    connection = await connect(pool, sockets)
    order = []

    async def wait(name: str) -> None:
        got = await pool.acquire()
        order.append((name, type(got)))
        assert len(pool.connections) + pool.connecting <= 1
        if isinstance(got, trio.CancelScope):
            fresh = sockets.make()
            pool.connected(got, fresh)
            got = fresh
        pool.release(got)

    async with trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(wait, name)
            await trio.testing.wait_all_tasks_blocked()
        pool.release(connection)
        sockets.far(connection).close()
    assert order == [("a", trio.CancelScope), ("b", Connection)]
    assert connection.fd == -1


async def test_a_failed_connect_gives_its_place_to_the_next_waiter(sockets: Sockets) -> None:
    """In order, one for one."""
    pool = OriginPool(math.inf, None, 2)
    permits = [await pool.acquire(), await pool.acquire()]
    got = []

    async def wait(number: int) -> None:
        permit = await pool.acquire()
        assert isinstance(permit, trio.CancelScope)
        got.append(number)
        pool.connect_failed(permit)

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(wait, number)
            await trio.testing.wait_all_tasks_blocked()
        assert (pool.connecting, pool.waiting) == (2, 4)
        pool.connect_failed(permits[0])
        await trio.testing.wait_all_tasks_blocked()
        assert got == [0, 1, 2, 3]
    assert (pool.connecting, pool.waiting) == (1, 0)


async def test_what_has_been_idle_too_long_is_closed(sockets: Sockets, autojump_clock) -> None:
    """When it is looked for, when another is freed, and when time is swept."""
    pool = OriginPool(4, None, 10)
    first, second, third = [await connect(pool, sockets) for _ in range(3)]
    pool.release(first)
    await trio.sleep(5)
    assert pool.take_idle() is None
    assert first.fd == -1
    pool.release(second)
    await trio.sleep(5)
    pool.release(third)
    assert (second.fd, pool.idle) == (-1, 1)
    assert pool.expire() == trio.current_time() + 4
    await trio.sleep(5)
    assert pool.expire() == math.inf
    assert (third.fd, pool.idle, len(pool.connections)) == (-1, 0, 0)


async def test_a_closed_pool_gives_and_keeps_nothing(sockets: Sockets) -> None:
    """Waiters get an error, permissions are withdrawn, what comes back is closed."""
    pool = OriginPool(math.inf, 3, 1)
    busy, idle = await connect(pool, sockets), await connect(pool, sockets)
    permit = await pool.acquire()
    assert isinstance(permit, trio.CancelScope)
    pool.release(idle)

    async def wait() -> None:
        with pytest.raises(TransportError, match="closed"):
            await pool.acquire()

    pool._idle.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        pool.close()
    assert permit.cancel_called
    assert (busy.fd, idle.fd) == (-1, -1)
    late = sockets.make()
    with pytest.raises(TransportError, match="closed"):
        pool.connected(permit, late)
    assert late.fd == -1
    pool.release(busy)
    with pytest.raises(TransportError, match="closed"):
        await pool.acquire()
    assert (len(pool.connections), pool.idle, pool.waiting, pool.connecting) == (0, 0, 0, 0)
