"""HTTP/1.1 as a client on the other end of a socket sees it."""

from __future__ import annotations

import contextvars
import logging
import re
import socket
from functools import partial

import pytest
import trio
from hypercorn.config import Config

from gym_trio.http import ServeLimits, open_server, serve

START = {"type": "http.response.start", "status": 200, "headers": []}


def start(*headers, status=200):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, more: bool = False):
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_one_connection_serves_many_requests(connect, recorder) -> None:
    """Keep-alive: requests on one connection are answered in order, each with its own body."""
    async with open_server(recorder) as server, connect(server.url) as client:
        for number in range(5):
            answer = await client.post(f"/{number}", b"x" * number)
            assert answer.status == 200
            assert answer.json() == ["POST", f"/{number}", "x" * number]
            assert "connection" not in answer.headers
    assert len(recorder.seen) == 5


async def test_a_response_is_one_segment(connect, responding) -> None:
    """Head and body of a complete response leave in one write, with date, server and length."""
    async with open_server(responding(start((b"x-own", b"1")), body(b"hello"))) as server:
        async with connect(server.url) as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
            data = await client.stream.receive_some(65536)
    head, _, rest = data.partition(b"\r\n\r\n")
    assert rest == b"hello"
    assert head.startswith(b"HTTP/1.1 200 OK\r\nx-own: 1\r\ncontent-length: 5\r\n")
    assert re.search(rb"\r\ndate: [A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT\r\n", head)
    assert b"\r\nserver: hypercorn-gym-trio" in head


async def test_the_app_can_set_date_and_server(connect, responding) -> None:
    """What the app says about date and server is sent once, in place of the default."""
    app = responding(start((b"Date", b"today"), (b"server", b"mine")), body(b""))
    async with open_server(app) as server, connect(server.url) as client:
        answer = await client.get()
    assert (answer.headers["date"], answer.headers["server"]) == ("today", "mine")


async def test_date_and_server_can_be_switched_off(connect, responding) -> None:
    """hypercorn's settings about these headers hold."""
    config = Config()
    config.include_date_header = config.include_server_header = False
    async with open_server(responding(START, body(b"")), config=config) as server, connect(server.url) as client:
        assert (await client.get()).headers == {"content-length": "0"}


async def test_pipelined_requests_lose_no_bytes(connect, recorder, post_bytes) -> None:
    """Requests sent in one write, cut anywhere, are answered one by one, whatever follows a body."""
    wire = post_bytes("/a", b"1" * 10) + post_bytes("/b", b"") + b"\r\n" + post_bytes("/c", b"GET / HTTP/1.1\r\n\r\n")
    async with open_server(recorder) as server:
        for cut in range(0, len(wire), 7):
            recorder.seen.clear()
            async with connect(server.url) as client:
                await client.send(wire[:cut])
                await trio.lowlevel.checkpoint()
                await client.send(wire[cut:])
                for path in ("/a", "/b", "/c"):
                    assert (await client.answer()).json()[1] == path
            assert recorder.seen == [
                ("POST", "/a", b"1" * 10),
                ("POST", "/b", b""),
                ("POST", "/c", b"GET / HTTP/1.1\r\n\r\n"),
            ]


async def test_chunked_request(connect, recorder) -> None:
    """A chunked body is decoded; extensions and trailers are dropped; the next request is found behind it."""
    wire = (
        b"POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: Chunked\r\n\r\n"
        b'5\r\nhello\r\n006;x="y"\r\n world\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n'
        b"GET /b HTTP/1.1\r\nHost: t\r\n\r\n"
    )
    async with open_server(recorder) as server, connect(server.url) as client:
        await client.send(wire)
        assert (await client.answer()).json() == ["POST", "/a", "hello world"]
        assert (await client.answer()).json() == ["GET", "/b", ""]


async def test_streamed_response_is_chunked(connect, responding) -> None:
    """Without a length a response is chunked, and the connection goes on."""
    app = responding(START, body(b"one", True), body(b"", True), body(b"two", True), body(b"three"))
    async with open_server(app) as server, connect(server.url) as client:
        for _ in range(2):
            answer = await client.get()
            assert answer.chunked
            assert answer.body == b"onetwothree"


async def test_streamed_response_with_a_length(connect, responding) -> None:
    """With a length of the app's, a streamed response is sent as it is."""
    app = responding(start((b"content-length", b"6")), body(b"one", True), body(b"two"))
    async with open_server(app) as server, connect(server.url) as client:
        for _ in range(2):
            answer = await client.get()
            assert answer.body == b"onetwo"
            assert not answer.chunked


async def test_head_is_sent_before_the_first_byte_of_the_body(connect) -> None:
    """An empty first message is enough to let the client see the head: event streams begin so."""
    go_on = trio.Event()

    async def app(scope, receive, send) -> None:
        await send(START)
        await send(body(b"", True))
        await go_on.wait()
        await send(body(b"data: 1\n\n"))

    async with open_server(app) as server, connect(server.url) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        head = await client.stream.receive_some()
        assert head.endswith(b"\r\n\r\n")
        go_on.set()
        client.buffer = head
        assert (await client.answer()).body == b"data: 1\n\n"


@pytest.mark.parametrize("streamed", [False, True])
async def test_head_method_has_no_body(connect, responding, streamed) -> None:
    """HEAD gets the headers of the GET and nothing behind them, and the connection goes on."""
    app = responding(START, body(b"hello", streamed), body(b"")) if streamed else responding(START, body(b"hello"))
    async with open_server(app) as server, connect(server.url) as client:
        for _ in range(2):
            answer = await client.get(method="HEAD")
            assert answer.headers.get("content-length") == (None if streamed else "5")
            assert client.buffer == b""


@pytest.mark.parametrize("status", [204, 304])
async def test_statuses_without_body(connect, responding, status) -> None:
    """204 and 304 have no body, whatever the app sends."""
    async with open_server(responding(start(status=status), body(b"no"))) as server, connect(server.url) as client:
        for _ in range(2):
            answer = await client.get()
            assert answer.status == status
            assert (answer.headers.get("content-length"), "transfer-encoding" in answer.headers) == (
                (None, False) if status == 204 else ("2", False)
            )


async def test_unknown_status(connect, responding) -> None:
    """A status without a registered phrase is sent all the same."""
    async with open_server(responding(start(status=599), body(b""))) as server, connect(server.url) as client:
        assert (await client.get()).status == 599


async def test_the_client_closes(connect, recorder) -> None:
    """A request with connection: close is the last: the response says so and the connection ends."""
    async with open_server(recorder) as server, connect(server.url) as client:
        answer = await client.get(extra="Connection: foo, Close\r\n")
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_the_app_closes(connect, responding) -> None:
    """A response with connection: close is the last."""
    app = responding(start((b"Connection", b"close")), body(b"x"))
    async with open_server(app) as server, connect(server.url) as client:
        answer = await client.get()
        assert answer.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_requests_behind_a_close_are_not_served(connect, recorder, post_bytes) -> None:
    """What is pipelined behind connection: close is dropped, and its answer is not reset by it."""
    wire = b"GET /a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n" + post_bytes("/b", b"x" * 100_000)
    async with open_server(recorder) as server, connect(server.url) as client:
        await client.send(wire)
        assert (await client.answer()).json()[1] == "/a"
        assert await client.rest() == b""
    assert [path for _, path, _ in recorder.seen] == ["/a"]


async def test_http_1_0(connect, recorder, responding) -> None:
    """HTTP/1.0: closed unless the client asks for keep-alive; a response without a length ends with the connection."""
    async with open_server(recorder) as server:
        async with connect(server.url) as client:
            await client.send(b"GET /a HTTP/1.0\r\n\r\n")
            answer = await client.answer()
            assert answer.headers["connection"] == "close"
            assert await client.rest() == b""
        async with connect(server.url) as client:
            for _ in range(2):
                await client.send(b"GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
                assert (await client.answer()).headers["connection"] == "keep-alive"
    async with open_server(responding(START, body(b"one", True), body(b"two"))) as server:
        async with connect(server.url) as client:
            await client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            answer = await client.answer()
            assert (answer.body, answer.headers["connection"]) == (b"onetwo", "close")
            assert "transfer-encoding" not in answer.headers


async def test_a_cut_http_1_0_response_is_an_error_to_the_client(connect) -> None:
    """A response that ends with its connection is reset when the app fails, so that it does not look complete."""

    async def app(scope, receive, send) -> None:
        await send(START)
        await send(body(b"one", True))
        raise ValueError("half way")

    async with open_server(app) as server, connect(server.url) as client:
        await client.send(b"GET /a HTTP/1.0\r\n\r\n")
        with pytest.raises(trio.BrokenResourceError):
            await client.read_to_the_end()


async def test_expect_continue(connect, recorder) -> None:
    """A client that waits for 100 Continue gets it when the handler asks for the body."""
    async with open_server(recorder) as server, connect(server.url) as client:
        for _ in range(2):
            await client.send(b"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n")
            assert (await client.answer()).status == 100
            await client.send(b"abc")
            assert (await client.answer()).json() == ["POST", "/a", "abc"]


async def test_expect_continue_of_a_client_that_does_not_wait(connect, recorder) -> None:
    """A body that has arrived makes the 100 needless."""
    async with open_server(recorder) as server, connect(server.url) as client:
        await client.send(b"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc")
        assert (await client.answer()).status == 200


async def test_expect_continue_refused_by_the_handler(connect, responding) -> None:
    """A handler that answers without reading sends no 100, and the connection does not wait for the body."""
    async with open_server(responding(start(status=401), body(b"no"))) as server, connect(server.url) as client:
        await client.send(b"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        assert await client.rest() == b""


async def test_access_log(connect, recorder, caplog) -> None:
    """With hypercorn's access log switched on, each response is a line in its format, cut ones too."""
    config = Config()
    config.accesslog = logging.getLogger("test.access")
    config.access_log_format = "%(m)s %(U)s %(s)s %(b)s %({x-id}i)s"
    config.errorlog = None

    async def app(scope, receive, send) -> None:
        if scope["path"] == "/fails":
            await send(START)
            await send(body(b"x", True))
            raise ValueError
        await recorder(scope, receive, send)

    caplog.set_level(logging.INFO, "test.access")
    async with open_server(app, config=config) as server:
        async with connect(server.url) as client:
            await client.get("/good", "X-Id: 7\r\n")
            await client.send(b"GET /fails HTTP/1.1\r\nHost: t\r\n\r\n")
            await client.rest()
    assert [record.getMessage() for record in caplog.records] == ["GET /good 200 20 7", "GET /fails - - -"]


async def test_scope(connect) -> None:
    """The scope has what ASGI asks for, taken from the request and the connection."""
    scopes = []

    async def app(scope, receive, send) -> None:
        if scope["type"] == "http":
            scopes.append(scope)
        await send(START)
        await send(body(b""))

    async with open_server(app) as server, connect(server.url) as client:
        await client.get("/a%20b/%E2%82%AC?q=%20&r", "X-Two: 1\r\nx-two:\t2 \r\nCookie: \xe4\r\n")
        host, port = client.stream.socket.getsockname()
        (scope,) = scopes
        assert scope["headers"] == [
            (b"host", b"test"),
            (b"x-two", b"1"),
            (b"x-two", b"2"),
            (b"cookie", "\xe4".encode()),
        ]
        assert (scope["path"], scope["raw_path"]) == ("/a b/€", b"/a%20b/%E2%82%AC")
        assert (scope["query_string"], scope["method"], scope["http_version"]) == (b"q=%20&r", "GET", "1.1")
        assert (scope["client"], scope["server"]) == ((host, port), (server.host, server.port))
        assert (scope["scheme"], scope["root_path"], scope["asgi"]["version"]) == ("http", "", "3.0")


class Ends:
    """What an app is told of the two ends of each connection, and what they are."""

    def __init__(self) -> None:
        self.told: list = []
        self.own: list = []

    async def app(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            self.told.append((scope["client"], scope["server"]))
        await send(START)
        await send(body(b""))

    async def ask(self, connection, prefix: str = "") -> None:
        async with connection as client:
            await client.get("/")
            sock = client.stream.socket
            self.own.append(tuple((prefix + host, port) for host, port in (sock.getsockname(), sock.getpeername())))


@pytest.mark.parametrize(
    ("host", "addresses"), [("0.0.0.0", ["127.0.0.1", "127.0.0.2"]), ("127.0.0.1", ["127.0.0.1"])], ids=["any", "one"]
)
async def test_each_connection_has_the_addresses_of_its_own_ends(connect, host: str, addresses: list[str]) -> None:
    """Also of a server that listens on every address of its machine."""
    ends = Ends()
    async with open_server(ends.app, host=host) as server:
        for address in addresses:
            await ends.ask(connect(f"http://{address}:{server.port}"))
    assert ends.told == ends.own
    assert len(ends.told) == len(addresses)


@pytest.mark.parametrize("host", ["::", "::ffff:0.0.0.0"])
async def test_each_connection_has_its_own_addresses_where_one_socket_has_both_families(connect, host: str) -> None:
    """Those of IPv4 as such a socket has them."""
    ends = Ends()
    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind((host, 0))
    port = listener.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, ends.app, sockets=[listener]))
        for address in ("127.0.0.1", "127.0.0.2"):
            await ends.ask(connect(f"http://{address}:{port}"), "::ffff:")
        nursery.cancel_scope.cancel()
    assert ends.told == ends.own
    assert len(ends.told) == 2


async def test_context_variables_end_with_their_request(connect) -> None:
    """What a handler sets in a context variable is not seen by the next request on the same connection."""
    variable = contextvars.ContextVar("variable", default="unset")
    found = []

    async def app(scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return
        found.append(variable.get())
        variable.set(scope["path"])
        await send(START)
        await send(body(b""))

    async with open_server(app) as server, connect(server.url) as client:
        await client.get("/a")
        await client.get("/b")
        await client.send(b"GET /c HTTP/1.1\r\nHost: t\r\n\r\n" * 2)
        await client.answer()
        await client.answer()
    assert found == ["unset"] * 4


async def test_an_app_that_goes_on_after_its_response(connect, until) -> None:
    """Work after the response does not hold the connection's next request back, and ends before the server does."""
    release, ended = trio.Event(), []

    async def app(scope, receive, send) -> None:
        await send(START)
        await send(body(scope["path"].encode()))  # which a lifespan refuses
        if scope["path"] == "/works":
            assert (await receive())["type"] == "http.request"
            assert (await receive())["type"] == "http.disconnect"
            await release.wait()
            ended.append(True)

    async with open_server(app) as server, connect(server.url) as client:
        assert (await client.get("/works")).body == b"/works"
        assert (await client.get("/next")).body == b"/next"
        assert (await client.post("/next", b"not for the first")).body == b"/next"
        assert not ended
        release.set()
    assert ended == [True]


async def test_a_large_body_is_streamed(connect) -> None:
    """Past the buffer a body arrives on demand: a handler that does not read holds the client back."""
    started, go_on, sizes = trio.Event(), trio.Event(), []
    whole = b"x" * 50_000_000

    async def app(scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return
        started.set()
        await go_on.wait()
        more = True
        while more:
            message = await receive()
            sizes.append(len(message["body"]))
            more = message["more_body"]
        await send(START)
        await send(body(b"%d" % sum(sizes)))

    sent = []

    async def upload(client) -> None:
        sent.append(await client.post("/", whole))

    async with open_server(app, limits=ServeLimits(buffered_body_bytes=1000)) as server:
        async with connect(server.url) as client, trio.open_nursery() as nursery:
            nursery.start_soon(upload, client)
            await started.wait()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert sent == sizes == []
            go_on.set()
    assert sent[0].body == b"%d" % len(whole)
    assert max(sizes) <= 300_000


async def test_a_small_body_has_arrived_before_the_handler_starts(connect, recorder) -> None:
    """A handler does not wait for its client to finish a body that fits the buffer."""
    calls = []

    async def app(scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return
        calls.append(scope["path"])
        message = await receive()
        assert (message["body"], message["more_body"]) == (b"abcdef", False)
        await send(START)
        await send(body(b""))

    async with open_server(app) as server, connect(server.url) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\n\r\nabc")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert calls == []
        await client.send(b"def")
        assert (await client.answer()).status == 200
