"""The order and the bounds of a shutdown, whoever starts it and whatever goes wrong."""

from __future__ import annotations

import os
import socket
from functools import partial

import pytest
import trio
import trio.testing
from hypercorn.config import Config, Sockets

from gym_trio import CancelOnDisconnect
from gym_trio.errors import GymError, ServerStartError, UsageError
from gym_trio.http import ServeLimits, open_server, serve
from gym_trio.http._idle import IdleConnections

GET = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"
START = {"type": "http.response.start", "status": 200, "headers": []}


class Scene:
    """An app that writes down what happens to it: startup, requests by path, shutdown."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.release = trio.Event()
        self.waiting = 0

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            await self.lifespan(receive, send)
        else:
            await self.http(scope["path"], receive, send)

    async def lifespan(self, receive, send) -> None:
        await receive()
        self.log.append("startup")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.log.append("shutdown")
        await send({"type": "lifespan.shutdown.complete"})

    async def http(self, path, receive, send) -> None:
        self.log.append(f"began {path}")
        self.waiting += 1
        try:
            if path == "/wait":
                await self.release.wait()
            elif path == "/hang":
                await trio.sleep_forever()
            elif path == "/flood":
                await send(START)
                await send({"type": "http.response.body", "body": b"x" * 20_000_000})
        except BaseException:
            self.log.append(f"cut {path}")
            raise
        await send(START)
        await send({"type": "http.response.body", "body": b"done"})
        self.log.append(f"ended {path}")


def config(**settings) -> Config:
    made = Config()
    made.errorlog = None
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def bound_socket() -> tuple[socket.socket, str]:
    sock = socket.create_server(("127.0.0.1", 0))
    return sock, f"http://127.0.0.1:{sock.getsockname()[1]}"


async def start(nursery, app, settings=None, **options):
    """Serve in ``nursery``; gives the scope that cancels it, the event that ends it, and the URL."""
    sock, url = bound_socket()
    stop, scope = trio.Event(), trio.CancelScope()

    async def run(task_status) -> None:
        with scope:
            await serve(
                app,
                settings or config(),
                sockets=[sock],
                shutdown_trigger=stop.wait,
                task_status=task_status,
                **options,
            )

    urls = await nursery.start(run)
    assert urls == [url]
    return scope.cancel, stop.set, url


@pytest.mark.parametrize("how", ["trigger", "cancelled"])
async def test_the_order(nursery, connect, until, how) -> None:
    """No new connections, idle ones closed at once, requests at hand finished with connection: close, then lifespan."""
    scene = Scene()
    async with trio.open_nursery() as serving:
        cancel, stop, url = await start(serving, scene)
        async with connect(url) as idle, connect(url) as busy, connect(url) as silent:
            await idle.get("/quick")
            await busy.send(b"GET /wait HTTP/1.1\r\nHost: t\r\n\r\n" + GET)
            await until(lambda: "began /wait" in scene.log)
            (cancel if how == "cancelled" else stop)()
            assert await idle.rest() == b""
            assert await silent.rest() == b""
            with pytest.raises(OSError, match="connect"):
                async with connect(url):
                    pass
            assert scene.log == ["startup", "began /quick", "ended /quick", "began /wait"]
            scene.release.set()
            answer = await busy.answer()
            assert (answer.body, answer.headers["connection"]) == (b"done", "close")
            assert await busy.rest() == b""
    assert scene.log[-2:] == ["ended /wait", "shutdown"]


async def test_a_response_that_is_cut_does_not_look_complete(connect) -> None:
    """Where the end of the connection would be its end, the client sees an error."""

    async def app(scope, receive, send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await trio.sleep_forever()

    async with trio.open_nursery() as serving:
        _, stop, url = await start(serving, app, config(graceful_timeout=0.1))
        async with connect(url) as client:
            await client.send(b"GET / HTTP/1.0\r\n\r\n")
            await client._until(b"half")
            stop()
            with pytest.raises(trio.BrokenResourceError), trio.fail_after(10):
                await client.read_to_the_end()


async def test_a_false_alarm_keeps_no_idle_connection(nursery, connect, monkeypatch) -> None:
    """Not even one that comes in the moment in which idle connections are told to end."""
    end_all = IdleConnections.end_all

    def wake_and_end_all(idle) -> None:
        for wire in idle._since:
            wire.arrived()
            wire.wake()
        end_all(idle)

    monkeypatch.setattr(IdleConnections, "end_all", wake_and_end_all)
    _, stop, url = await start(nursery, Scene(), config(graceful_timeout=60))
    async with connect(url) as client:
        await client.get()
        await trio.testing.wait_all_tasks_blocked()
        stop()
        with trio.fail_after(10):
            assert await client.rest() == b""


@pytest.mark.parametrize("how", ["trigger", "cancelled", "both"])
async def test_the_grace(connect, until, how) -> None:
    """Handlers that do not end within the grace are cancelled, before the lifespan shuts down."""
    scene = Scene()
    async with trio.open_nursery() as serving:
        cancel, stop, url = await start(serving, scene, config(graceful_timeout=0.3))
        async with connect(url) as client:
            await client.send(b"GET /hang HTTP/1.1\r\nHost: t\r\n\r\n")
            await until(lambda: "began /hang" in scene.log)
            started = trio.current_time()
            if how != "cancelled":
                stop()
            if how != "trigger":
                await trio.testing.wait_all_tasks_blocked()
                cancel()
                cancel()
            assert await client.rest() == b""
            assert 0.3 <= trio.current_time() - started < 5
    assert scene.log == ["startup", "began /hang", "cut /hang", "shutdown"]


async def test_a_client_that_never_reads(connect, until) -> None:
    """A response that nobody reads is cut when the grace ends."""
    scene = Scene()
    async with trio.open_nursery() as serving:
        _, stop, url = await start(serving, scene, config(graceful_timeout=0.2))
        async with connect(url) as client:
            await client.send(b"GET /flood HTTP/1.1\r\nHost: t\r\n\r\n")
            await until(lambda: "began /flood" in scene.log)
            with trio.fail_after(5):
                stop()
                await until(lambda: "shutdown" in scene.log)
    assert scene.log == ["startup", "began /flood", "cut /flood", "shutdown"]


async def test_a_request_that_is_arriving(connect, until) -> None:
    """A request of which a part has arrived is let finish within the grace."""
    scene = Scene()
    async with trio.open_nursery() as serving:
        _, stop, url = await start(serving, scene)
        async with connect(url) as client:
            await client.send(b"POST /half HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhel")
            await trio.testing.wait_all_tasks_blocked(0.05)
            stop()
            await trio.testing.wait_all_tasks_blocked(0.05)
            await client.send(b"lo")
            answer = await client.answer()
            assert (answer.body, answer.headers["connection"]) == (b"done", "close")
    assert scene.log == ["startup", "began /half", "ended /half", "shutdown"]


async def test_cancelled_before_the_app_has_started() -> None:
    """A startup that hangs does not outlive its caller."""
    ended = []

    async def app(scope, receive, send) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(True)

    sock, _ = bound_socket()
    with trio.move_on_after(0.05) as scope:
        await serve(app, config(), sockets=[sock])
    assert scope.cancelled_caught
    assert ended == [True]
    assert sock.fileno() == -1


async def test_triggered_before_the_app_has_started(nursery) -> None:
    """A trigger during startup waits for the startup, and then shuts down in order."""
    scene = Scene()
    go_on = trio.Event()

    async def app(scope, receive, send) -> None:
        await go_on.wait()
        await scene(scope, receive, send)

    sock, _ = bound_socket()

    async def trigger() -> None:
        go_on.set()

    with trio.fail_after(5):
        await serve(app, config(), sockets=[sock], shutdown_trigger=trigger)
    assert scene.log == ["startup", "shutdown"]


@pytest.mark.parametrize("kind", ["raises", "says so"])
async def test_startup_fails(kind) -> None:
    """A lifespan whose startup fails ends the server with an error that names it; nothing stays bound."""

    async def app(scope, receive, send) -> None:
        await receive()
        if kind == "says so":
            await send({"type": "lifespan.startup.failed", "message": "no model"})
        raise ValueError("no model")

    sock, url = bound_socket()
    with pytest.raises(ServerStartError, match="no model") as caught:
        await serve(app, config(), sockets=[sock])
    assert caught.value.server == url
    assert sock.fileno() == -1


async def test_startup_takes_too_long() -> None:
    """Startup has a bound."""

    async def app(scope, receive, send) -> None:
        await trio.sleep_forever()

    with pytest.raises(ServerStartError):
        await serve(app, config(startup_timeout=0.05, bind="127.0.0.1:0"))


@pytest.mark.parametrize("how", ["trigger", "cancelled"])
async def test_shutdown_takes_too_long(how) -> None:
    """The lifespan's shutdown is cut at its bound, and the server says so."""
    cut = []

    async def app(scope, receive, send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            await trio.sleep_forever()
        finally:
            cut.append(True)

    with pytest.RaisesGroup(GymError, flatten_subgroups=True):
        async with trio.open_nursery() as serving:
            cancel, stop, _ = await start(serving, app, config(shutdown_timeout=0.1))
            started = trio.current_time()
            (cancel if how == "cancelled" else stop)()
    assert cut == [True]
    assert trio.current_time() - started < 5


@pytest.mark.parametrize("when", ["at shutdown", "while serving", "says so"])
async def test_the_lifespan_raises(connect, when) -> None:
    """A lifespan that fails after startup: requests are served to the end, and then the server says what failed."""
    failing = trio.Event()

    async def app(scope, receive, send) -> None:
        if scope["type"] == "http":
            await send(START)
            await send({"type": "http.response.body", "body": b"served"})
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        if when == "while serving":
            failing.set()
            raise ValueError("sessions lost")
        await receive()
        if when == "says so":
            await send({"type": "lifespan.shutdown.failed", "message": "sessions lost"})
            return
        raise ValueError("sessions lost")

    with pytest.raises(GymError, match="sessions lost"):
        async with open_server(app) as server, connect(server.url) as client:
            assert (await client.get()).body == b"served"


@pytest.mark.parametrize("when", ["at once", "after the event", "after startup"])
async def test_the_lifespan_returns_early(connect, when) -> None:
    """An app that leaves its lifespan early is served all the same, and ends without an error."""

    async def app(scope, receive, send) -> None:
        if scope["type"] == "http":
            await send(START)
            await send({"type": "http.response.body", "body": b"served"})
            return
        if when != "at once":
            await receive()
        if when == "after startup":
            await send({"type": "lifespan.startup.complete"})

    async with open_server(app) as server, connect(server.url) as client:
        assert (await client.get()).body == b"served"


async def test_the_lifespan_s_state(connect) -> None:
    """What the lifespan puts into its state is in the scope of each request, as a copy."""
    found = []

    async def app(scope, receive, send) -> None:
        if scope["type"] == "http":
            found.append(dict(scope["state"]))
            scope["state"]["mine"] = True
            await send(START)
            await send({"type": "http.response.body", "body": b""})
            return
        await receive()
        scope["state"]["model"] = "loaded"
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async with open_server(app) as server, connect(server.url) as client:
        await client.get()
        await client.get()
    assert found == [{"model": "loaded"}] * 2


async def test_open_server_raises_what_its_block_raises(recorder) -> None:
    """The block's own exception comes out as it is."""
    with pytest.raises(KeyError, match="mine"):
        async with open_server(recorder):
            raise KeyError("mine")
    with trio.move_on_after(0) as scope:
        async with open_server(recorder):
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_open_server_on_ipv6(connect, recorder) -> None:
    """An IPv6 host is served, and its URL has brackets."""
    async with open_server(recorder, host="::1") as server, connect(server.url) as client:
        assert server.url == f"http://[::1]:{server.port}"
        assert (await client.get()).status == 200


async def test_open_server_on_a_taken_port(recorder) -> None:
    """A port that is taken is an OSError, not a group."""
    async with open_server(recorder) as server:
        with pytest.raises(OSError, match="in use"):
            async with open_server(recorder, port=server.port):
                pass


async def test_a_descriptor(connect, recorder) -> None:
    """A bound socket that was inherited as a descriptor is served by hypercorn's fd:// name."""
    sock, url = bound_socket()
    stop = trio.Event()
    descriptor = os.dup(sock.fileno())
    sock.close()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, recorder, config(bind=f"fd://{descriptor}"), shutdown_trigger=stop.wait))
        async with connect(url) as client:
            assert (await client.get()).status == 200
        stop.set()


async def test_a_unix_socket(tmp_path, recorder) -> None:
    """A Unix socket from the configuration is served."""
    path = tmp_path / "socket"
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(partial(serve, recorder, config(bind=f"unix:{path}"), shutdown_trigger=stop.wait))
        assert urls == [f"http://unix:{path}"]
        stream = await trio.open_unix_socket(path)
        async with stream:
            await stream.send_all(GET)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 OK")
        stop.set()


async def test_sockets_of_hypercorn_s(connect, recorder) -> None:
    """hypercorn's own `Sockets` are taken too; HTTP/3 is refused in a sentence."""
    sock, url = bound_socket()
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        run = partial(serve, recorder, config(), sockets=Sockets([], [sock], []), shutdown_trigger=stop.wait)
        await nursery.start(run)
        async with connect(url) as client:
            assert (await client.get()).status == 200
        stop.set()
    datagram = socket.socket(type=socket.SOCK_DGRAM)
    with pytest.raises(UsageError, match="quic_bind"):
        await serve(recorder, config(), sockets=Sockets([], [], [datagram]))
    assert datagram.fileno() == -1


async def test_max_requests(connect, recorder) -> None:
    """hypercorn's max_requests ends the server by itself, in order."""
    sock, url = bound_socket()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, recorder, config(max_requests=2), sockets=[sock]))
        async with connect(url) as client:
            for _ in range(2):
                assert "connection" not in (await client.get()).headers
            assert (await client.get()).headers["connection"] == "close"


async def test_many_clients_at_shutdown(connect, until) -> None:
    """Two hundred clients in mid-request: each gets its answer, the last says so, and nothing is left open."""
    before = len(os.listdir("/proc/self/fd"))
    answers = []

    async def app(scope, receive, send) -> None:
        if scope["type"] == "http":
            await trio.sleep(0.05)
            await send(START)
            await send({"type": "http.response.body", "body": b"ok"})

    async def client(url: str) -> None:
        async with connect(url) as one:
            answer = await one.get()
            answers.append(answer.body)
            while "connection" not in answer.headers:
                try:
                    await one.send(GET)
                    await one._more()
                except (trio.BrokenResourceError, AssertionError):
                    assert one.buffer == b""  # an idle connection that was closed
                    return
                answer = await one.answer()
                answers.append(answer.body)

    async with trio.open_nursery() as nursery:
        async with open_server(CancelOnDisconnect(app)) as server:
            for _ in range(200):
                nursery.start_soon(client, server.url)
            await until(lambda: len(answers) > 300)
    assert set(answers) == {b"ok"}
    assert len(os.listdir("/proc/self/fd")) == before


async def test_the_connection_limit(connect, recorder) -> None:
    """A connection past the limit gets a 503; one that ends makes room."""
    async with open_server(recorder, limits=ServeLimits(connections=2)) as server:
        async with connect(server.url) as first, connect(server.url) as second:
            await first.get()
            await second.get()
            async with connect(server.url) as third:
                assert (await third.answer()).status == 503
                assert await third.rest() == b""
            second.close()
            await trio.testing.wait_all_tasks_blocked(0.02)
            async with connect(server.url) as fourth:
                assert (await fourth.get()).status == 200
