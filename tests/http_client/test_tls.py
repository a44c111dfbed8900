"""HTTPS against Python's own TLS, with certificates of a throw-away authority."""

from __future__ import annotations

import os
import socket
import ssl

import pytest
import trio
import trustme

from gym_trio import http
from gym_trio.errors import ConnectFailed, Delivery, PeerDropped, TransportTimeout
from gym_trio.http import TransportSettings, open_socket_transport


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def settings(authority: trustme.CA) -> TransportSettings:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return TransportSettings(ssl_context=context)


@pytest.mark.parametrize("name", [None, "localhost"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_https_carries_requests_of_any_size_over_one_connection(
    open_peer, echo, server_context, settings, name: str | None, version: ssl.TLSVersion
) -> None:
    """By address and by name, in both versions of TLS; session tickets do not make a connection look dead."""
    server_context.minimum_version = server_context.maximum_version = version
    async with (
        open_peer(echo, ssl_context=server_context, name=name) as peer,
        open_socket_transport(settings) as transport,
    ):
        for size in (0, 1, 16_384, 65_536, 70_000, 2_000_000, 5):
            body = os.urandom(size)
            assert (await transport.send(peer.request(body=body))).body == body
        async with transport.stream(peer.request(body=b"x" * 300_000)) as response:
            assert b"".join([chunk async for chunk in response]) == b"x" * 300_000
        assert peer.connections == 1


async def test_a_request_over_tls_takes_at_most_two_steps(open_peer, echo, server_context, settings) -> None:
    """As over plain TCP."""

    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += task is this

    this = trio.lowlevel.current_task()
    async with open_peer(echo, ssl_context=server_context) as peer, open_socket_transport(settings) as transport:
        await transport.send(peer.request())
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        for _ in range(50):
            await transport.send(peer.request(body=b"x"))
        trio.lowlevel.remove_instrument(steps)
    assert steps.count <= 100


@pytest.mark.parametrize("name", [None, "not-in-the-certificate.test"])
async def test_a_certificate_that_does_not_hold_is_refused_at_once(
    open_peer, echo, server_context, settings, name: str | None
) -> None:
    """An unknown authority or another name: nothing is sent, and trying again would not help."""

    class Here(trio.abc.HostnameResolver):
        async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):
            return [(trio.socket.AF_INET, trio.socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]

        async def getnameinfo(self, sockaddr, flags):
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Here())
    told = []
    chosen = settings if name else TransportSettings()
    async with (
        open_peer(echo, ssl_context=server_context, name=name) as peer,
        open_socket_transport(chosen) as transport,
    ):
        with pytest.raises(ConnectFailed, match="certificate") as caught:
            await transport.send(peer.request(on_sent=lambda: told.append(1)))
        assert caught.value.delivery is Delivery.NOT_SENT
        assert told == []
        assert peer.connections == 1
        assert transport.statistics().open == 0


async def test_a_server_that_does_not_speak_tls_is_a_failed_connect(open_peer, settings) -> None:
    """Nothing of the request has been sent."""

    async def plain(incoming) -> None:
        await incoming.exactly(1)
        await incoming.answer(b"", b"HTTP/1.1 400 Bad Request")

    async with open_peer(plain) as peer, open_socket_transport(settings) as transport:
        request = peer.request()
        request.origin = http.Origin("https", peer.origin.host, peer.origin.port)
        with pytest.raises(ConnectFailed):
            await transport.send(request)


async def test_a_handshake_that_hangs_is_bounded(open_peer, settings) -> None:
    """The connect bound covers it."""

    async def silent(incoming) -> None:
        await trio.sleep_forever()

    bounded = TransportSettings(ssl_context=settings.ssl_context, connect_seconds=0.1)
    async with open_peer(silent) as peer, open_socket_transport(bounded) as transport:
        request = peer.request()
        request.origin = http.Origin("https", peer.origin.host, peer.origin.port)
        with pytest.raises(TransportTimeout):
            await transport.send(request)


@pytest.mark.parametrize("graceful", [True, False])
async def test_a_truncated_body_is_not_taken_for_a_whole_one(
    open_peer, server_context, settings, graceful: bool
) -> None:
    """A body that ends with its connection is complete only when TLS says that the end was meant."""

    async def handler(incoming) -> None:
        await incoming.request()
        await incoming.stream.send_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
        if graceful:
            await incoming.stream.aclose()

    async with open_peer(handler, ssl_context=server_context) as peer, open_socket_transport(settings) as transport:
        if graceful:
            assert (await transport.send(peer.request())).body == b"until the end"
        else:
            with pytest.raises(PeerDropped):
                await transport.send(peer.request())


@pytest.mark.parametrize("graceful", [True, False])
async def test_a_dead_idle_tls_connection_is_not_used(
    open_peer, server_context, settings, settled, graceful: bool
) -> None:
    """Closed by TLS or by TCP alone: the next request goes over another, and is sent once."""

    async def handler(incoming) -> None:
        await incoming.request()
        await incoming.answer(b"%d" % incoming.number)
        if graceful:
            await incoming.stream.aclose()

    async with open_peer(handler, ssl_context=server_context) as peer, open_socket_transport(settings) as transport:
        for number in (1, 2, 3):
            assert (await transport.send(peer.request())).body == b"%d" % number
            await settled(lambda: peer.open == 0)


async def test_a_tls_connection_that_breaks_as_it_is_written_to_may_have_delivered(
    open_peer, echo, server_context, settings
) -> None:
    """TLS hands over records of its own size, so nobody can say that it handed over none."""

    def shut() -> None:
        (connection,) = transport._pools[peer.origin].connections
        with socket.socket(fileno=os.dup(connection.fd)) as beneath:
            beneath.shutdown(socket.SHUT_WR)

    async with open_peer(echo, ssl_context=server_context) as peer, open_socket_transport(settings) as transport:
        with pytest.raises(PeerDropped) as caught:
            await transport.send(peer.request(on_sent=shut))
        assert caught.value.delivery is Delivery.POSSIBLY_DELIVERED


async def test_an_early_answer_over_tls_is_delivered(open_peer, server_context, settings) -> None:
    """While the request is still being written."""

    async def handler(incoming) -> None:
        await incoming.head()
        await incoming.answer(b"too large", b"HTTP/1.1 413 Content Too Large")
        await incoming.exactly(10**9)

    async with open_peer(handler, ssl_context=server_context) as peer, open_socket_transport(settings) as transport:
        answer = await transport.send(peer.request(body=b"x" * 60_000_000))
        assert (answer.status, answer.body) == (413, b"too large")
