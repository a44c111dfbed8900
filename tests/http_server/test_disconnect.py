"""Clients that go, seen from the app: over sockets, on our own connections."""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest
import trio
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from gym_trio import CancelOnDisconnect
from gym_trio.http import ServeLimits, open_server

END = b"0\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"
START = {"type": "http.response.start", "status": 200, "headers": []}


class Probe:
    """Wraps a handler, and tells when it began and how it ended."""

    def __init__(self, handler) -> None:
        self.handler = handler
        self.began, self.ended = trio.Event(), trio.Event()
        self.outcome = None

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        self.began.set()
        try:
            await self.handler(scope, receive, send)
            self.outcome = "returned"
        except BaseException as error:
            others = error.split(trio.Cancelled)[1] if isinstance(error, BaseExceptionGroup) else error
            self.outcome = "cancelled" if others is None or isinstance(others, trio.Cancelled) else others
            raise
        finally:
            self.ended.set()


async def sleep(scope, receive, send) -> None:
    await trio.sleep_forever()


async def read_one_message(scope, receive, send) -> None:
    await receive()
    await trio.sleep_forever()


async def wait_for_disconnect(scope, receive, send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    await trio.sleep_forever()


async def flood(scope, receive, send) -> None:
    await send(START)
    await send({"type": "http.response.body", "body": b"x" * 20_000_000})


async def drip(scope, receive, send) -> None:
    await send(START)
    while True:
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})


async def children(scope, receive, send) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(trio.sleep_forever)


def leave(client) -> None:
    client.close()


def half_close(client) -> None:
    client.stream.socket.shutdown(socket.SHUT_WR)


def reset(client) -> None:
    client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


SENT = {
    "no body": GET,
    "body": b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello",
    "unread large body": b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000,
    "unread chunks": b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"1\r\nx\r\n" * 50
    + b"0\r\n\r\n",
    "a request behind": GET + GET,
    "half a request behind": GET + GET[:10],
    "a line end behind": b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello\r\n",
    "a large request behind": GET + b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 50000\r\n\r\n" + b"x" * 50_000,
    "a body that was to wait for a 100": (
        b"POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 50000\r\n\r\n" + b"x" * 50_000
    ),
}


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("how", [leave, half_close, reset])
@pytest.mark.parametrize("handler", [sleep, read_one_message, wait_for_disconnect, children, flood, drip])
async def test_the_handler_is_cancelled(connect, caplog, sent, how, handler) -> None:
    """Whatever the client has sent, however it leaves, whatever the handler does: it is cancelled, in silence."""
    probe = Probe(handler)
    limits = ServeLimits(buffered_body_bytes=10_000)
    async with open_server(CancelOnDisconnect(probe), limits=limits) as server, connect(server.url) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send, client, SENT[sent])
            with trio.fail_after(10):
                await probe.began.wait()
                await trio.testing.wait_all_tasks_blocked()
                assert not probe.ended.is_set()
                nursery.cancel_scope.cancel()
        how(client)
        with trio.fail_after(10):
            await probe.ended.wait()
    assert probe.outcome == "cancelled"
    assert caplog.records == []


async def _send(client, data: bytes) -> None:
    with contextlib.suppress(trio.BrokenResourceError):
        await client.send(data)


async def test_gone_before_the_handler_started(connect, until) -> None:
    """A client that has gone when its request is read has no handler started for it."""
    probe = Probe(sleep)
    started = []

    async def app(scope, receive, send) -> None:
        if scope["type"] == "http":
            started.append(scope["path"])
        await CancelOnDisconnect(probe)(scope, receive, send)

    async with open_server(app) as server:
        client = socket.create_connection((server.host, server.port))
        client.sendall(GET)
        client.close()
        await until(lambda: started)
    assert probe.outcome in (None, "cancelled")


async def test_a_handler_without_checkpoints_is_not_run_for_a_client_that_has_gone(until) -> None:
    """Once the departure is known, not even a handler that never waits runs."""
    ran, later = [], trio.Event()

    async def handler(scope, receive, send) -> None:
        ran.append(scope["path"])

    async def app(scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        await later.wait()
        await CancelOnDisconnect(handler)(scope, receive, send)

    async with open_server(app) as server:
        client = socket.create_connection((server.host, server.port))
        client.sendall(GET)
        client.close()
        await trio.testing.wait_all_tasks_blocked(0.05)
        later.set()
    assert ran == []


async def test_cleanup_runs_and_the_server_goes_on(connect, recorder) -> None:
    """A cancelled handler's shielded cleanup is awaited, and other connections are served meanwhile."""
    release = trio.Event()

    async def handler(scope, receive, send) -> None:
        if scope["path"] == "/other":
            await recorder(scope, receive, send)
            return
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await release.wait()

    probe = Probe(handler)
    async with open_server(CancelOnDisconnect(probe)) as server:
        async with connect(server.url) as client:
            await client.send(GET)
            await probe.began.wait()
        async with connect(server.url) as client:
            assert (await client.get("/other")).status == 200
        release.set()
        with trio.fail_after(5):
            await probe.ended.wait()


async def test_an_error_of_the_handler_is_logged(connect, caplog) -> None:
    """What a handler raises while it is cancelled is its own error, and is logged with its traceback."""

    async def handler(scope, receive, send) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("in cleanup")

    probe = Probe(handler)
    async with open_server(CancelOnDisconnect(probe)) as server:
        async with connect(server.url) as client:
            await client.send(GET)
            await probe.began.wait()
        with trio.fail_after(5):
            await probe.ended.wait()
    (record,) = caplog.records
    assert record.getMessage() == "GET / failed"
    assert str(record.exc_info[1]) == "in cleanup"


async def test_an_error_beside_a_cancellation(connect, caplog) -> None:
    """A group of cancellations and an error: the error is logged, the cancellation stays one."""

    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("a child")

    async def handler(scope, receive, send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail)

    probe = Probe(handler)
    async with open_server(CancelOnDisconnect(probe)) as server:
        async with connect(server.url) as client:
            await client.send(GET)
            await probe.began.wait()
        with trio.fail_after(5):
            await probe.ended.wait()
    (record,) = caplog.records
    assert "a child" in repr(record.exc_info[1])


async def test_leaving_after_the_response_cancels_nothing(connect) -> None:
    """Work that goes on after a complete response is not the client's any more."""
    release, finished = trio.Event(), trio.Event()

    async def work() -> None:
        await release.wait()
        finished.set()

    async def endpoint(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok", background=BackgroundTask(work))

    app = CancelOnDisconnect(Starlette(routes=[Route("/", endpoint)]))
    async with open_server(app) as server:
        async with connect(server.url) as client:
            assert (await client.get()).body == b"ok"
        await trio.testing.wait_all_tasks_blocked(0.01)
        release.set()
        with trio.fail_after(5):
            await finished.wait()


async def test_two_layers(connect) -> None:
    """The layer around a layer is as good as one."""
    probe = Probe(sleep)
    async with open_server(CancelOnDisconnect(CancelOnDisconnect(probe))) as server:
        async with connect(server.url) as client:
            await client.send(GET)
            await probe.began.wait()
        with trio.fail_after(5):
            await probe.ended.wait()
    assert probe.outcome == "cancelled"


async def test_without_the_layer_receive_tells(connect) -> None:
    """A bare app learns of the departure from receive(), and from Starlette's is_disconnected()."""
    began, told = trio.Event(), trio.Event()

    async def endpoint(request: Request) -> PlainTextResponse:
        await request.body()
        assert not await request.is_disconnected()
        began.set()
        while not await request.is_disconnected():
            await trio.lowlevel.checkpoint()
        told.set()
        return PlainTextResponse("too late")

    async with open_server(Starlette(routes=[Route("/", endpoint, methods=["POST"])])) as server:
        async with connect(server.url) as client:
            await client.send(SENT["body"] + b"\r\n")
            await began.wait()
        with trio.fail_after(5):
            await told.wait()


class Endless:
    """Chunks without end."""

    def __aiter__(self):
        return self

    async def __anext__(self) -> bytes:
        return b"x" * 10_000


async def test_without_the_layer_a_stream_ends(connect, caplog) -> None:
    """A streaming response whose client has gone ends by the error that ASGI asks for, without a traceback."""
    ended = trio.Event()

    async def endpoint(request: Request) -> StreamingResponse:
        return StreamingResponse(Endless())

    inner = Starlette(routes=[Route("/", endpoint)])

    async def app(scope, receive, send) -> None:
        try:
            await inner(scope, receive, send)
        finally:
            if scope["type"] == "http":
                ended.set()

    async with open_server(app) as server:
        async with connect(server.url) as client:
            await client.send(GET)
            await client.stream.receive_some()
        with trio.fail_after(5):
            await ended.wait()
    assert caplog.records == []


async def test_nothing_can_be_sent_on_a_lost_connection(connect) -> None:
    """After the first failed send, every send fails, as an OSError."""
    errors = []

    async def app(scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        await receive()
        await receive()
        await send(START)
        for _ in range(100):
            try:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                await trio.sleep(0.001)
            except OSError as error:
                errors.append(error)

    async with open_server(app) as server:
        async with connect(server.url) as client:
            await client.send(GET)
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert len(errors) > 90


async def test_a_send_that_was_cut_is_the_last(connect) -> None:
    """When an app cancels its own send half way, what follows is refused rather than sent out of place."""
    outcome = []

    async def app(scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        await send(START)
        with trio.move_on_after(0.01):
            await send({"type": "http.response.body", "body": b"x" * 50_000_000, "more_body": True})
        with pytest.raises(OSError, match="earlier part"):
            await send({"type": "http.response.body", "body": b"y"})
        outcome.append(True)

    async with open_server(app) as server, connect(server.url) as client:
        await client.send(GET)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert b"y" not in (await client.rest()).partition(b"\r\n\r\n")[2]
    assert outcome == [True]


async def test_two_tasks_cannot_send_at_once(connect) -> None:
    """A second send while one waits for the client is an error, not a mixture of both."""
    errors = []

    async def app(scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        await send(START)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, {"type": "http.response.body", "body": b"x" * 50_000_000, "more_body": True})
            await trio.testing.wait_all_tasks_blocked(0.01)
            try:
                await send({"type": "http.response.body", "body": b"y"})
            except trio.BusyResourceError as error:
                errors.append(error)
            nursery.cancel_scope.cancel()

    async with open_server(app) as server, connect(server.url) as client:
        await client.send(GET)
        await trio.testing.wait_all_tasks_blocked(0.05)
        await client.rest()
    assert len(errors) == 1


async def test_a_client_that_does_not_read(connect) -> None:
    """A response whose client reads nothing is given up after the allowance; the handler is cancelled."""
    probe = Probe(flood)
    limits = ServeLimits(transfer_seconds=0.1)
    async with open_server(CancelOnDisconnect(probe), limits=limits) as server, connect(server.url) as client:
        await client.send(GET)
        with trio.fail_after(10):
            await probe.ended.wait()
    assert probe.outcome == "cancelled"


async def test_hundreds_that_drop_at_random(connect, until) -> None:
    """Four hundred clients that drop at any point leave no handler, no connection and no descriptor behind."""
    running = set()

    async def handler(scope, receive, send) -> None:
        token = object()
        running.add(token)
        try:
            await receive()
            await send(START)
            for _ in range(3):
                await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
                await trio.sleep(0.001)
            await send({"type": "http.response.body", "body": b""})
        finally:
            running.discard(token)

    wire = SENT["body"]

    async def client(url: str, number: int) -> None:
        async with connect(url) as one:
            one.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", number % 2, 0))
            with contextlib.suppress(trio.BrokenResourceError):
                await one.send(wire[: number % (len(wire) + 1)])
                with trio.move_on_after(number % 7 / 1000):
                    await one.rest()

    async with open_server(CancelOnDisconnect(Probe(handler))) as server:
        async with trio.open_nursery() as nursery:
            for number in range(400):
                nursery.start_soon(client, server.url, number)
        with trio.fail_after(10):
            await until(lambda: not running)
        async with connect(server.url) as one:
            assert (await one.get()).body == b"x" * 3000
