"""The client's end of a WebSocket, against a peer whose every frame a test decides."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing
import trustme
import wsproto
from wsproto import events

from gym_trio.errors import (
    ConnectFailed,
    PeerDropped,
    ProtocolError,
    ResponseError,
    TransportTimeout,
    UsageError,
)
from gym_trio.http import TransportSettings, WebSocket, connect_websocket


@attrs.define
class Side:
    """The server's side of one connection: what has come, and what to send."""

    stream: trio.abc.Stream
    protocol: wsproto.WSConnection = attrs.field(factory=lambda: wsproto.WSConnection(wsproto.ConnectionType.SERVER))
    seen: list[events.Event] = attrs.field(factory=list)

    async def next(self) -> events.Event | None:
        while not self.seen:
            data = await self.stream.receive_some()
            if not data:
                return None
            self.protocol.receive_data(data)
            self.seen.extend(self.protocol.events())
        return self.seen.pop(0)

    async def send(self, *sent: events.Event) -> None:
        await self.stream.send_all(b"".join(self.protocol.send(event) for event in sent))

    async def accept(self) -> events.Request:
        request = await self.next()
        if request is None:
            raise EOFError
        assert isinstance(request, events.Request)
        await self.send(events.AcceptConnection())
        return request


Talk = Callable[[Side], Awaitable[None]]


async def echo(side: Side) -> None:
    """Each text comes back; a goodbye is answered."""
    await side.accept()
    while (event := await side.next()) is not None:
        if isinstance(event, events.TextMessage):
            await side.send(events.TextMessage(data=event.data, message_finished=event.message_finished))
        elif isinstance(event, events.CloseConnection):
            await side.send(event.response())
            return


@pytest.fixture
def open_pair(open_peer):
    """``async with open_pair(talk) as websocket``: connected to a server that does what ``talk`` says."""

    @asynccontextmanager
    async def opened(talk: Talk, **options) -> AsyncIterator[WebSocket]:
        async def handler(incoming) -> None:
            await talk(Side(incoming.stream))

        async with open_peer(handler) as peer, trio.open_nursery() as nursery:
            websocket = await connect_websocket(f"{peer.url}/ws", nursery, **options)
            try:
                yield websocket
            finally:
                websocket.abort()

    return opened


@pytest.mark.parametrize("size", [0, 1, 125, 126, 70_000, 3_000_000])
async def test_messages_go_both_ways_whatever_their_size(open_pair, size: int) -> None:
    """What is echoed is what was sent, beyond ASCII too; goodbye is said and answered."""
    text = "ü" * size
    async with open_pair(echo) as websocket:
        with trio.fail_after(20):
            await websocket.send(text)
            assert await websocket.receive() == text
            await websocket.aclose()
        assert not websocket.is_open


async def test_the_request_names_path_and_headers(open_pair) -> None:
    """A query, a host and the caller's headers arrive."""
    found: list[events.Request] = []

    async def talk(side: Side) -> None:
        found.append(await side.accept())
        await side.next()

    async with open_pair(talk, headers=[(b"authorization", b"Bearer x")]) as websocket:
        assert websocket.is_open
    assert found[0].target == "/ws"
    assert found[0].host.startswith("127.0.0.1:")
    assert (b"authorization", b"Bearer x") in found[0].extra_headers


async def test_a_ping_is_answered_while_nobody_asks_for_messages(open_pair) -> None:
    """A server that checks on its clients does not lose one whose model is thinking."""
    ponged = trio.Event()

    async def talk(side: Side) -> None:
        await side.accept()
        await side.send(events.Ping(payload=b"there?"))
        event = await side.next()
        assert isinstance(event, events.Pong)
        assert event.payload == b"there?"
        ponged.set()

    async with open_pair(talk):
        with trio.fail_after(10):
            await ponged.wait()


async def test_a_message_in_parts_is_one(open_pair) -> None:
    """Also where a ping comes between its parts, and one right behind the handshake."""

    async def talk(side: Side) -> None:
        await side.next()
        await side.send(
            events.AcceptConnection(),
            events.TextMessage(data="on", message_finished=False),
            events.Ping(payload=b""),
            events.TextMessage(data="ce"),
        )
        await side.next()

    async with open_pair(talk) as websocket:
        with trio.fail_after(10):
            assert await websocket.receive() == "once"


async def test_what_was_said_before_a_goodbye_is_received_first(open_pair) -> None:
    """The last words are read, then the error has the peer's code and reason, each time again."""

    async def talk(side: Side) -> None:
        await side.accept()
        await side.send(events.TextMessage(data="no room"), events.CloseConnection(code=1013, reason="full"))
        await side.next()

    async with open_pair(talk) as websocket:
        with trio.fail_after(10):
            await websocket.wait_ended()
            assert await websocket.receive() == "no room"
            for ask in (websocket.receive, lambda: websocket.send("x")):
                with pytest.raises(PeerDropped, match="code 1013: full"):
                    await ask()
            await websocket.aclose()


@pytest.mark.parametrize("way", ["reset", "half a message", "end"])
async def test_a_lost_connection_is_an_error_of_whoever_waits(open_peer, way: str) -> None:
    """However it ends, the receiver learns it."""

    async def handler(incoming) -> None:
        side = Side(incoming.stream)
        await side.accept()
        if way == "half a message":
            await side.stream.send_all(b"\x81\x7e\x01\x00half")
        if way == "reset":
            await incoming.reset()

    async with open_peer(handler) as peer, trio.open_nursery() as nursery:
        websocket = await connect_websocket(peer.url, nursery)
        with trio.fail_after(10), pytest.raises(PeerDropped):
            await websocket.receive()


@pytest.mark.parametrize("parts", [1, 3])
async def test_a_message_above_the_limit_ends_the_connection(open_pair, parts: int) -> None:
    """In one frame or in many, read or left lying."""

    async def talk(side: Side) -> None:
        await side.accept()
        await side.next()
        for part in range(parts):
            await side.send(events.TextMessage(data="x" * 400, message_finished=part + 1 == parts))
        await side.next()

    async with open_pair(talk, max_message_bytes=399 if parts == 1 else 1000) as websocket:
        await websocket.send("go")
        with trio.fail_after(10), pytest.raises(ProtocolError, match="more than"):
            await websocket.receive()


@pytest.mark.parametrize("frame", [b"\x82\x01x", b"\xff\xff\xff\xff\xff", b"\x81\x02\xc3\x28"])
async def test_what_is_no_text_message_ends_the_connection(open_pair, frame: bytes) -> None:
    """Binary, nonsense, broken UTF-8."""

    async def talk(side: Side) -> None:
        await side.accept()
        await side.next()
        await side.stream.send_all(frame)
        await side.next()

    async with open_pair(talk) as websocket:
        await websocket.send("go")
        with trio.fail_after(10), pytest.raises(ProtocolError):
            await websocket.receive()


REFUSED = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 7\r\n\r\nprivate"


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (REFUSED, ResponseError, "403"),
        (REFUSED[:-3], ResponseError, "403"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ResponseError, "200"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", ProtocolError, "HTTP"),
        (b"", PeerDropped, "lost"),
    ],
)
async def test_an_upgrade_that_is_not_granted(open_peer, settled, answer: bytes, error: type, told: str) -> None:
    """A refusal has its status and body; what is no answer is a transport error. The socket is closed either way."""

    async def handler(incoming) -> None:
        await incoming.head()
        await incoming.stream.send_all(answer)
        await incoming.stream.send_eof()
        await incoming.head()

    async with open_peer(handler) as peer, trio.open_nursery() as nursery:
        with trio.fail_after(10), pytest.raises(error, match=told) as raised:
            await connect_websocket(peer.url, nursery)
        await settled(lambda: peer.open == 0)
    if answer is REFUSED:
        assert (raised.value.status, raised.value.body) == (403, "private")


async def test_nobody_there_and_nobody_that_answers(open_peer, refusing) -> None:
    """Both are told by their own error, the second within the bound."""
    settings = TransportSettings(connect_seconds=0.2)

    async def handler(incoming) -> None:
        await incoming.exactly(10**6)

    async with open_peer(handler) as peer, trio.open_nursery() as nursery:
        with pytest.raises(ConnectFailed):
            await connect_websocket(str(refusing), nursery)
        with trio.fail_after(10), pytest.raises(TransportTimeout, match="not answered within"):
            await connect_websocket(peer.url, nursery, settings=settings)
        with pytest.raises(UsageError):
            await connect_websocket("gopher://x", nursery)


async def test_a_peer_that_takes_nothing_is_given_up(open_pair) -> None:
    """Sending has a bound without progress, and the connection is over then."""
    never = trio.Event()

    async def talk(side: Side) -> None:
        await side.accept()
        await never.wait()

    async with open_pair(talk, settings=TransportSettings(write_seconds=0.2)) as websocket:
        with trio.fail_after(30), pytest.raises(TransportTimeout, match="taken"):
            await websocket.send("x" * 30_000_000)
        assert not websocket.is_open


async def test_a_goodbye_that_is_not_answered_is_bounded_by_the_caller(open_pair, autojump_clock) -> None:
    """The socket is closed all the same."""
    never = trio.Event()

    async def talk(side: Side) -> None:
        await side.accept()
        await never.wait()

    async with open_pair(talk) as websocket:
        with trio.move_on_after(5) as scope:
            await websocket.aclose()
        assert scope.cancelled_caught
        assert not websocket.is_open


async def test_a_receiver_may_be_cancelled_and_ask_again(open_pair) -> None:
    """Nothing is lost by it."""
    go = trio.Event()

    async def talk(side: Side) -> None:
        await side.accept()
        await go.wait()
        await side.send(events.TextMessage(data="late"))
        await side.next()

    async with open_pair(talk) as websocket:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(websocket.receive)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        go.set()
        with trio.fail_after(10):
            assert await websocket.receive() == "late"


@pytest.mark.parametrize("parked", [True, False])
async def test_cancellation_at_every_step_closes_the_connection(
    open_peer, settled, cancel_at_step, parked: bool
) -> None:
    """Connecting, sending, receiving, saying goodbye: wherever it is cut, the server sees the end; no task stays."""

    async def handler(incoming) -> None:
        await echo(Side(incoming.stream))

    async def use(url: str, nursery: trio.Nursery) -> None:
        websocket = await connect_websocket(url, nursery)
        try:
            await websocket.send("x")
            assert await websocket.receive() == "x"
            await websocket.aclose()
        finally:
            websocket.abort()

    step = 1
    async with open_peer(handler) as peer:
        while True:
            async with trio.open_nursery() as nursery:
                with cancel_at_step(step, parked=parked) as cancelling:
                    await use(peer.url, nursery)
                with trio.fail_after(10):
                    await settled(lambda: not nursery.child_tasks and peer.open == 0)
            if not cancelling.scope.cancelled_caught:
                break
            step += 1
    assert step > 6


async def test_over_tls(open_peer) -> None:
    """Large messages both ways, with a certificate that is checked."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def handler(incoming) -> None:
        await echo(Side(incoming.stream))

    async with open_peer(handler, ssl_context=context) as peer, trio.open_nursery() as nursery:
        websocket = await connect_websocket(peer.url, nursery, settings=TransportSettings(ssl_context=trusting))
        with trio.fail_after(20):
            await websocket.send("x" * 500_000)
            assert await websocket.receive() == "x" * 500_000
            await websocket.aclose()
        with pytest.raises(ConnectFailed):
            await connect_websocket(peer.url, nursery)
