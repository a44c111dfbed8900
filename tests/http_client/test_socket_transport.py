"""Requests over real sockets: what is reused, what is bounded, and what each failure is called."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import trio

from gym_trio import http
from gym_trio.errors import (
    ConnectFailed,
    Delivery,
    LocalResourceError,
    PeerDropped,
    ProtocolError,
    TransportError,
    TransportTimeout,
    UsageError,
)
from gym_trio.http import Origin, RetryPolicy, SocketTransport, TransportSettings, open_socket_transport
from gym_trio.http._connector import Connector

ONCE = RetryPolicy(attempts=1)


async def read(transport: http.SocketTransport, request: http.Request, into: list[bytes] | None = None) -> None:
    async with transport.stream(request) as response:
        async for chunk in response:
            if into is not None:
                into.append(chunk)


async def test_a_connection_is_used_again(open_peer, echo) -> None:
    """One after the other, requests of any kind share one connection."""
    async with open_peer(echo) as peer, open_socket_transport() as transport:
        for number in range(20):
            assert (await transport.send(peer.request(body=b"%d" % number))).body == b"%d" % number
            assert (await transport.send(peer.request("GET"))).body == b""
        async with transport.stream(peer.request(body=b"x")) as response:
            assert [chunk async for chunk in response] == [b"x"]
        assert peer.connections == 1
        assert (transport.statistics().open, transport.statistics().idle) == (1, 1)


async def test_the_connection_used_last_is_used_first(open_peer, echo) -> None:
    """Idle connections are taken last in, first out, so that those no longer needed grow old and are closed."""
    numbers = []

    async def handler(incoming) -> None:
        while (await incoming.request())[0]:
            numbers.append(incoming.number)
            await incoming.answer()

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(transport.send, peer.request())
        assert sorted(numbers) == [1, 2, 3, 4, 5]
        del numbers[:]
        for _ in range(10):
            await transport.send(peer.request())
        assert len(set(numbers)) == 1


async def test_a_request_takes_one_step(open_peer, echo) -> None:
    """On a kept connection: send, wait once, read; the transport's own task takes one to tell of the answer."""

    class Steps(trio.abc.Instrument):
        def __init__(self) -> None:
            self.taken: Counter[str] = Counter()

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            if task is this or task.name.startswith(SocketTransport.__module__):
                self.taken[task.name] += 1

    this = trio.lowlevel.current_task()
    async with open_peer(echo) as peer, open_socket_transport() as transport:
        client = http.ServerClient({"peer": (transport, peer.url)})
        await client.post("peer", "/", json={})
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        for _ in range(100):
            await client.post("peer", "/", json={"a": "b" * 1000})
        trio.lowlevel.remove_instrument(steps)
    assert steps.taken == {this.name: 100, f"{SocketTransport.__module__}.SocketTransport.wake_waiting": 100}


async def test_a_transport_that_nobody_runs_works_too(open_peer, echo) -> None:
    """One that was made without its block waits in trio's own way."""
    async with open_peer(echo) as peer:
        transport = SocketTransport()
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(transport.send, peer.request())
        assert transport.statistics().open > 0
        await transport.aclose()


async def test_shielded_requests_are_answered_in_a_block_that_is_cancelled(open_peer, echo) -> None:
    """As those are by which servers are told that it is over."""
    answers = []
    async with open_peer(echo) as peer:
        with trio.CancelScope() as scope:
            async with open_socket_transport() as transport:
                await transport.send(peer.request())
                scope.cancel()
                with trio.CancelScope(shield=True):
                    for _ in range(3):
                        answers.append((await transport.send(peer.request())).status)
                        await trio.testing.wait_all_tasks_blocked()
    assert answers == [200] * 3


async def test_what_waits_in_flight_is_few_objects() -> None:
    """The collector looks at each of them, over and over: all requests pay for it when thousands are in flight."""
    many = 200

    async def start(nursery: trio.Nursery, function) -> int:
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(many):
            nursery.start_soon(function)
        await trio.testing.wait_all_tasks_blocked(0.1)
        gc.collect()
        return len(gc.get_objects()) - before

    with socket.create_server(("127.0.0.1", 0), backlog=4 * many) as listener:  # it never answers
        async with open_socket_transport() as transport, trio.open_nursery() as nursery:
            client = http.ServerClient({"peer": (transport, f"http://127.0.0.1:{listener.getsockname()[1]}")})

            async def ask() -> None:
                await client.post("peer", "/", json={"a": "b"})

            await start(nursery, trio.sleep_forever)
            task = await start(nursery, trio.sleep_forever)
            await start(nursery, ask)
            asking = await start(nursery, ask)
            nursery.cancel_scope.cancel()
    # Over a task that sleeps: two coroutines, the request, its exchange, the connection and its socket.
    assert asking / many <= task / many + 6.1


@pytest.mark.parametrize("how", ["close", "reset", "speak"])
async def test_a_dead_idle_connection_is_not_used(open_peer, settled, how: str) -> None:
    """Closed, reset, or spoken on while idle: the next request goes over another, and is sent once."""
    served = []

    async def handler(incoming) -> None:
        await incoming.request()
        served.append(incoming.number)
        await incoming.answer()
        if how == "reset":
            await incoming.reset()
        elif how == "speak":
            await incoming.stream.send_all(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
            await incoming.head()

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        for _ in range(3):
            await transport.send(peer.request())
            for connection in transport._pools[peer.origin].connections:  # none if the news came with the answer
                await trio.lowlevel.wait_readable(connection.fd)
        assert served == [1, 2, 3]


async def test_idle_connections_are_closed_in_time(open_peer, echo, settled) -> None:
    """Without a further request too, so that a server is not left with connections that nobody uses."""
    async with open_peer(echo) as peer:
        async with open_socket_transport(TransportSettings(keepalive_seconds=0.05)) as transport:
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(transport.send, peer.request())
            await settled(lambda: peer.open == 0)
            assert transport.statistics().open == 0
        async with open_socket_transport(TransportSettings(keepalive_seconds=0)) as transport:
            await transport.send(peer.request())
            assert transport.statistics().open == 0


async def test_a_new_connection_to_this_machine_costs_one_turn(open_peer, echo) -> None:
    """Nothing is waited for that is there already; but others have a turn between one connect and the next."""
    steps = 0

    class Count(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += task is me

    me, counts = trio.lowlevel.current_task(), []
    async with open_peer(echo) as peer, open_socket_transport() as transport:
        trio.lowlevel.add_instrument(count := Count())
        for _ in range(3):
            before = steps
            await transport.send(peer.request(body=b"x"))
            counts.append(steps - before)
        trio.lowlevel.remove_instrument(count)
    assert counts == [2, 1, 1]


async def test_connects_are_paced(open_peer, echo) -> None:
    """However many requests begin at once, only so many connections are being made."""
    most = 0

    class Watch(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            nonlocal most
            most = max(most, transport.statistics().connecting)

    async with (
        open_peer(echo) as peer,
        open_socket_transport(TransportSettings(max_concurrent_connects=7)) as transport,
    ):
        watch = Watch()
        trio.lowlevel.add_instrument(watch)
        async with trio.open_nursery() as nursery:
            for _ in range(300):
                nursery.start_soon(transport.send, peer.request(body=b"x"))
        trio.lowlevel.remove_instrument(watch)
    assert 1 <= most <= 7


async def test_a_limit_is_kept_and_its_waiters_are_served_in_order(open_peer) -> None:
    """With three connections, requests are answered in the order in which they came."""
    order, at_once, most = [], 0, 0

    async def handler(incoming) -> None:
        nonlocal at_once, most
        while True:
            head, body = await incoming.request()
            if not head:
                return
            at_once += 1
            most = max(most, at_once)
            order.append(int(body))
            await trio.lowlevel.checkpoint()
            at_once -= 1
            await incoming.answer()

    settings = TransportSettings(max_connections_per_origin=3)
    async with open_peer(handler) as peer, open_socket_transport(settings) as transport:
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(transport.send, peer.request(body=b"%d" % number))
                await trio.testing.wait_all_tasks_blocked()
        assert peer.connections <= 3
        assert most <= 3
        assert order == sorted(order)


@pytest.mark.parametrize("cut", range(0, 61, 3))
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_peer_that_goes_at_any_byte_is_a_drop(open_peer, how: str, cut: int) -> None:
    """The request may have been acted on, so it is reported and not sent again."""
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n" + b"x" * 22
    served = 0

    async def handler(incoming) -> None:
        nonlocal served
        await incoming.request()
        served += 1
        await incoming.stream.send_all(answer[:cut])
        if how == "reset":
            await incoming.reset()

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        if cut < len(answer):
            with pytest.raises(PeerDropped) as caught:
                await transport.send(peer.request(body=b"x"))
            assert caught.value.delivery is Delivery.POSSIBLY_DELIVERED
            assert str(peer.origin) in str(caught.value)
            assert transport.statistics().open == 0
        else:
            assert (await transport.send(peer.request(body=b"x"))).body == b"x" * 22
        assert served == 1


async def test_bytes_that_come_one_by_one_make_a_response(open_peer) -> None:
    """However slowly the server speaks, interim responses included."""

    async def handler(incoming) -> None:
        await incoming.request()
        head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: Y\r\ntransfer-encoding: chunked\r\n\r\n"
        for byte in head + b"1\r\nx\r\n0\r\n\r\n":
            await incoming.stream.send_all(bytes([byte]))

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        response = await transport.send(peer.request())
        assert (response.status, response.body, response.headers["x"]) == (200, b"x", "Y")
        assert response.raw_headers == ((b"x", b"Y"), (b"transfer-encoding", b"chunked"))


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_is_not_http_is_a_protocol_error(open_peer, streamed: bool) -> None:
    """And its connection is closed."""

    async def handler(incoming) -> None:
        await incoming.request()
        await incoming.stream.send_all(b"220 mail.example ESMTP\r\n")
        await incoming.head()

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        with pytest.raises(ProtocolError) as caught:
            await (read(transport, peer.request()) if streamed else transport.send(peer.request()))
        assert caught.value.delivery is Delivery.POSSIBLY_DELIVERED
        assert transport.statistics().open == 0


async def test_a_response_that_is_too_large_is_refused_unless_streamed(open_peer) -> None:
    """The limit bounds what is held in memory, which a stream does not do."""

    async def handler(incoming) -> None:
        while (await incoming.request())[0]:
            await incoming.answer(b"x" * 3000)

    async with open_peer(handler) as peer, open_socket_transport(TransportSettings(max_body_bytes=2999)) as transport:
        with pytest.raises(ProtocolError, match="2999"):
            await transport.send(peer.request())
        async with transport.stream(peer.request()) as response:
            assert sum([len(chunk) async for chunk in response]) == 3000


@pytest.mark.parametrize("size", [0, 1, 65_000, 65_536, 70_000, 3_000_000])
@pytest.mark.parametrize("shape", ["bytes", "chunked bytes", "parts", "parts with a length"])
async def test_bodies_of_any_size_and_shape_arrive(open_peer, echo, size: int, shape: str) -> None:
    """Whole or in parts, with a length or in chunks, smaller and larger than what the kernel takes at once."""
    body = os.urandom(size)
    closed = []

    async def parts() -> AsyncIterator[bytes]:
        try:
            for start in range(0, size, 50_001):
                yield b""
                yield body[start : start + 50_001]
        finally:
            closed.append(True)

    async with open_peer(echo) as peer, open_socket_transport() as transport:
        headers = {
            "bytes": (),
            "chunked bytes": ((b"transfer-encoding", b"chunked"),),
            "parts": (),
            "parts with a length": ((b"content-length", b"%d" % size),),
        }[shape]
        sent = body if "bytes" in shape else parts()
        response = await transport.send(peer.request(headers=headers, body=sent))
        assert unchunked(response.body) == body if shape in ("chunked bytes", "parts") else response.body == body
        assert await transport.send(peer.request()) is not None
        assert peer.connections == 1
        assert closed == [] if "bytes" in shape else [True]


def unchunked(data: bytes) -> bytes:
    out = b""
    while True:
        length, _, data = data.partition(b"\r\n")
        if not int(length, 16):
            assert data == b"\r\n"
            return out
        out, data = out + data[: int(length, 16)], data[int(length, 16) + 2 :]


@pytest.mark.parametrize("length", [3, 5])
async def test_parts_that_break_their_length_end_the_request(open_peer, echo, settled, length: int) -> None:
    """Neither a short nor a long body is passed off as what was announced."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"12"
        yield b"34"

    async with open_peer(echo) as peer, open_socket_transport() as transport:
        with pytest.raises(UsageError):
            await transport.send(peer.request(headers=((b"content-length", b"%d" % length),), body=parts()))
        assert transport.statistics().open == 0
        await settled(lambda: peer.open == 0)


async def test_an_error_of_the_bodys_source_reaches_the_sender_as_it_is(open_peer, echo, settled) -> None:
    """Unwrapped, with the connection closed."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"12"
        raise KeyError("mine")

    async with open_peer(echo) as peer, open_socket_transport() as transport:
        with pytest.raises(KeyError, match="mine"):
            await transport.send(peer.request(body=parts()))
        assert transport.statistics().open == 0
        await settled(lambda: peer.open == 0)


@pytest.mark.parametrize("then", ["close", "reset", "wait"])
@pytest.mark.parametrize("shape", ["bytes", "parts"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_before_the_request_is_written_is_delivered(
    open_peer, then: str, shape: str, streamed: bool
) -> None:
    """A server that refuses a body without reading it is heard, whatever it does to the connection afterwards."""
    done = trio.Event()

    async def handler(incoming) -> None:
        await incoming.head()
        await incoming.answer(b"too large", b"HTTP/1.1 413 Content Too Large")
        if then == "reset":
            await incoming.reset()
        elif then == "wait":
            await done.wait()

    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        request = peer.request(body=b"x" * 30_000_000 if shape == "bytes" else parts())
        if streamed:
            async with transport.stream(request) as response:
                assert response.status == 413
                assert b"".join([chunk async for chunk in response]) == b"too large"
        else:
            answer = await transport.send(request)
            assert (answer.status, answer.body) == (413, b"too large")
        assert transport.statistics().open == 0
        done.set()


async def test_a_request_and_its_response_can_flow_at_the_same_time(open_peer) -> None:
    """A server that answers while it reads does not block the sender, however large both are."""

    async def handler(incoming) -> None:
        await incoming.head()
        await incoming.stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 20000000\r\n\r\n")
        for _ in range(200):
            await incoming.stream.send_all(await incoming.exactly(100_000))

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        response = await transport.send(peer.request(body=b"x" * 20_000_000))
        assert response.body == b"x" * 20_000_000
        assert transport.statistics().idle == 1


async def test_a_peer_that_goes_while_the_request_is_written_is_a_drop(open_peer) -> None:
    """Part of the request was taken, so it may have been delivered."""

    async def handler(incoming) -> None:
        await incoming.exactly(100_000)

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        with pytest.raises(PeerDropped) as caught:
            await transport.send(peer.request(body=b"x" * 30_000_000))
        assert caught.value.delivery is Delivery.POSSIBLY_DELIVERED
        assert transport.statistics().open == 0


async def test_a_write_that_makes_no_progress_is_bounded(open_peer) -> None:
    """A server that stops reading ends the request after the bound; a slow source of the body does not."""
    stop = trio.Event()

    async def handler(incoming) -> None:
        if incoming.number == 1:
            await stop.wait()
        await incoming.request()
        await incoming.answer(b"read")

    async def slow_parts() -> AsyncIterator[bytes]:
        for _ in range(4):
            await trio.sleep(0.05)
            yield b"x"

    settings = TransportSettings(write_seconds=0.1)
    async with open_peer(handler) as peer, open_socket_transport(settings) as transport:
        with pytest.raises(TransportTimeout) as caught:
            await transport.send(peer.request(body=b"x" * 30_000_000))
        assert caught.value.delivery is Delivery.POSSIBLY_DELIVERED
        assert transport.statistics().open == 0
        stop.set()
        assert (await transport.send(peer.request(body=slow_parts()))).body == b"read"


async def test_a_refused_connection_is_tried_a_few_times_and_logged_once(refusing: Origin, caplog) -> None:
    """All requests of an origin together log its first failure; each ends as `ConnectFailed`, not sent."""
    told = []
    policy = RetryPolicy(attempts=3, first_wait_seconds=0.01)
    failures = []

    async def ask() -> None:
        with pytest.raises(ConnectFailed, match=str(refusing.port)) as caught:
            await transport.send(http.Request("GET", refusing, b"/", on_sent=lambda: told.append(1)))
        failures.append(caught.value.delivery)

    async with open_socket_transport(TransportSettings(connect_retry=policy)) as transport:
        with caplog.at_level(logging.WARNING, "gym_trio"):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(ask)
        assert transport.statistics().connecting == 0
    assert failures == [Delivery.NOT_SENT] * 20
    assert told == []
    assert len(caplog.records) == 1


async def test_a_server_that_comes_up_meanwhile_is_reached(open_peer, echo) -> None:
    """The wait between attempts grows, and the request is sent once."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        origin = Origin("http", "127.0.0.1", held.getsockname()[1])
        told = []
        settings = TransportSettings(connect_retry=RetryPolicy(attempts=12, first_wait_seconds=0.01))
        async with open_socket_transport(settings) as transport, trio.open_nursery() as nursery:

            async def ask() -> None:
                response = await transport.send(http.Request("GET", origin, b"/", on_sent=lambda: told.append(1)))
                assert response.status == 200
                nursery.cancel_scope.cancel()

            nursery.start_soon(ask)
            while not transport._pools or not transport._pools[origin].failure_logged:
                await trio.lowlevel.checkpoint()
            assert told == []
            held.listen()
            held.setblocking(False)
            connection, _ = await trio.socket.from_stdlib_socket(held).accept()
            async with trio.SocketStream(connection) as stream:
                await stream.receive_some()
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                await trio.sleep_forever()
    assert told == [1]


async def test_a_connect_that_hangs_is_bounded_and_is_the_last_attempt(deaf: Origin) -> None:
    """The bound ends it, as a timeout with nothing sent."""
    async with open_socket_transport(TransportSettings(connect_seconds=0.1)) as transport:
        with pytest.raises(TransportTimeout) as caught:
            await transport.send(http.Request("GET", deaf, b"/"))
        assert caught.value.delivery is Delivery.NOT_SENT
        assert transport.statistics().connecting == 0


async def test_a_full_backlog_on_this_machine_is_asked_again_at_once() -> None:
    """Not when the kernel would ask, a second later: there is room as soon as the server has accepted a few."""
    accepted: list[socket.socket] = []

    class Watched(Connector):
        found_full = asked_again = 0

        def _begin(self, sock: socket.socket) -> bool:
            if self.found_full:
                self.asked_again += 1
                with contextlib.suppress(BlockingIOError):
                    while True:
                        accepted.append(listener.accept()[0])
            connected = super()._begin(sock)
            self.found_full += not connected
            return connected

    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as closing:
        listener.setblocking(False)
        connector = Watched(Origin("http", *listener.getsockname()), TransportSettings())
        while not connector.found_full:
            with trio.fail_after(20):
                made = await connector.connect(None, trio.CancelScope(), 20)
            closing.callback(made.close)
            assert not made.is_far
        assert (connector.found_full, connector.asked_again) == (1, 1)
        for sock in accepted:
            sock.close()


@pytest.mark.parametrize("how", ["cancelled", "bounded"])
async def test_asking_a_full_backlog_again_ends_with_its_scope(how: str) -> None:
    """However often it has been asked. What was being made is closed, or the collector would tell."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as closing:
        connector = Connector(Origin("http", *listener.getsockname()), TransportSettings())
        with trio.move_on_after(0.3 if how == "cancelled" else math.inf) as outside:
            with contextlib.suppress(TransportTimeout):
                while True:
                    made = await connector.connect(None, trio.CancelScope(), 0.3 if how == "bounded" else 60)
                    closing.callback(made.close)
        assert outside.cancelled_caught is (how == "cancelled")
    gc.collect()


async def test_no_time_to_connect_is_none_for_a_server_on_this_machine_either(open_peer, echo, settled) -> None:
    """Although the kernel needs none: what the bound means does not depend on where the server is."""
    settings = TransportSettings(connect_seconds=0, connect_retry=ONCE)
    async with open_peer(echo) as peer, open_socket_transport(settings) as transport:
        with pytest.raises(TransportTimeout, match="no connection within 0 s"):
            await transport.send(peer.request())
        assert transport.statistics() == type(transport.statistics())(0, 0, 0, 0)
        await settled(lambda: peer.open == 0)


async def test_a_connect_that_is_refused_at_once_is_a_checkpoint(refusing: Origin) -> None:
    """Whoever asks again and again for a server that is not up yet can be cancelled, and leaves turns to others."""
    async with open_socket_transport(TransportSettings(connect_retry=ONCE)) as transport:
        with trio.testing.assert_checkpoints(), pytest.raises(ConnectFailed):
            await transport.send(http.Request("GET", refusing, b"/"))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".invalid", "::2%nowhere"])
async def test_a_name_that_leads_nowhere_is_a_failed_connect(host: str) -> None:
    """The error has the origin in it."""
    async with open_socket_transport(TransportSettings(connect_retry=ONCE)) as transport:
        with pytest.raises(ConnectFailed, match=r"invalid|nowhere"):
            await transport.send(http.Request("GET", Origin("http", host, 1), b"/"))


class TwoAddresses(trio.abc.HostnameResolver):
    """Knows every name, with an address of either family."""

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("::1", int(port), 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", int(port))),
        ]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError


@pytest.mark.parametrize(("host", "name"), [("127.0.0.1", "both.test"), ("::1", "both.test"), ("::1", None)])
async def test_names_and_both_families_of_addresses_are_reached(open_peer, echo, host: str, name: str | None) -> None:
    """A name with several addresses reaches the one that listens."""
    trio.socket.set_custom_hostname_resolver(TwoAddresses())
    try:
        async with open_peer(echo, host=host, name=name) as peer, open_socket_transport() as transport:
            assert (await transport.send(peer.request(body=b"x"))).body == b"x"
            (connection,) = transport._pools[peer.origin].connections
            assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
    except OSError as exc:
        if host == "::1":
            pytest.skip(f"no IPv6 here: {exc}")
        raise


async def test_a_machine_without_file_descriptors_says_so(open_peer, echo) -> None:
    """Running out of them is this machine's failure, not the server's."""
    async with open_peer(echo) as peer:
        settings = TransportSettings(connect_retry=ONCE)
        async with open_socket_transport(settings) as transport:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                with pytest.raises(LocalResourceError) as caught:
                    await transport.send(peer.request())
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert caught.value.delivery is Delivery.NOT_SENT
            assert (await transport.send(peer.request())).status == 200


async def test_on_sent_is_called_once_and_before_the_server_can_know(open_peer) -> None:
    """Not while a connection is made; and an error in it ends the request with nothing sent."""
    seen, told = [], []

    async def handler(incoming) -> None:
        while True:
            head, _ = await incoming.request()
            if not head:
                return
            seen.append(len(told))
            await incoming.answer()

    def refuse() -> None:
        raise KeyError("mine")

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        await transport.send(peer.request(on_sent=lambda: told.append(transport.statistics().open)))
        await transport.send(peer.request(on_sent=lambda: told.append(1)))
        with pytest.raises(KeyError, match="mine"):
            await transport.send(peer.request(on_sent=refuse))
        assert (seen, told) == ([1, 2], [1, 1])
        assert transport.statistics().open == 0


async def test_a_stream_is_read_at_the_readers_pace(open_peer) -> None:
    """The server is held back while nobody reads, and events are given as they come."""
    written = 0
    more = trio.Event()

    async def handler(incoming) -> None:
        nonlocal written
        await incoming.request()
        await incoming.stream.send_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nevent1\r\n")
        await more.wait()
        for _ in range(400):
            await incoming.stream.send_all(b"186A0\r\n" + b"x" * 100_000 + b"\r\n")
            written += 100_000
        await incoming.stream.send_all(b"0\r\n\r\n")

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        async with transport.stream(peer.request()) as response:
            assert (response.status, response.headers["transfer-encoding"]) == (200, "chunked")
            assert await anext(response) == b"event1"
            more.set()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert written < 30_000_000
            assert sum([len(chunk) async for chunk in response]) == 40_000_000
            with pytest.raises(StopAsyncIteration):
                await anext(response)
        assert transport.statistics().idle == 1


async def test_leaving_a_stream_early_closes_its_connection(open_peer, settled) -> None:
    """The server sees the end; an iterator kept beyond its block raises."""
    gone = trio.Event()

    async def handler(incoming) -> None:
        await incoming.request()
        await incoming.stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx")
        await incoming.head()
        gone.set()

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        async with transport.stream(peer.request()) as response:
            assert await anext(response) == b"x"
        with trio.fail_after(5):
            await gone.wait()
        assert transport.statistics().open == 0
        with pytest.raises(TransportError):
            await anext(response)


async def test_leaving_a_stream_whose_end_has_come_keeps_the_connection(open_peer, echo) -> None:
    """Nothing is left to be read, so nothing has to be closed."""
    async with open_peer(echo) as peer, open_socket_transport() as transport:
        for _ in range(3):
            async with transport.stream(peer.request(body=b"x")) as response:
                assert response.status == 200
        assert peer.connections == 1


async def test_a_stream_that_breaks_raises_while_it_is_read(open_peer) -> None:
    """What came before is given; then the drop."""

    async def handler(incoming) -> None:
        await incoming.request()
        await incoming.stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        got = []
        with pytest.raises(PeerDropped):
            await read(transport, peer.request(), got)
        assert b"".join(got) == b"abc"


async def test_closing_a_transport_ends_what_runs_and_what_comes(open_peer) -> None:
    """Requests in flight, requests that wait and later requests get a `TransportError`; every socket is closed."""
    failures = []

    async def handler(incoming) -> None:
        await incoming.request()
        await incoming.head()

    async def ask() -> None:
        with pytest.raises(TransportError) as caught:
            await transport.send(peer.request(body=b"x" * 10))
        failures.append(caught.value.delivery)

    settings = TransportSettings(max_connections_per_origin=5)
    async with open_peer(handler) as peer, open_socket_transport(settings) as transport:
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert transport.statistics().waiting == 3
            await transport.aclose()
            await transport.aclose()
        assert sorted(failures) == [Delivery.NOT_SENT] * 3 + [Delivery.POSSIBLY_DELIVERED] * 5
        assert transport.statistics() == type(transport.statistics())(0, 0, 0, 0)
        for origin in (peer.origin, Origin("http", "other", 1)):
            with pytest.raises(TransportError, match="closed") as caught:
                await transport.send(http.Request("GET", origin, b"/"))
            assert caught.value.delivery is Delivery.NOT_SENT


async def test_closing_a_transport_ends_what_connects(deaf: Origin) -> None:
    """Also an attempt that would have gone on, or that waits to be made again."""
    async with open_socket_transport() as transport, trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(TransportError, match="closed") as caught:
                await transport.send(http.Request("GET", deaf, b"/"))
            assert caught.value.delivery is Delivery.NOT_SENT

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            await transport.aclose()


def break_newest(transport: http.SocketTransport, origin: Origin) -> None:
    """Make the one connection of the pool refuse to send, which nothing but sending reveals."""
    (connection,) = transport._pools[origin].connections
    connection.sock.shutdown(socket.SHUT_WR)


async def test_a_kept_connection_that_takes_nothing_is_replaced(open_peer, echo) -> None:
    """Nothing was sent over it, so the request goes over another; it is told as sent once."""
    told = []
    async with open_peer(echo) as peer, open_socket_transport() as transport:
        await transport.send(peer.request())
        break_newest(transport, peer.origin)
        assert (await transport.send(peer.request(body=b"x", on_sent=lambda: told.append(1)))).body == b"x"
        assert told == [1]
        assert (peer.connections, transport.statistics().open) == (2, 1)


async def test_a_request_whose_connection_is_full_waits(open_peer) -> None:
    """Nothing of it is lost when the kernel takes none of it at first."""
    head = b""

    async def handler(incoming) -> None:
        nonlocal head
        while not head.strip():
            head = await incoming.head()
        await incoming.answer(b"heard")

    def fill() -> None:
        (connection,) = transport._pools[peer.origin].connections
        with contextlib.suppress(BlockingIOError):
            while True:
                connection.sock.send(b"\r\n" * 5000)

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        assert (await transport.send(peer.request("GET", b"/late", on_sent=fill))).body == b"heard"
        assert b"GET /late HTTP/1.1" in head


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_new_connection_that_takes_nothing_counts_as_a_failed_connect(open_peer, echo, attempts: int) -> None:
    """Tried again within the policy, and then an error that says that nothing was sent."""
    policy = RetryPolicy(attempts=attempts, first_wait_seconds=0.01)
    async with open_peer(echo) as peer, open_socket_transport(TransportSettings(connect_retry=policy)) as transport:
        request = peer.request(body=b"x", on_sent=lambda: break_newest(transport, peer.origin))
        if attempts > 1:
            assert (await transport.send(request)).body == b"x"
        else:
            with pytest.raises(ConnectFailed) as caught:
                await transport.send(request)
            assert caught.value.delivery is Delivery.NOT_SENT
        assert transport.statistics().open == transport.statistics().idle


async def test_other_schemes_are_refused() -> None:
    """Before anything is looked up."""
    async with open_socket_transport() as transport:
        with pytest.raises(UsageError, match="ftp"):
            await transport.send(http.Request("GET", Origin("ftp", "a", 1), b"/"))


async def test_an_exception_in_the_block_comes_out_as_it_is() -> None:
    """Not wrapped in a group by the task that closes idle connections."""
    with pytest.raises(KeyError, match="mine"):
        async with open_socket_transport():
            raise KeyError("mine")


@pytest.mark.parametrize(
    "wrong",
    [
        {"connect_seconds": -1},
        {"write_seconds": math.nan},
        {"keepalive_seconds": -0.1},
        {"max_connections_per_origin": 0},
        {"max_concurrent_connects": 0},
        {"max_body_bytes": 0},
        {"tcp_keepalive_idle_seconds": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    """With the setting's name."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        TransportSettings(**wrong)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_wait_seconds": -1}, {"total_seconds": math.nan}])
def test_a_retry_policy_that_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    """With the field's name."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        RetryPolicy(**wrong)


def test_the_clients_keepalive_is_shorter_than_servers_usually_have() -> None:
    """Otherwise a request meets a server that is just closing its idle connection."""
    assert TransportSettings().keepalive_seconds < 5
