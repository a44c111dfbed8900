"""`CancelOnDisconnect` on servers that know nothing of it: a scripted ``receive``, and stock hypercorn."""

from __future__ import annotations

import pytest
import trio

from gym_trio import CancelOnDisconnect

GONE = {"type": "http.disconnect"}
WHOLE = {"type": "http.request", "body": b"whole", "more_body": False}
HTTP = {"type": "http"}


def part(body: bytes, more: bool = True) -> dict:
    return {"type": "http.request", "body": body, "more_body": more}


class Server:
    """A ``receive`` that gives what the test puts into it, and a ``send`` that keeps what it gets."""

    def __init__(self, *messages: dict) -> None:
        self.put, self._inbox = trio.open_memory_channel(100)
        for message in messages:
            self.put.send_nowait(message)
        self.sent: list[dict] = []
        self.receiving = 0

    async def receive(self) -> dict:
        self.receiving += 1
        assert self.receiving == 1, "two tasks in receive()"
        try:
            return await self._inbox.receive()
        finally:
            self.receiving -= 1

    async def send(self, message: dict) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(message)

    def waiting(self) -> int:
        return self.put.statistics().current_buffer_used

    async def run(self, handler, **options) -> None:
        await CancelOnDisconnect(handler, **options)(HTTP, self.receive, self.send)


async def test_a_handler_that_sleeps(nursery, autojump_clock) -> None:
    """The handler is cancelled when the disconnect arrives, and the call returns quietly."""
    ended = []

    async def handler(scope, receive, send) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    server = Server(WHOLE)
    start = trio.current_time()

    async def leave() -> None:
        await trio.sleep(7)
        await server.put.send(GONE)

    nursery.start_soon(leave)
    await server.run(handler)
    assert ended == [start + 7]


async def test_disconnect_as_the_first_message() -> None:
    """A client that has gone already has no handler started for it."""
    ran = []

    async def handler(scope, receive, send) -> None:
        ran.append(scope)

    await Server(GONE).run(handler)
    assert ran == []


async def test_disconnect_behind_the_body() -> None:
    """A disconnect that is there when the handler starts cancels it at its first checkpoint."""

    async def handler(scope, receive, send) -> None:
        await trio.sleep_forever()

    with trio.fail_after(5):
        await Server(WHOLE, GONE).run(handler)


async def test_disconnect_behind_an_unread_body(autojump_clock) -> None:
    """The body is read ahead of a handler that does not want it, to find the disconnect behind."""

    async def handler(scope, receive, send) -> None:
        await trio.sleep_forever()

    server = Server(*[part(b"x" * 1000) for _ in range(50)], GONE)
    with trio.fail_after(5):
        await server.run(handler)
    assert server.waiting() == 0


async def test_the_handler_gets_the_body_in_order(autojump_clock) -> None:
    """Reading ahead changes nothing in what the handler receives."""
    got = []

    async def handler(scope, receive, send) -> None:
        while True:
            await trio.sleep(1)
            message = await receive()
            got.append(message["body"])
            if not message["more_body"]:
                return

    await Server(part(b"a"), part(b"b"), part(b"c", False)).run(handler)
    assert got == [b"a", b"b", b"c"]


async def test_reading_ahead_is_bounded() -> None:
    """Past the bound, reading pauses until the handler takes something."""
    sizes = []
    server = Server(*[part(b"x" * 10) for _ in range(20)], part(b"", False))

    async def handler(scope, receive, send) -> None:
        await trio.testing.wait_all_tasks_blocked()
        sizes.append(server.waiting())
        await receive()
        await trio.testing.wait_all_tasks_blocked()
        sizes.append(server.waiting())
        while (await receive())["more_body"]:
            pass

    await server.run(handler, read_ahead_bytes=45)
    assert sizes == [16, 15]


async def test_receive_after_the_disconnect() -> None:
    """A handler that waits in receive() is cancelled there; one whose response is complete is told."""
    told = []

    async def waits(scope, receive, send) -> None:
        await receive()
        told.append(await receive())

    await Server(WHOLE, GONE).run(waits)
    assert told == []

    async def asks_when_cancelled(scope, receive, send) -> None:
        try:
            await trio.sleep_forever()
        finally:
            await receive()  # the body, which is there
            told.append(await receive())

    await Server(WHOLE, GONE).run(asks_when_cancelled)
    assert told == []

    async def responds(scope, receive, send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        told.append(await receive())

    server = Server(WHOLE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, responds)
        await trio.testing.wait_all_tasks_blocked()
        await server.put.send(GONE)
    assert told == [GONE]


async def test_a_disconnect_after_the_response(autojump_clock) -> None:
    """Once the response is complete the handler may go on as long as it likes."""
    finished = []

    async def handler(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        await server.put.send(GONE)
        await trio.sleep(10)
        finished.append(True)

    server = Server(WHOLE)
    await server.run(handler)
    assert finished == [True]
    assert len(server.sent) == 2


async def test_a_server_that_announces_the_end_before_the_last_send_returns(autojump_clock) -> None:
    """Stock hypercorn does: the handler is not cancelled, neither in that send nor in what it does afterwards."""
    finished = []
    server = Server(WHOLE)

    async def send(message) -> None:
        if message["type"] == "http.response.body":
            await server.put.send(GONE)
            await trio.sleep(0.1)

    async def handler(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        await trio.sleep(10)
        finished.append(True)

    await CancelOnDisconnect(handler)(HTTP, server.receive, send)
    assert finished == [True]


@pytest.mark.parametrize("more", [False, True])
async def test_a_slow_reader_that_leaves(autojump_clock, more) -> None:
    """A handler that is blocked in a send whose client has gone is cancelled, also in the last one."""
    server = Server(WHOLE)
    ended = []

    async def send(message) -> None:
        if message["type"] == "http.response.body":
            await server.put.send(GONE)
            await trio.sleep_forever()

    async def handler(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await send({"type": "http.response.body", "body": b"", "more_body": more})
        finally:
            ended.append(True)

    with trio.fail_after(60):
        await CancelOnDisconnect(handler)(HTTP, server.receive, send)
    assert ended == [True]


async def test_errors_are_raised_as_they_are() -> None:
    """An error of the handler's passes unwrapped, also a group, also while it is cancelled."""

    async def fails(scope, receive, send) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await Server(WHOLE).run(fails)

    async def fails_as_group(scope, receive, send) -> None:
        raise ExceptionGroup("mine", [KeyError("a"), ValueError("b")])

    with pytest.RaisesGroup(KeyError, ValueError, match="mine"):
        await Server(WHOLE).run(fails_as_group)

    async def fails_when_cancelled(scope, receive, send) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("cleanup")

    with pytest.raises(KeyError, match="cleanup"):
        await Server(WHOLE, GONE).run(fails_when_cancelled)


async def test_an_error_of_the_server_is_raised() -> None:
    """A ``receive`` that fails ends the call with its error."""
    calls = []

    async def receive() -> dict:
        calls.append(None)
        if len(calls) > 1:
            raise OSError("the server's")
        return WHOLE

    async def handler(scope, receive, send) -> None:
        await trio.sleep_forever()

    with pytest.raises(OSError, match="the server's"):
        await CancelOnDisconnect(handler)(HTTP, receive, Server().send)


@pytest.mark.parametrize("gone", [False, True])
async def test_a_cancellation_from_outside_is_never_swallowed(gone) -> None:
    """Cancelled from outside, the call ends cancelled, also when the client goes at the same time."""
    ended = []

    async def handler(scope, receive, send) -> None:
        await trio.sleep_forever()

    server = Server(WHOLE)

    async def call() -> None:
        try:
            await server.run(handler)
            ended.append("returned")
        except trio.Cancelled:
            ended.append("cancelled")
            raise

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        if gone:
            server.put.send_nowait(GONE)
        nursery.cancel_scope.cancel()
    assert ended in (["cancelled"], ["returned"] if gone else ["cancelled"])
    assert nursery.cancel_scope.cancelled_caught or gone


async def test_errors_beside_an_outer_cancellation() -> None:
    """An error in cleanup and the outer cancellation both arrive."""

    async def handler(scope, receive, send) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("cleanup")

    with pytest.RaisesGroup(KeyError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Server(WHOLE).run, handler)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["lifespan", "websocket", "other"])
async def test_other_scopes_pass_through(kind) -> None:
    """The app gets other scopes with the server's own receive and send."""
    calls = []

    async def handler(*call) -> None:
        calls.append(call)

    scope = {"type": kind}
    await CancelOnDisconnect(handler)(scope, "receive", "send")
    assert calls == [(scope, "receive", "send")]


def test_repr() -> None:
    """The layer shows what it wraps."""
    assert repr(CancelOnDisconnect(print)) == f"CancelOnDisconnect({print!r})"


async def test_the_extension(autojump_clock) -> None:
    """A server with the extension is asked, and then nobody waits in receive()."""
    asked = []

    async def ask() -> None:
        asked.append(True)

    async def handler(scope, receive, send) -> None:
        assert receive == server.receive
        await trio.sleep(1)

    server = Server(WHOLE)
    scope = {"type": "http", "extensions": {"gym_trio.cancel_on_disconnect": ask}}
    await CancelOnDisconnect(handler)(scope, server.receive, server.send)
    assert asked == [True]
