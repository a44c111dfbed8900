"""A cancelled request is gone: its socket closed, its place free, its connection never used by another."""

from __future__ import annotations

import os
import random
import socket
import ssl
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
import trio.testing
import trustme

from gym_trio import http
from gym_trio.errors import PeerDropped
from gym_trio.http import TransportSettings, open_socket_transport


async def parts() -> AsyncIterator[bytes]:
    for _ in range(2):
        await trio.lowlevel.checkpoint()
        yield b"x" * 70_000


async def whole(transport: http.SocketTransport, request: http.Request) -> None:
    assert (await transport.send(request)).body == b"x"


async def streamed(transport: http.SocketTransport, request: http.Request) -> None:
    async with transport.stream(request) as response:
        assert b"".join([chunk async for chunk in response]) == b"x"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("shape", ["small", "large", "parts"])
@pytest.mark.parametrize("scene", ["new", "kept", "tls", "name"])
@pytest.mark.parametrize("parked", [True, False])
async def test_cancellation_at_every_step_leaves_nothing(
    open_peer, settled, cancel_at_step, authority, ask, shape: str, scene: str, parked: bool
) -> None:
    """Whatever it waits for: no socket, place or waiter is left, and the next request is given its own answer."""
    served = 0

    async def handler(incoming) -> None:
        nonlocal served
        while True:
            head, _ = await incoming.request()
            if not head:
                return
            served += 1
            await incoming.stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
            await trio.lowlevel.checkpoint()
            await incoming.stream.send_all(b"transfer-encoding: chunked\r\n\r\n1\r\n%b\r\n" % head[6:7])
            await trio.lowlevel.checkpoint()
            await incoming.stream.send_all(b"0\r\n\r\n")

    server_context = None
    client_context = ssl.create_default_context()
    if scene == "tls":
        server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(server_context)
        authority.configure_trust(client_context)
    name = "localhost" if scene == "name" else None
    finished = False
    async with open_peer(handler, ssl_context=server_context, name=name) as peer:
        for step in range(1, 500):
            body = {"small": b"x", "large": b"x" * 1_000_000, "parts": parts()}[shape]
            told: list[int] = []
            async with open_socket_transport(TransportSettings(ssl_context=client_context)) as transport:
                if scene == "kept":
                    await transport.send(peer.request(body=b"x"))
                before = served
                with cancel_at_step(step, parked=parked) as cancelling:
                    await ask(transport, peer.request(target=b"/x", body=body, on_sent=partial(told.append, 1)))
                statistics = transport.statistics()
                assert statistics.open == statistics.idle <= 1
                assert (statistics.connecting, statistics.waiting) == (0, 0)
                finished = not cancelling.scope.cancelled_caught and cancelling.steps < step
                if finished:
                    assert told == [1]
                if not told:
                    await trio.testing.wait_all_tasks_blocked()
                    assert served == before
                assert (await transport.send(peer.request(target=b"/y", body=b"y"))).body == b"y"
            await settled(lambda: peer.open == 0)
            if finished:
                break
        assert finished
        assert step > 2


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the state of a connection is not told here")
@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"])
async def test_an_exchange_that_is_cut_off_keeps_no_port(open_peer, settled, ask, says: bytes) -> None:
    """The connection is over for both at once, with nothing left to wait for: no FIN_WAIT here, no CLOSE_WAIT there."""
    peers: list[trio.socket.SocketType] = []

    async def handler(incoming) -> None:
        await incoming.request()
        peers.append(incoming.stream.socket)
        await incoming.stream.send_all(says)
        await trio.sleep_forever()

    def state() -> int:
        return peers[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        async with trio.open_nursery() as asking:
            asking.start_soon(ask, transport, peer.request())
            await settled(lambda: bool(peers))
            assert state() == 1  # TCP_ESTABLISHED
            asking.cancel_scope.cancel()
        await settled(lambda: state() == 7)  # TCP_CLOSE


async def test_a_request_cancelled_before_it_began_sends_nothing(open_peer, echo) -> None:
    """And leaves the idle connection to the others."""
    told = []
    async with open_peer(echo) as peer, open_socket_transport() as transport:
        await transport.send(peer.request())
        with trio.CancelScope() as scope:
            scope.cancel()
            await transport.send(peer.request(on_sent=lambda: told.append(1)))
        assert scope.cancelled_caught
        assert told == []
        assert transport.statistics().idle == 1


async def test_a_deadline_ends_a_request_whose_server_is_silent(open_peer, settled) -> None:
    """The server sees the end of input at once."""
    gone = trio.Event()

    async def handler(incoming) -> None:
        await incoming.request()
        await incoming.head()
        gone.set()

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        with trio.move_on_after(0.05) as scope:
            await transport.send(peer.request())
        assert scope.cancelled_caught
        assert transport.statistics().open == 0
        with trio.fail_after(5):
            await gone.wait()


async def test_connections_are_closed_in_the_moment_of_the_cancellation(open_peer) -> None:
    """Before one of the tasks has run: servers of thousands of requests learn of it together."""

    async def handler(incoming) -> None:
        await incoming.request()
        await incoming.head()

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(transport.send, peer.request())
            await trio.testing.wait_all_tasks_blocked(0.05)
            connections = list(transport._pools[peer.origin].connections)
            assert len(connections) == 20
            nursery.cancel_scope.cancel()
            assert [connection.fd for connection in connections] == [-1] * 20
        assert transport.statistics().open == 0


async def test_a_cancelled_wait_for_a_chunk_loses_nothing(open_peer) -> None:
    """A stream's reader may bound one wait, and go on afterwards."""
    go = trio.Event()

    async def handler(incoming) -> None:
        while (await incoming.request())[0]:
            await incoming.stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na")
            await go.wait()
            await incoming.stream.send_all(b"b")

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        for _ in range(2):  # over a connection on which a whole response was waited for, too
            async with transport.stream(peer.request()) as response:
                assert await anext(response) == b"a"
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await anext(response)
                assert scope.cancelled_caught
                go.set()
                assert [chunk async for chunk in response] == [b"b"]
            go = trio.Event()
            go.set()
            assert (await transport.send(peer.request())).body == b"ab"
            go = trio.Event()
        assert transport.statistics().open == 1


async def test_a_waiter_that_is_cancelled_leaves_its_place_to_the_next(open_peer) -> None:
    """The one behind it is served, in its turn."""
    go = trio.Event()
    order = []

    async def handler(incoming) -> None:
        while True:
            _, body = await incoming.request()
            if not body:
                return
            order.append(body)
            await go.wait()
            await incoming.answer(body)

    settings = TransportSettings(max_connections_per_origin=1)
    async with open_peer(handler) as peer, open_socket_transport(settings) as transport:
        async with trio.open_nursery() as nursery:
            scopes = {}

            async def ask(name: bytes) -> None:
                with trio.CancelScope() as scopes[name]:
                    await transport.send(peer.request(body=name))

            for name in (b"a", b"b", b"c", b"d"):
                nursery.start_soon(ask, name)
                await trio.testing.wait_all_tasks_blocked()
            scopes[b"b"].cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert transport.statistics().waiting == 2
            go.set()
        assert order == [b"a", b"c", b"d"]


async def test_a_connection_handed_to_a_cancelled_waiter_goes_on_to_the_next(open_peer) -> None:
    """Handing over and cancelling in one tick loses neither the connection nor the waiter behind."""
    go = trio.Event()
    order, told = [], []

    async def handler(incoming) -> None:
        while True:
            _, body = await incoming.request()
            if not body:
                return
            order.append(body)
            await go.wait()
            await incoming.answer(body)

    settings = TransportSettings(max_connections_per_origin=1)
    async with open_peer(handler) as peer, open_socket_transport(settings) as transport:
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def first() -> None:
                await transport.send(peer.request(body=b"a"))
                scope.cancel()  # the connection has just been handed to the second

            async def second() -> None:
                with scope:
                    await transport.send(peer.request(body=b"b", on_sent=lambda: told.append(1)))

            nursery.start_soon(first)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(transport.send, peer.request(body=b"c"))
            await trio.testing.wait_all_tasks_blocked()
            go.set()
        assert scope.cancelled_caught
        assert told == []
        assert order == [b"a", b"c"]
        assert peer.connections == 1


async def test_a_storm_of_a_thousand_active_and_a_thousand_queued(open_peer, settled) -> None:
    """All cancelled at once: the pool is empty, every socket is closed, and the next requests are served."""
    hold = True

    async def handler(incoming) -> None:
        while True:
            head, _ = await incoming.request()
            if not head:
                return
            if not hold:
                await incoming.answer(b"x")

    settings = TransportSettings(max_connections_per_origin=1000)
    async with open_peer(handler) as peer, open_socket_transport(settings) as transport:
        for _ in range(2):
            hold = True
            async with trio.open_nursery() as nursery:
                for _ in range(2000):
                    nursery.start_soon(transport.send, peer.request())
                await settled(lambda: transport.statistics() == type(transport.statistics())(1000, 0, 0, 1000))
                nursery.cancel_scope.cancel()
            assert transport.statistics() == type(transport.statistics())(0, 0, 0, 0)
            await settled(lambda: peer.open == 0)
            hold = False
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(transport.send, peer.request())
            assert transport.statistics().open == transport.statistics().idle > 0
            for pool in transport._pools.values():
                for connection in tuple(pool.connections):
                    pool.discard(connection)
                pool._idle.clear()
            await settled(lambda: peer.open == 0)


async def faulty(incoming, rng: random.Random) -> None:
    """Echoes most requests after a while, and ends others in every way there is."""
    while True:
        head, body = await incoming.request()
        if not head:
            return
        await trio.sleep(rng.random() * 0.004)
        match rng.randrange(12):
            case 0:
                return
            case 1:
                return await incoming.reset()
            case 2:
                return await incoming.stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n" + body)
            case 3:
                return await incoming.answer(body, b"HTTP/1.1 200 OK\r\nconnection: close")
            case _:
                await incoming.answer(body)


@pytest.mark.parametrize("limit", [None, 20])
async def test_a_seeded_storm_never_gives_a_request_anothers_answer(
    open_peer, rng: random.Random, limit: int | None
) -> None:
    """Requests that start, are cancelled, dropped, reset and answered at random: each answer is the request's own."""
    counts = {"answered": 0, "cancelled": 0, "dropped": 0}

    async def ask(number: int) -> None:
        await trio.sleep(rng.random() * 0.3)
        body = b"%d" % number * rng.choice([1, 1, 1, 40_000])
        with trio.move_on_after(rng.choice([0, 0.001, 0.004, 0.01, 5])) as scope:
            try:
                if rng.random() < 0.5:
                    assert (await transport.send(peer.request(body=body))).body == body
                else:
                    async with transport.stream(peer.request(body=body)) as response:
                        assert b"".join([chunk async for chunk in response]) == body
                counts["answered"] += 1
            except PeerDropped:
                counts["dropped"] += 1
        counts["cancelled"] += scope.cancelled_caught

    settings = TransportSettings(max_connections_per_origin=limit, max_concurrent_connects=8)
    async with open_peer(partial(faulty, rng=rng)) as peer, open_socket_transport(settings) as transport:
        async with trio.open_nursery() as nursery:
            for number in range(600):
                nursery.start_soon(ask, number)
        statistics = transport.statistics()
        assert statistics.open == statistics.idle <= (limit or 600)
        assert (statistics.connecting, statistics.waiting) == (0, 0)
    assert min(counts.values()) > 10, counts


@pytest.mark.parametrize("ask", [whole, streamed])
async def test_the_server_is_told_although_a_fork_holds_the_connection(open_peer, ask) -> None:
    """A process that was forked meanwhile has a copy of each of the client's descriptors for as long as it lives."""
    arrived, left = trio.Event(), trio.Event()

    async def handler(incoming) -> None:
        await incoming.request()
        arrived.set()
        assert await incoming.head() == b""
        left.set()

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, transport, peer.request())
            await arrived.wait()
            (pool,) = transport._pools.values()
            (connection,) = pool.connections
            copy = os.dup(connection.fd)
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await left.wait()
    os.close(copy)
