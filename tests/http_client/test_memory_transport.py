"""Requests in memory: one call of the app, with what a client of a socket would see."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from gym_trio import http
from gym_trio.errors import Delivery, PeerDropped, ProtocolError, TransportError, UsageError
from gym_trio.http import CancelOnDisconnect, DirectApp, DirectRoute, MemoryTransport, Origin, Request
from gym_trio.http._disconnect import DISCONNECT_EXTENSION

ORIGIN = Origin("http", "agent", 80)


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, object]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(data: object = b"", more: bool = False) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def answers(*messages: dict[str, object], error: BaseException | None = None):
    """An app that reads its request, says ``messages`` and then, perhaps, fails."""

    async def app(scope, receive, send) -> None:
        while (await receive()).get("more_body"):
            pass
        for message in messages:
            await send(message)
        if error is not None:
            raise error

    return app


async def ask(app, method: str = "POST", **fields: object) -> http.Response:
    return await MemoryTransport(app).send(Request(method, ORIGIN, b"/", **fields))


async def read(app, method: str = "POST", into: list[bytes] | None = None, **fields: object) -> int:
    """The status of a streamed response; its body goes into ``into``."""
    async with MemoryTransport(app).stream(Request(method, ORIGIN, b"/", **fields)) as response:
        async for chunk in response:
            if into is not None:
                into.append(chunk)
    return response.status


async def test_the_app_sees_what_a_server_would_tell_it() -> None:
    """Path, query, headers, body, addresses, state and the extension that makes `CancelOnDisconnect` cheap."""
    seen = {}

    async def app(scope, receive, send) -> None:
        seen.update(scope, received=await receive())
        scope["state"]["mine"] = 2
        await send(start())
        await send(body(b"ok"))

    state = {"shared": [1]}
    transport = MemoryTransport(app, state=state)
    request = Request("PUT", ORIGIN, b"/a%20b/%C3%A4?q=%20", ((b"X-Y", b" v "),), b"content")
    response = await transport.send(request)
    assert (response.status, response.body) == (200, b"ok")
    assert seen["type"] == "http"
    assert (seen["method"], seen["path"], seen["raw_path"]) == ("PUT", "/a b/ä", b"/a%20b/%C3%A4")
    assert (seen["query_string"], seen["root_path"], seen["http_version"]) == (b"q=%20", "", "1.1")
    assert seen["headers"] == [(b"host", b"agent"), (b"x-y", b"v"), (b"content-length", b"7")]
    assert (seen["scheme"], seen["server"]) == ("http", ("agent", 80))
    assert seen["client"][0] == "127.0.0.1"
    assert seen["received"] == {"type": "http.request", "body": b"content", "more_body": False}
    assert await seen["extensions"][DISCONNECT_EXTENSION]() is None
    assert seen["state"]["shared"] is state["shared"]
    assert state == {"shared": [1]}


async def test_heads_are_those_of_a_socket() -> None:
    """Names are lower-case, values stripped, the length is there when it is known, connection headers are not."""
    head = start(201, (b"X-Y", b" v "), (b"Connection", b"close"), (b"Transfer-Encoding", b"chunked"))
    response = await ask(answers(head, body(b"12")))
    assert (response.status, response.raw_headers) == (201, ((b"x-y", b"v"), (b"content-length", b"2")))
    chunked = await ask(answers(start(), body(b"1", True), body(b"2")))
    assert (chunked.raw_headers, chunked.body) == ((), b"12")
    assert (await ask(answers(start(), body(bytearray(b"1"), True), body(memoryview(b"2"))))).body == b"12"


@pytest.mark.parametrize(
    ("method", "status", "headers", "expected"),
    [
        ("HEAD", 200, (), ((b"content-length", b"5"),)),
        ("HEAD", 200, ((b"content-length", b"99"),), ((b"content-length", b"99"),)),
        ("GET", 204, (), ()),
        ("GET", 304, ((b"content-length", b"5"),), ((b"content-length", b"5"),)),
    ],
)
async def test_responses_without_a_body_have_none(method: str, status: int, headers, expected) -> None:
    """Whatever the app sends along."""
    response = await ask(answers(start(status, *headers), body(b"hello")), method)
    assert (response.status, response.body, response.raw_headers) == (status, b"", expected)
    chunks: list[bytes] = []
    assert await read(answers(start(status, *headers), body(b"hello")), method, chunks) == status
    assert chunks == []


@pytest.mark.parametrize(
    "app",
    [
        answers(error=ValueError("before")),
        answers(start(), error=ValueError("head only")),
        answers(),
        answers(start()),
        answers(body(b"x")),
        answers(start(99)),
        answers(start("200")),
        answers(start(200, (b"x", b"a\r\nb: c"))),
        answers(start(200, ("x", "y"))),
        answers(start(200, (b"content-length", b"x"))),
        answers(start(200, (b"content-length", b"3")), body(b"1234")),
        answers(start(), start(), body()),
        answers(start(), body("text")),
        answers({"type": "http.response.trailers"}),
    ],
)
async def test_an_app_that_fails_before_its_body_gives_a_500(app, caplog) -> None:
    """Also one that says nothing, or nothing that could be sent. What it raised is in the log."""
    with caplog.at_level(logging.ERROR, "gym_trio"):
        response = await ask(app)
        chunks: list[bytes] = []
        assert await read(app, into=chunks) == 500
    assert (response.status, response.text, b"".join(chunks)) == (500, "Internal Server Error\n", response.body)
    assert response.headers["content-length"] == str(len(response.body))
    assert (await ask(app, "HEAD")).body == b""


@pytest.mark.parametrize(
    "app",
    [
        answers(start(), body(b"1", True), error=ValueError("after")),
        answers(start(), body(b"1", True)),
        answers(start(200, (b"content-length", b"3")), body(b"1", True), body(b"2")),
        answers(start(200, (b"content-length", b"3")), body(b"1", True), body(b"234")),
        answers(start(), body(b"1", True), body("text")),
    ],
)
async def test_an_app_that_fails_after_its_body_began_is_a_drop(app) -> None:
    """A response of another length than announced too: nothing that is not whole is passed off as whole."""
    with pytest.raises(PeerDropped) as caught:
        await ask(app)
    assert caught.value.delivery is Delivery.POSSIBLY_DELIVERED
    chunks: list[bytes] = []
    with pytest.raises(PeerDropped):
        await read(app, into=chunks)
    assert b"".join(chunks).startswith(b"1")


async def test_an_app_that_fails_after_its_response_has_answered(caplog) -> None:
    """The client has what it asked for; the failure is logged."""
    app = answers(start(), body(b"done"), error=ValueError("cleanup"))
    assert (await ask(app)).body == b"done"
    assert await read(app) == 200
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError, ValueError]


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit(3)])
async def test_what_ends_a_program_is_not_an_answer(error: BaseException) -> None:
    """It reaches the sender, in whose task the app runs."""
    with pytest.raises(type(error)):
        await ask(answers(error=error))


async def test_a_response_that_is_too_large_is_refused() -> None:
    """As over a socket; the app finds that its client has gone."""
    raised = []

    async def app(scope, receive, send) -> None:
        await send(start())
        for _ in range(10):
            try:
                await send(body(b"x" * 10, True))
            except ConnectionError as exc:
                raised.append(exc)
                assert await receive() == {"type": "http.request", "body": b"", "more_body": False}
                assert await receive() == {"type": "http.disconnect"}
        await send(body())

    with pytest.raises(ProtocolError, match="25 bytes"):
        await MemoryTransport(app, max_body_bytes=25).send(Request("POST", ORIGIN, b"/"))
    assert len(raised) >= 1
    async with MemoryTransport(app, max_body_bytes=25).stream(Request("POST", ORIGIN, b"/")) as response:
        assert sum([len(chunk) async for chunk in response]) == 100


async def test_each_call_has_a_checkpoint() -> None:
    """A loop of requests to an app that never waits can be cancelled, and lets others run."""
    calls = 0

    async def app(scope, receive, send) -> None:
        nonlocal calls
        calls += 1
        await send(start())
        await send(body())

    transport = MemoryTransport(app)
    with trio.move_on_after(0.05) as scope:
        while True:
            await transport.send(Request("GET", ORIGIN, b"/"))
    assert scope.cancelled_caught
    calls = 0
    with trio.CancelScope() as scope:
        scope.cancel()
        await transport.send(Request("GET", ORIGIN, b"/"))
    assert calls == 0


async def test_an_endless_response_can_be_cancelled() -> None:
    """Each message before the last is a checkpoint."""

    async def app(scope, receive, send) -> None:
        await send(start())
        while True:
            await send(body(b"", True))

    with trio.move_on_after(0.05) as scope:
        await ask(app)
    assert scope.cancelled_caught


def beneath_another(app):
    """`CancelOnDisconnect`, but not as the outermost layer."""
    layer = CancelOnDisconnect(app)

    async def outermost(scope, receive, send) -> None:
        await layer(scope, receive, send)

    return outermost


@pytest.mark.parametrize("layer", [lambda app: app, CancelOnDisconnect, beneath_another])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancelled_sender_takes_its_handler_along(layer, streamed: bool) -> None:
    """The handler's own cleanup has ended when the cancellation arrives at the sender."""
    events = []

    async def app(scope, receive, send) -> None:
        try:
            await receive()
            await send(start())
            await send(body(b"x", True))
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            events.append("cleaned up")

    with trio.CancelScope() as scope:

        async def watch() -> None:
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            try:
                await (read(layer(app)) if streamed else ask(layer(app)))
            except trio.Cancelled:
                events.append("sender")
                raise
    assert events == ["cleaned up", "sender"]


async def test_receive_waits_behind_the_body_and_then_says_that_the_exchange_is_over() -> None:
    """A task that waits for the disconnect wakes when the response is complete, and not before."""
    order = []

    async def app(scope, receive, send) -> None:
        async def watch() -> None:
            order.append((await receive())["type"])

        await receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await trio.testing.wait_all_tasks_blocked()
            order.append("answering")
            await send(start())
            await send(body(b"x"))
        order.append((await receive())["type"])

    assert (await ask(app)).body == b"x"
    assert order == ["answering", "http.disconnect", "http.disconnect"]


async def test_bodies_in_parts_are_pulled_by_the_app() -> None:
    """As it asks for them, closed at the end, and closed too when it does not ask for all."""
    events: list[str] = []

    async def parts() -> AsyncIterator[bytes]:
        try:
            for part in (b"1", b"2", b"3"):
                events.append(part.decode())
                yield part
        finally:
            events.append("closed")

    async def reader(scope, receive, send) -> None:
        got = b""
        while (message := await receive())["more_body"]:
            got += message["body"]
            events.append("got")
        await send(start())
        await send(body(got))

    assert (await ask(reader, body=parts())).body == b"123"
    assert events == ["1", "got", "2", "got", "3", "got", "closed"]
    del events[:]

    async def hasty(scope, receive, send) -> None:
        await receive()
        await send(start(413))
        await send(body())

    assert (await ask(hasty, body=parts())).status == 413
    assert events == ["1", "closed"]
    assert await read(hasty, body=parts()) == 413


async def test_an_error_of_the_bodys_source_reaches_the_sender_as_it_is() -> None:
    """The app sees a client that has gone."""
    types = []

    async def parts() -> AsyncIterator[bytes]:
        yield b"1"
        raise KeyError("mine")

    async def app(scope, receive, send) -> None:
        for _ in range(3):
            types.append((await receive())["type"])
            if types[-1] == "http.disconnect":
                return

    for way in (ask, read):
        del types[:]
        with pytest.raises(KeyError, match="mine"):
            await way(app, body=parts())
        assert types == ["http.request", "http.disconnect"]


async def test_a_streamed_response_goes_at_the_readers_pace() -> None:
    """One chunk is handed over at a time; the app's next one waits."""
    sent = []

    async def app(scope, receive, send) -> None:
        await send(start(200, (b"content-type", b"text/event-stream")))
        for number in range(5):
            await send(body(b"%d" % number, True))
            sent.append(number)
        await send(body(b"end"))

    async with MemoryTransport(app).stream(Request("GET", ORIGIN, b"/")) as response:
        await trio.testing.wait_all_tasks_blocked()
        assert (response.status, response.headers["content-type"], sent) == (200, "text/event-stream", [])
        assert await anext(response) == b"0"
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [0]
        assert b"".join([chunk async for chunk in response]) == b"1234end"


async def test_leaving_a_stream_early_cancels_the_handler() -> None:
    """Its cleanup has ended when the block has; an iterator kept beyond it raises."""
    events = []

    async def app(scope, receive, send) -> None:
        try:
            await send(start())
            while True:
                await send(body(b"x", True))
        finally:
            events.append("handler")

    async with MemoryTransport(app).stream(Request("GET", ORIGIN, b"/")) as response:
        assert await anext(response) == b"x"
    assert events == ["handler"]
    with pytest.raises(TransportError, match="left"):
        await anext(response)


async def test_what_an_app_does_after_its_response_is_waited_for() -> None:
    """A background task of the app is neither lost nor cancelled by a reader that has everything."""
    events = []

    async def app(scope, receive, send) -> None:
        await send(start())
        await send(body(b"x"))
        await trio.testing.wait_all_tasks_blocked()
        events.append("background")

    await ask(app)
    await read(app)
    assert events == ["background"] * 2


async def test_an_exception_in_a_streams_block_comes_out_as_it_is() -> None:
    """Not wrapped in a group, with the handler cancelled."""
    with pytest.raises(KeyError, match="mine"):
        async with MemoryTransport(answers(start(), body(b"x", True), body())).stream(Request("GET", ORIGIN, b"/")):
            raise KeyError("mine")


async def test_on_sent_is_called_right_before_the_app() -> None:
    """Once, not for a request that was refused, and its error calls no app."""
    order = []

    async def app(scope, receive, send) -> None:
        order.append("app")
        await send(start())
        await send(body())

    def refuse() -> None:
        raise KeyError("mine")

    for way in (ask, read):
        await way(app, on_sent=lambda: order.append("sent"))
        with pytest.raises(KeyError, match="mine"):
            await way(app, on_sent=refuse)
        with pytest.raises(UsageError):
            await way(app, headers=((b"x", b"\n"),), on_sent=lambda: order.append("sent"))
    assert order == ["sent", "app"] * 2


async def test_a_closed_transport_takes_no_request() -> None:
    """What runs goes on."""
    transport = MemoryTransport(answers(start(), body()))
    await transport.aclose()
    await transport.aclose()
    with pytest.raises(TransportError, match="closed") as caught:
        await transport.send(Request("GET", ORIGIN, b"/"))
    assert caught.value.delivery is Delivery.NOT_SENT


async def test_what_is_kept_per_target_is_bounded() -> None:
    """However many rollout ids pass through a path."""
    transport = MemoryTransport(answers(start(), body()))
    for number in range(3000):
        await transport.send(Request("GET", ORIGIN, b"/ng-rollout/%d" % number))
    assert len(transport._lines) <= 1024


@contextmanager
def counted_steps() -> Iterator[list[trio.lowlevel.Task]]:
    """The task of each step that is made in the block."""
    steps: list[trio.lowlevel.Task] = []

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            steps.append(task)

    counting = Steps()
    trio.lowlevel.add_instrument(counting)
    try:
        yield steps
    finally:
        trio.lowlevel.remove_instrument(counting)


async def test_a_call_costs_one_step_of_the_senders_task() -> None:
    """The checkpoint, and nothing else: no task, no nursery, no second wait."""
    transport = MemoryTransport(answers(start(), body(b"{}")))
    request = Request("POST", ORIGIN, b"/", ((b"content-type", b"application/json"),), b"{}")
    await transport.send(request)
    with counted_steps() as steps:
        for _ in range(100):
            await transport.send(request)
    assert steps == [trio.lowlevel.current_task()] * 100


@pytest.mark.parametrize("parked", [True, False])
@pytest.mark.parametrize("way", [ask, read])
async def test_cancellation_at_every_step_ends_the_app(cancel_at_step, way, parked: bool) -> None:
    """Whatever the sender waits for, nothing of the app runs on."""
    running = 0

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            yield b"x"

    async def app(scope, receive, send) -> None:
        nonlocal running
        running += 1
        try:
            while (await receive()).get("more_body"):
                pass
            await send(start())
            for _ in range(3):
                await send(body(b"x", True))
            await send(body())
        finally:
            running -= 1

    for step in range(1, 100):
        with cancel_at_step(step, parked=parked) as cancelling:
            await way(app, body=parts())
        assert running == 0
        if cancelling.steps < step and not cancelling.scope.cancelled_caught:
            break
    assert 3 < step < 99


def asking(inner: MemoryTransport, times: float, made: list[int]):
    """An app that asks ``inner`` ``times`` times before it answers; ``made`` gets the number of each request."""

    async def app(scope, receive, send) -> None:
        number = 0
        while number < times:
            made.append(number)
            await inner.send(Request("GET", ORIGIN, b"/"))
            number += 1
        await send(start())
        await send(body())

    return app


async def test_what_is_called_from_outside_gives_way_each_time() -> None:
    """Also when what it calls makes requests of its own: no count outlives the request it was made for."""
    made: list[int] = []
    transport = MemoryTransport(asking(MemoryTransport(answers(start(), body())), 3, made))
    for _ in range(5):
        with trio.testing.assert_checkpoints():
            await transport.send(Request("GET", ORIGIN, b"/"))
    assert len(made) == 15


@pytest.mark.parametrize("depth", [1, 2])
async def test_of_the_requests_within_one_every_eighth_gives_way(depth: int) -> None:
    """However deep they are: 64 of them are eight steps of the task, with one for the outermost."""
    made: list[int] = []
    app = asking(MemoryTransport(answers(start(), body())), 64 if depth == 1 else 63, made)
    if depth == 2:
        app = asking(MemoryTransport(app), 1, [])
    with counted_steps() as steps:
        await MemoryTransport(app).send(Request("GET", ORIGIN, b"/"))
    assert steps == [trio.lowlevel.current_task()] * 9


async def test_each_request_within_one_can_be_cancelled() -> None:
    """What has been cancelled makes no further request, whichever it is, and an endless loop of them ends."""
    inner = MemoryTransport(answers(start(), body()))
    for last in range(20):
        made: list[int] = []

        class Counted(list):
            def append(self, number: int, *, made=made, last=last) -> None:
                made.append(number)
                if number == last:
                    scope.cancel()

        with trio.CancelScope() as scope:
            await MemoryTransport(asking(inner, float("inf"), Counted())).send(Request("GET", ORIGIN, b"/"))
        assert (scope.cancelled_caught, len(made)) == (True, last + 1)
    with trio.move_on_after(0.05) as scope:
        await MemoryTransport(asking(inner, float("inf"), [])).send(Request("GET", ORIGIN, b"/"))
    assert scope.cancelled_caught


class AtOnce(DirectApp):
    """An app that answers directly, and with the same in messages where it is called. ``ways`` has how it was asked."""

    def __init__(self, *answer: Any, wants_call: bool = False) -> None:
        self.answer = answer
        self.ways: list[str] = []
        self.bodies: list[bytes] = []
        self.wants_call = wants_call
        self.failure: BaseException | None = None

    async def __call__(self, scope, receive, send) -> None:
        self.ways.append("called")
        self.bodies.append((await receive())["body"])
        status, headers, content = self.answer
        await send(start(status, *headers))
        await send(body(content))

    def find_direct(self, method: str, path: str) -> DirectRoute | None:
        return DirectRoute(self.direct, {"path": path}) if method == "POST" and path.startswith("/direct") else None

    def direct(self, headers, path_params, content):
        self.ways.append("asked")
        if self.wants_call:
            return None
        self.bodies.append(content)
        self.headers, self.path_params = headers, path_params
        path_params["path"] += " was changed"  # which the next request does not see
        return self.give()

    async def give(self) -> Any:
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        return self.answer


def post(path: bytes = b"/direct", content: Any = b"question", **fields: Any) -> Request:
    return Request("POST", ORIGIN, path, body=content, **fields)


async def test_an_app_that_answers_directly_is_given_headers_path_and_body() -> None:
    """It is not called; the headers are those of a scope, and what it changes is its own."""
    app = AtOnce(201, ((b"X-Y", b" v "),), b"answer")
    transport = MemoryTransport(CancelOnDisconnect(app))
    for _ in range(2):
        response = await transport.send(post(b"/direct/a%20b?q", headers=((b"X-Y", b" v "),)))
        assert (response.status, response.body) == (201, b"answer")
        assert response.raw_headers == ((b"x-y", b"v"), (b"content-length", b"6"))
        assert app.headers == [(b"host", b"agent"), (b"x-y", b"v"), (b"content-length", b"8")]
        assert app.path_params == {"path": "/direct/a b was changed"}
    assert (app.ways, app.bodies) == (["asked"] * 2, [b"question"] * 2)


@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("status", [200, 204, 304, 503, 99, 1000, "200"])
@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"X-Y", b" v "), (b"connection", b"close")),
        ((b"content-length", b"5"),),
        ((b"x", b"a\nb"),),
        (("x", "y"),),
    ],
)
@pytest.mark.parametrize("content", [b"", b"hello", b"longer than that"])
async def test_a_direct_answer_is_that_of_its_messages(method: str, status: int, headers, content: bytes) -> None:
    """Status, headers and body, or the same refusal: by the limit, by a length that is not kept, by a bad header."""
    seen = []
    for path in (b"/direct", b"/messages"):
        app = AtOnce(status, headers, content)
        transport = MemoryTransport(app, max_body_bytes=10)
        try:
            response = await transport.send(Request(method, ORIGIN, path, body=b"question"))
            seen.append((response.status, response.raw_headers, response.body))
        except (PeerDropped, ProtocolError) as error:
            seen.append((type(error), str(error), error.delivery))
        assert app.ways == ["asked" if method == "POST" and path == b"/direct" else "called"]
    assert seen[0] == seen[1]


async def parts_of_a_body() -> AsyncIterator[bytes]:
    yield b"part"


async def test_an_app_is_called_where_it_does_not_answer_directly() -> None:
    """Because it wants to be, because of the path, of a body in parts, of a layer in between, or for a stream."""

    async def layer(scope, receive, send) -> None:
        await app(scope, receive, send)

    app = AtOnce(200, (), b"", wants_call=True)
    await MemoryTransport(app).send(post())
    assert app.ways == ["asked", "called"]
    app = AtOnce(200, (), b"")
    await MemoryTransport(app).send(post(b"/other"))
    await MemoryTransport(app).send(post(content=parts_of_a_body()))
    await MemoryTransport(layer).send(post())
    async with MemoryTransport(app).stream(post()) as response:
        assert response.status == 200
    assert (app.ways, app.bodies) == (["called"] * 4, [b"question", b"part", b"question", b"question"])


async def test_a_direct_answer_lets_go_of_the_body() -> None:
    """As when it is received; a request that is to be sent again keeps it, and one that the app is called for."""
    app = AtOnce(200, (), b"")
    for keeps_body in (True, False):
        request = post(keeps_body=keeps_body)
        await MemoryTransport(app).send(request)
        assert request.body == (b"question" if keeps_body else b"")
    app = AtOnce(200, (), b"", wants_call=True)
    await MemoryTransport(app).send(post(keeps_body=False))
    assert app.bodies == [b"question"]


async def test_a_direct_answer_that_fails_is_a_500(caplog) -> None:
    """What was raised is in the log, with who was asked, as of a called one; what ends a program reaches the sender."""

    async def layer(scope, receive, send) -> None:
        await app.give()

    app = AtOnce(200, (), b"")
    app.failure = ValueError("mine")
    for asked in (app, layer):
        response = await MemoryTransport(asked).send(post(b"/direct%20it/%C3%A4?key=secret"))
        assert (response.status, response.text) == (500, "Internal Server Error\n")
    told = [(record.message, record.exc_info[0]) for record in caplog.records]
    assert told == [("POST /direct it/ä failed", ValueError)] * 2
    app.failure = KeyboardInterrupt("stop")
    with pytest.raises(KeyboardInterrupt):
        await MemoryTransport(app).send(post())


@pytest.mark.parametrize("parked", [True, False])
async def test_cancellation_at_every_step_of_a_direct_answer(cancel_at_step, parked: bool) -> None:
    """The request is cut, or answered; the next one is answered whatever was cut."""
    app = AtOnce(200, (), b"answer")
    transport = MemoryTransport(app)
    answered = 0
    for step in range(1, 10):
        with cancel_at_step(step, parked=parked) as cancelling:
            await transport.send(post())
            answered += 1
        assert (await transport.send(post())).body == b"answer"
        if cancelling.steps < step and not cancelling.scope.cancelled_caught:
            break
    assert 2 < step < 9
    assert answered >= 1
