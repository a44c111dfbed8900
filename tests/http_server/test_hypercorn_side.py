"""What is not plain HTTP/1.1 on a `serve` of ours: TLS, HTTP/2 and WebSockets, carried out by hypercorn's own class."""

from __future__ import annotations

import socket
import ssl
import struct
from functools import partial

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
import trio
import trustme
import wsproto
from hypercorn.config import Config
from wsproto.events import AcceptConnection, CloseConnection, TextMessage
from wsproto.events import Request as WebSocketRequest

from gym_trio.http import CancelOnDisconnect, ServeLimits, open_server, serve
from gym_trio.http._accept import Admission
from gym_trio.http._hypercorn import HypercornSide
from gym_trio.http._service import Service

START = {"type": "http.response.start", "status": 200, "headers": []}


def config(**settings) -> Config:
    made = Config()
    made.errorlog = None
    for name, value in settings.items():
        setattr(made, name, value)
    return made


class Echo:
    """Answers with the HTTP version and the body; echoes WebSocket messages."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return
        self.seen.append((scope["type"], scope["http_version"]))
        if scope["type"] == "websocket":
            await self.websocket(receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        await send(START)
        if scope["path"] == "/flood":
            await send({"type": "http.response.body", "body": b"x" * 20_000_000})
        await send({"type": "http.response.body", "body": b"%s %s" % (scope["http_version"].encode(), body)})

    async def websocket(self, receive, send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"].upper()})


@pytest.fixture
def certificates(tmp_path):
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(tmp_path / "key")
    server.cert_chain_pems[0].write_to_path(tmp_path / "chain")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return config(bind="127.0.0.1:0", certfile=str(tmp_path / "chain"), keyfile=str(tmp_path / "key")), context


async def speak_h2(stream, connection, *, send_request: bool = True) -> bytes:
    """The body of the response on stream 1."""
    if send_request:
        headers = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "t")]
        connection.send_headers(1, headers, end_stream=True)
    body = b""
    while True:
        await stream.send_all(connection.data_to_send())
        data = await stream.receive_some()
        assert data
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                body += event.data
            elif isinstance(event, h2.events.StreamEnded):
                return body


async def test_http2_with_prior_knowledge(connect) -> None:
    """A client that begins with HTTP/2's preface is served HTTP/2, also when the preface comes in two parts."""
    app = Echo()
    async with open_server(app) as server:
        for cut in (3, 16, 24):
            async with connect(server.url) as client:
                connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
                connection.initiate_connection()
                data = connection.data_to_send()
                await client.send(data[:cut])
                await trio.testing.wait_all_tasks_blocked(0.01)
                await client.send(data[cut:])
                assert await speak_h2(client.stream, connection) == b"2 "
    assert app.seen == [("http", "2")] * 3


async def test_upgrade_to_h2c_behind_a_request(connect) -> None:
    """A connection that has served HTTP/1.1 can go on as HTTP/2."""
    app = Echo()
    async with open_server(app) as server, connect(server.url) as client:
        assert (await client.get()).body == b"1.1 "
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        settings = connection.initiate_upgrade_connection().decode()
        await client.send(
            b"GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: " + settings.encode() + b"\r\n\r\n"
        )
        head = await client._until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        for event in connection.receive_data(client.buffer) if client.buffer else ():
            assert not isinstance(event, h2.events.StreamEnded)
        assert await speak_h2(client.stream, connection, send_request=False) == b"2 "
    assert [version for _, version in app.seen] == ["1.1", "2"]


async def test_a_websocket(connect) -> None:
    """A WebSocket upgrade is carried out, with the bytes that had been read."""
    app = Echo()
    async with open_server(app) as server, connect(server.url) as client:
        websocket = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        await client.send(websocket.send(WebSocketRequest(host="t", target="/")))
        texts = []
        while not texts:
            websocket.receive_data(await client.stream.receive_some())
            for event in websocket.events():
                if isinstance(event, AcceptConnection):
                    await client.send(websocket.send(TextMessage("hello")))
                elif isinstance(event, TextMessage):
                    texts.append(event.data)
        assert texts == ["HELLO"]
        await client.send(websocket.send(CloseConnection(code=1000)))
        await client.rest()
    assert app.seen == [("websocket", "1.1")]


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_tls(certificates, protocol) -> None:
    """HTTPS is served, as HTTP/1.1 and as HTTP/2; a client that speaks plain HTTP to it only loses its connection."""
    settings, context = certificates
    context.set_alpn_protocols([protocol])
    app, stop = Echo(), trio.Event()
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(partial(serve, app, settings, shutdown_trigger=stop.wait))
        assert url.startswith("https://127.0.0.1:")
        port = int(url.rpartition(":")[2])
        async with await trio.open_tcp_stream("127.0.0.1", port) as plain:
            await plain.send_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
            while await plain.receive_some():
                pass
        stream = trio.SSLStream(
            await trio.open_tcp_stream("127.0.0.1", port), context, server_hostname="127.0.0.1", https_compatible=True
        )
        async with stream:
            if protocol == "h2":
                connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
                connection.initiate_connection()
                assert await speak_h2(stream, connection) == b"2 "
            else:
                await stream.send_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
                data = b""
                while b"1.1 " not in data[10:]:
                    data += await stream.receive_some()
                assert data.startswith(b"HTTP/1.1 200")
        stop.set()


async def test_without_epoll(connect) -> None:
    """Where the system cannot tell a departure apart, hypercorn's class serves plain HTTP/1.1 too."""
    app = Echo()
    service = Service(app, config(), ServeLimits(), None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with trio.open_nursery() as nursery:
            admission = Admission(service, HypercornSide(service), nursery, None)
            async with connect(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                admission.admit(accepted, secure=False)
                assert (await client.get()).body == b"1.1 "
            nursery.cancel_scope.cancel()


async def test_a_tls_client_that_never_reads(certificates, until) -> None:
    """hypercorn shields its writes; the grace cuts them all the same."""
    settings, context = certificates
    settings.graceful_timeout = 0.2
    app, stop = Echo(), trio.Event()
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(partial(serve, app, settings, shutdown_trigger=stop.wait))
        transport = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
        stream = trio.SSLStream(transport, context, server_hostname="127.0.0.1", https_compatible=True)
        await stream.send_all(b"GET /flood HTTP/1.1\r\nHost: t\r\n\r\n")
        await until(lambda: app.seen)
        with trio.fail_after(10):
            stop.set()
            await until(lambda: not nursery.child_tasks)
        transport.socket.close()


class Waiting:
    """Answers at once at /early, floods at /flood, and else waits: for its client to leave, or to be told to answer."""

    def __init__(self) -> None:
        self.inside = 0
        self.go = trio.Event()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return
        self.inside += 1
        try:
            if scope["type"] == "websocket":
                await receive()
                await self.go.wait()
                await send({"type": "websocket.accept"})
                while (await receive())["type"] != "websocket.disconnect":
                    pass
                return
            if scope["path"] == "/wait":
                await self.go.wait()
            await send(START)
            if scope["path"] == "/flood":
                await send({"type": "http.response.body", "body": b"x" * 20_000_000, "more_body": True})
            await send({"type": "http.response.body", "body": b"done"})
        finally:
            self.inside -= 1


def h2_client(*paths: str):
    """A connection whose streams 1, 3, ... ask for ``paths``."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    for number, path in enumerate(paths):
        h2_request(connection, 2 * number + 1, path)
    return connection


def h2_request(connection, stream: int, path: str, *, method: str = "GET") -> None:
    headers = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "t")]
    connection.send_headers(stream, headers, end_stream=method == "GET")


async def h2_until_ended(stream, connection, number: int) -> bytes:
    body = b""
    while True:
        await stream.send_all(connection.data_to_send())
        data = await stream.receive_some()
        assert data, "the connection was lost"
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.DataReceived) and event.stream_id == number:
                body += event.data
            elif isinstance(event, h2.events.StreamEnded) and event.stream_id == number:
                return body


async def test_a_body_behind_its_answer_costs_no_other_stream(connect, caplog) -> None:
    """What a client still sends of a request that has been answered, or that it resets, is dropped."""
    app = Waiting()
    async with open_server(CancelOnDisconnect(app)) as server, connect(server.url) as client:
        connection = h2_client("/wait")
        h2_request(connection, 3, "/early", method="POST")
        connection.send_data(3, b"begins")
        assert await h2_until_ended(client.stream, connection, 3) == b"done"
        connection.send_data(3, b"goes on", end_stream=True)
        h2_request(connection, 5, "/wait", method="POST")
        connection.send_data(5, b"begins")
        connection.reset_stream(5)
        h2_request(connection, 7, "/early")
        assert await h2_until_ended(client.stream, connection, 7) == b"done"
        app.go.set()
        assert await h2_until_ended(client.stream, connection, 1) == b"done"
    assert not caplog.records


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_shutdown_answers_what_is_at_hand_on_http2(nursery, connect, caplog, given_up) -> None:
    """To the end of the stream, also when another request comes and is given up meanwhile."""
    app, stop = Waiting(), trio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        run = partial(serve, app, sockets=[listener], shutdown_trigger=stop.wait)
        [url] = await nursery.start(run)
        async with connect(url) as client:
            connection = h2_client("/wait", "/early")
            assert await h2_until_ended(client.stream, connection, 3) == b"done"
            stop.set()
            await trio.testing.wait_all_tasks_blocked(0.01)
            if given_up:
                h2_request(connection, 5, "/early")
                connection.reset_stream(5)
                await client.send(connection.data_to_send())
            await trio.testing.wait_all_tasks_blocked(0.01)
            app.go.set()
            assert await h2_until_ended(client.stream, connection, 1) == b"done"
    assert not caplog.records


WEBSOCKET = (
    b"GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
NO_WINDOW = h2_client()
NO_WINDOW.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
h2_request(NO_WINDOW, 1, "/early")
LEAVING = {
    "http/2 that takes nothing": NO_WINDOW.data_to_send(),
    "http/2 that waits": h2_client(*["/wait"] * 20).data_to_send(),
    "http/2 that does not read": h2_client("/flood", *["/wait"] * 20, "/flood").data_to_send(),
    "websocket": WEBSOCKET,
}


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("what", LEAVING)
async def test_of_a_client_that_left_nothing_stays(connect, until, caplog, what, how) -> None:
    """Its handlers end, and so do its connection and all its tasks, without a word in the log."""
    app = Waiting()
    async with open_server(CancelOnDisconnect(app)) as server:
        await trio.testing.wait_all_tasks_blocked(0.01)
        before = trio.lowlevel.current_statistics().tasks_living
        async with connect(server.url) as client:
            await client.send(LEAVING[what])
            await until(lambda: app.inside)
            await trio.testing.wait_all_tasks_blocked(0.01)
            if how == "resets":
                client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if what == "websocket":
            app.go.set()
        await until(lambda: trio.lowlevel.current_statistics().tasks_living == before)
        assert app.inside == 0
    assert not caplog.records


async def test_a_frame_before_the_upgrade_ends_a_websocket(connect, until, caplog) -> None:
    """The app finds that its client has gone; the connection closes, without a word in the log."""
    app = Waiting()
    async with open_server(app) as server, connect(server.url) as client:
        await client.send(WEBSOCKET + b"\x81\x80\x00\x00\x00\x00")
        assert await client.rest() == b""
        app.go.set()
        await until(lambda: app.inside == 0)
    assert not caplog.records


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_an_idle_client_that_leaves_is_not_kept(certificates, until, protocol) -> None:
    """Its connection ends then, and not when an idle one would."""
    settings, context = certificates
    settings.keep_alive_timeout = 1000.0
    context.set_alpn_protocols([protocol])
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(partial(serve, Waiting(), settings, shutdown_trigger=stop.wait))
        transport = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
        async with trio.SSLStream(transport, context, server_hostname="127.0.0.1", https_compatible=True) as stream:
            if protocol == "h2":
                assert await h2_until_ended(stream, h2_client("/early"), 1) == b"done"
            else:
                await stream.send_all(b"GET /early HTTP/1.1\r\nHost: t\r\n\r\n")
                data = b""
                while b"done" not in data:
                    data += await stream.receive_some()
            await transport.send_eof()
            while await transport.receive_some():
                pass
        stop.set()
