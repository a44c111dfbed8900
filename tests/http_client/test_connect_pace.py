"""How many connections are made for those who wait: as many as help them."""

from __future__ import annotations

import math
import random
import socket

import pytest
import trio

from gym_trio.http import _connector, open_socket_transport
from gym_trio.http._connect_pace import ConnectPace
from gym_trio.http._origin_connection import Connection
from gym_trio.http._pool import OriginPool

FIRST, FEWEST = 32, 4


class Origin:
    """A pool, requests that wait for its connections, and a server whose every step the test takes."""

    def __init__(self, nursery: trio.Nursery, most: int = 128, limit: int | None = None) -> None:
        self.pool = OriginPool(math.inf, limit, most)
        self.permits: list[trio.CancelScope] = []  # being used to connect
        self.held: list[Connection] = []  # by requests that the server has not answered
        self.served = 0
        self.made = 0
        self._nursery = nursery
        self._there: list[socket.socket] = []

    async def ask(self, many: int) -> list[trio.CancelScope]:
        scopes = [trio.CancelScope() for _ in range(many)]
        for scope in scopes:
            self._nursery.start_soon(self._request, scope)
        await trio.testing.wait_all_tasks_blocked()
        return scopes

    async def _request(self, scope: trio.CancelScope) -> None:
        with scope:
            got = await self.pool.acquire()
            if isinstance(got, Connection):
                self.held.append(got)
                self.served += 1
            else:
                self.permits.append(got)

    async def connect(self, many: int | None = None, *, far: bool = False) -> None:
        for permit in self._taken(self.permits, many):
            here, there = socket.socketpair()
            here.setblocking(False)
            self._there.append(there)
            connection = Connection(here, far)
            self.pool.connected(permit, connection)
            self.held.append(connection)
            self.served += 1
            self.made += 1
        await trio.testing.wait_all_tasks_blocked()

    async def fail(self, many: int | None = None) -> None:
        for permit in self._taken(self.permits, many):
            self.pool.connect_failed(permit)
            self.served += 1
        await trio.testing.wait_all_tasks_blocked()

    async def answer(self, many: int | None = None, *, well: bool = True) -> None:
        for connection in self._taken(self.held, many):
            (self.pool.release if well else self.pool.discard)(connection)
        await trio.testing.wait_all_tasks_blocked()

    @staticmethod
    def _taken(some: list, many: int | None) -> list:
        taken = some[:many]
        del some[:many]
        return taken

    def close(self) -> None:
        self._nursery.cancel_scope.cancel()
        self.pool.close()
        for there in self._there:
            there.close()


@pytest.fixture
async def origin(nursery):
    made = Origin(nursery)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("reused", "allowed"), [(0, 64), (3, 64), (4, 32), (15, 32), (16, 16), (1000, 16)], ids=lambda value: str(value)
)
def test_how_many_is_set_by_how_many_used_ones_came_free(reused: int, allowed: int) -> None:
    """Less than an eighth of how many may be in the making: twice as many. At least half: half as many."""
    pace = ConnectPace(128)
    first, other = trio.CancelScope(), trio.CancelScope()
    pace.reused()  # before they began
    pace.connect_begins(first, 1)
    pace.connect_begins(other, 1)
    for _ in range(reused):
        pace.reused()
    pace.connect_ended(other, far=False)
    assert pace.allowed == allowed
    pace.connect_ended(first, far=False)  # which began before that was known
    assert pace.allowed == allowed


def test_a_connect_that_hangs_holds_up_nothing_but_itself() -> None:
    """How many is set by those that end, whichever has begun first: by each of them once."""
    pace = ConnectPace(128)
    hung, permit = trio.CancelScope(), trio.CancelScope()
    pace.connect_begins(hung, 1)
    for allowed in (64, 128, 128):
        pace.connect_begins(permit, 1)
        pace.connect_ended(permit, far=False)
        assert pace.allowed == allowed
    pace.connect_begins(permit, 1)
    for _ in range(64):
        pace.reused()
    pace.connect_ended(hung, far=None)
    assert pace.allowed == 128
    pace.connect_ended(permit, far=False)
    assert pace.allowed == 64


@pytest.mark.parametrize("most", [1, 3, 20, 128, 1000])
def test_never_more_than_the_setting_and_never_none(most: int) -> None:
    """Whichever way it goes, for however long."""
    pace = ConnectPace(most)
    for reused, last in ((0, most), (10**6, min(FEWEST, most)), (0, most)):
        for _ in range(20):
            assert min(FEWEST, most) <= pace.allowed <= most
            permit = trio.CancelScope()
            pace.connect_begins(permit, 1)
            for _ in range(min(reused, 2 * pace.allowed)):
                pace.reused()
            pace.connect_ended(permit, far=False)
        assert pace.allowed == last


def test_where_a_server_is_may_become_known_late() -> None:
    """One on this machine whose backlog was full at first is not one on another machine for long."""
    pace = ConnectPace(128)
    permit = trio.CancelScope()
    allowed = []
    for far in (None, True, None, True, False, None):
        pace.connect_begins(permit, 1)
        for _ in range(1000):
            pace.reused()
        pace.connect_ended(permit, far=far)
        allowed.append(pace.allowed)
    assert allowed == [16, 128, 128, 128, 16, 8]


async def test_a_server_that_takes_its_time_gets_all_there_is(origin: Origin) -> None:
    """Each request has its connection after a few turns, none of which makes more than the setting allows."""
    await origin.ask(400)
    at_once = []
    while origin.served < 400:
        at_once.append(len(origin.permits))
        await origin.connect()
    assert at_once == [32, 64, 128, 128, 48]


async def test_a_server_that_answers_at_once_gets_few_connections(origin: Origin) -> None:
    """Four thousand requests, of which it answers all it has while a connection is made."""
    await origin.ask(4000)
    while origin.served < 4000:
        await origin.answer()
        await origin.connect()
    assert origin.made <= 300


async def test_a_server_that_slows_down_gets_more_from_then_on(origin: Origin) -> None:
    """However many had been enough before."""
    await origin.ask(2000)
    while origin.served < 1000:
        await origin.answer()
        await origin.connect()
    assert origin.made <= 250
    at_once = []
    while origin.served < 2000:  # those that it has now it keeps
        at_once.append(len(origin.permits))
        await origin.connect()
    assert at_once[0] <= 8
    assert at_once[8] == 128


async def test_another_machine_gets_all_that_may_be_made_at_once(origin: Origin) -> None:
    """However quickly used ones come free: to wait for the network costs nothing here. Also in the next burst."""
    await origin.ask(4000)
    at_once = []
    while origin.served < 2000:
        await origin.answer()
        at_once.append(len(origin.permits))
        await origin.connect(far=True)
    assert at_once == [32, *[128] * (len(at_once) - 1)]
    while origin.pool.waiting or origin.permits:
        await origin.answer()
        await origin.connect(far=True)
    await origin.ask(4000)
    assert origin.pool.connecting == 128


class FromElsewhere(socket.socket):
    """As it would be on another machine than who it is connected to."""

    def getsockname(self) -> tuple[str, int]:
        return "192.0.2.1", 1

    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.2", 1


async def test_another_machine_is_not_near_for_having_connected_at_once(open_peer, echo, monkeypatch) -> None:
    """As it has where this thread had no time in between: it would be given up after 10 ms from then on."""

    def made(family: socket.AddressFamily) -> socket.socket:
        sock = FromElsewhere(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        return sock

    monkeypatch.setattr(_connector, "_new_socket", made)
    async with open_peer(echo) as peer, open_socket_transport() as transport:
        await transport.send(peer.request())
        (connection,) = transport._pools[peer.origin].connections
        assert connection.is_far


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", "::"])
async def test_every_address_of_this_machine_is_near(open_peer, echo, host: str) -> None:
    """Whichever address the kernel gives the other end."""
    async with open_peer(echo, host=host) as peer, open_socket_transport() as transport:
        await transport.send(peer.request())
        (connection,) = transport._pools[peer.origin].connections
        assert not connection.is_far


@pytest.mark.parametrize(("name", "far"), [(None, False), ("localhost", True)])
async def test_only_a_connect_that_the_kernel_does_at_once_is_near(
    open_peer, echo, name: str | None, far: bool
) -> None:
    """A name has to be looked up, which takes its time."""
    async with open_peer(echo, name=name) as peer, open_socket_transport() as transport:
        await transport.send(peer.request())
        (connection,) = transport._pools[peer.origin].connections
        assert connection.is_far is far


async def test_one_that_waits_is_never_left_to_the_answers_alone(origin: Origin) -> None:
    """A server that answers some and keeps others: a connection is being made for as long as anybody waits."""
    await origin.ask(600)
    kept = 0
    while origin.served < 600:
        assert origin.pool.connecting >= 1
        await origin.connect()
        kept += 1
        await origin.answer(max(0, len(origin.held) - kept))
    assert len(origin.held) >= kept


async def test_a_new_burst_begins_anew(origin: Origin) -> None:
    """What was learnt while requests waited is not held against those that come later."""
    await origin.ask(300)
    while origin.served < 300:
        await origin.answer()
        await origin.connect()
    while origin.pool.connecting:
        await origin.connect(1)
    await origin.answer()
    assert origin.pool.waiting == 0
    await origin.ask(1000)
    assert origin.pool.connecting == FIRST


async def test_a_new_burst_begins_anew_where_the_last_one_took_all_places(nursery: trio.Nursery) -> None:
    """The last of it was served with no connect under way that could have told."""
    origin = Origin(nursery, limit=100)
    try:
        await origin.ask(2000)
        while origin.served < 2000:
            await origin.answer()
            await origin.connect()
        assert origin.made == 100
        await origin.answer(well=False)
        while (idle := origin.pool.take_idle()) is not None:
            origin.pool.discard(idle)
        await origin.ask(1000)
        assert origin.pool.connecting == FIRST
    finally:
        origin.close()


async def test_a_seeded_storm_leaves_nobody_waiting(nursery: trio.Nursery, rng: random.Random) -> None:
    """Requests come and are cancelled, connects succeed and fail, answers come and connections break, in any order."""
    origin = Origin(nursery, most := rng.choice([1, 2, 7, 128]))
    asked = cancelled = 0
    try:
        for _ in range(400):
            match rng.randrange(7):
                case 0 | 1:
                    scopes = await origin.ask(many := rng.randrange(40))
                    asked += many
                    before = origin.pool.waiting
                    for scope in rng.sample(scopes, rng.randrange(many + 1)):
                        scope.cancel()
                    await trio.testing.wait_all_tasks_blocked()
                    cancelled += before - origin.pool.waiting
                case 2:
                    await origin.fail(rng.randrange(3))
                case 3:
                    await origin.answer(rng.randrange(10), well=False)
                case 4:
                    await origin.answer(rng.randrange(40))
                case _:
                    await origin.connect(rng.randrange(20))
            pool = origin.pool
            assert pool.connecting == len(origin.permits) <= most
            assert not pool.waiting or pool.connecting
            assert not pool.waiting or not pool.idle
            assert len(pool.connections) == len(origin.held) + pool.idle
        while origin.pool.waiting or origin.permits:
            await origin.connect()
            await origin.answer(rng.randrange(3))
        assert origin.served == asked - cancelled
    finally:
        origin.close()
