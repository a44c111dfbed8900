"""Apps that break the rules of ASGI or HTTP: the client sees an error, never a response that looks whole."""

from __future__ import annotations

import contextlib

import pytest
import trio

from gym_trio.http import open_server

GET = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"


def start(*headers, status=200):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data, more: bool = False):
    return {"type": "http.response.body", "body": data, "more_body": more}


BEFORE_THE_HEAD = {
    "says nothing": [],
    "begins and ends there": [start()],
    "begins with the body": [body(b"x")],
    "begins twice": [start(), start()],
    "sends what is not HTTP": [{"type": "websocket.send", "text": ""}],
    "informs": [start(status=103), body(b"")],
    "has no status": [start(status="200"), body(b"")],
    "has a status of four digits": [start(status=2000), body(b"")],
    "has CRLF in a value": [start((b"x", b"a\r\nset-cookie: b")), body(b"")],
    "has LF in a value": [start((b"x", b"a\nb")), body(b"")],
    "has CR in a value": [start((b"x", b"a\rb")), body(b"")],
    "has NUL in a value": [start((b"x", b"a\0b")), body(b"")],
    "has CRLF in a name": [start((b"x\r\ny", b"a")), body(b"")],
    "has a colon in a name": [start((b"x:y", b"a")), body(b"")],
    "has a space in a name": [start((b"x ", b"a")), body(b"")],
    "has an empty name": [start((b"", b"a")), body(b"")],
    "has text for a header": [start(("x", "a")), body(b"")],
    "has a bad length": [start((b"content-length", b"-1")), body(b"")],
    "has two lengths": [start((b"content-length", b"1"), (b"content-length", b"2")), body(b"x")],
    "sends less than its length": [start((b"content-length", b"5")), body(b"four")],
    "sends more than its length": [start((b"content-length", b"3")), body(b"four")],
    "sends text": [start(), body("text")],
    "sends a number": [start(), body(5)],
}


@pytest.mark.parametrize("name", BEFORE_THE_HEAD)
async def test_a_500(connect, responding, caplog, name) -> None:
    """As long as nothing has been sent, the client gets a 500 and the end, and the log says why."""
    async with open_server(responding(*BEFORE_THE_HEAD[name])) as server, connect(server.url) as client:
        answer = await client.get()
        assert (answer.status, answer.headers["connection"]) == (500, "close")
        assert await client.rest() == b""
    assert caplog.records
    assert "set-cookie" not in answer.headers


AFTER_THE_HEAD = {
    "ends too early": [start(), body(b"x", True)],
    "begins again": [start(), body(b"x", True), start()],
    "ends short of its length": [start((b"content-length", b"5")), body(b"x", True), body(b"")],
    "goes past its length": [start((b"content-length", b"2")), body(b"x", True), body(b"xx")],
}


@pytest.mark.parametrize("name", AFTER_THE_HEAD)
async def test_a_cut(connect, responding, caplog, name) -> None:
    """Once the head has been sent, the connection ends before the response is complete."""
    async with open_server(responding(*AFTER_THE_HEAD[name])) as server, connect(server.url) as client:
        await client.send(GET)
        data = await client.rest()
    assert data.startswith(b"HTTP/1.1 200 OK")
    assert b"content-length: 5" in data or b"content-length: 2" in data or not data.endswith(b"0\r\n\r\n")
    assert data.count(b"x") == 1
    assert caplog.records


async def test_a_message_after_the_end(connect) -> None:
    """A response that is complete takes no more; the connection and its next request are not harmed."""
    errors = []

    async def app(scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        await send(start())
        await send(body(b"whole"))
        for message in (body(b"more"), start()):
            with pytest.raises(RuntimeError, match="COMPLETE") as caught:
                await send(message)
            errors.append(caught.value)

    async with open_server(app) as server, connect(server.url) as client:
        for _ in range(2):
            assert (await client.get()).body == b"whole"
    assert len(errors) == 4


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_other_kinds_of_bytes(connect, responding, kind) -> None:
    """Bytes in other types are sent as they are, and headers may be lists."""
    app = responding(start([b"X-List", b"yes"]), body(kind(b"one"), True), body(kind(b"two")))
    async with open_server(app) as server, connect(server.url) as client:
        answer = await client.get()
        assert (answer.body, answer.headers["x-list"]) == (b"onetwo", "yes")


async def test_transfer_encoding_is_the_server_s(connect, responding) -> None:
    """An app's transfer-encoding is not sent: the framing is the connection's."""
    app = responding(start((b"transfer-encoding", b"gzip"), (b"keep-alive", b"9")), body(b"x", True), body(b"y"))
    async with open_server(app) as server, connect(server.url) as client:
        answer = await client.get()
        assert (answer.body, answer.headers["transfer-encoding"]) == (b"xy", "chunked")
        assert "keep-alive" not in answer.headers


async def test_an_error_in_a_handler(connect, caplog) -> None:
    """A handler's error is a 500 for its client, a traceback in the log, and nothing to other connections."""

    async def app(scope, receive, send) -> None:
        if scope["type"] == "http" and scope["path"] == "/fails":
            async with trio.open_nursery():
                raise ValueError("mine")
        await send(start())
        await send(body(b"fine"))

    async with open_server(app) as server, connect(server.url) as other, connect(server.url) as client:
        assert (await other.get()).body == b"fine"
        assert (await client.get("/fails?a=1")).status == 500
        assert (await other.get()).body == b"fine"
    (record,) = [record for record in caplog.records if record.name == "gym_trio.http"]
    assert record.getMessage() == "GET /fails?a=1 failed"
    assert "mine" in repr(record.exc_info[1])


async def test_a_response_before_the_body_has_been_read(connect, responding) -> None:
    """An answer to a large body that nobody read says that it is the last, and reaches its client."""
    head = b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5000000\r\n\r\n"
    async with open_server(responding(start(status=404), body(b"no"))) as server, connect(server.url) as client:
        async with trio.open_nursery() as nursery:

            async def upload() -> None:
                with contextlib.suppress(trio.BrokenResourceError):
                    await client.send(head + b"x" * 5_000_000)

            nursery.start_soon(upload)
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"], answer.body) == (404, "close", b"no")
            assert await client.rest() == b""
            nursery.cancel_scope.cancel()
