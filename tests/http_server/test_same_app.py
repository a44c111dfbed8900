"""One app, three servers: ours, stock hypercorn in this process, and the command ``hypercorn --worker-class trio``."""

from __future__ import annotations

import importlib.util
import pathlib
import socket
import sys
from contextlib import asynccontextmanager
from functools import partial

import hypercorn.trio
import pytest
import trio
from hypercorn.config import Config

from gym_trio.http import open_server

HERE = pathlib.Path(__file__).parent


def load_app():
    spec = importlib.util.spec_from_file_location("same_app", HERE / "same_app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


@asynccontextmanager
async def ours():
    async with open_server(load_app()) as server:
        yield server.url


@asynccontextmanager
async def stock():
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        run = partial(hypercorn.trio.serve, load_app(), config, shutdown_trigger=stop.wait)
        [url] = await nursery.start(run)
        try:
            yield url
        finally:
            stop.set()


@asynccontextmanager
async def command():
    """The descriptor of a bound socket is handed over, so that no port is guessed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        descriptor = listener.fileno()
        arguments = ["--worker-class", "trio", "--bind", f"fd://{descriptor}", "--error-logfile", "/dev/null"]
        run = partial(
            trio.run_process,
            [sys.executable, "-m", "hypercorn", *arguments, "same_app:app"],
            cwd=HERE,
            pass_fds=[descriptor],
            check=False,
            capture_stdout=True,
            capture_stderr=True,
        )
        async with trio.open_nursery() as nursery:
            process = await nursery.start(run)
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                process.terminate()


@pytest.fixture(params=[ours, stock, command], ids=["ours", "stock", "command"])
def serving(request):
    return request.param


async def test_the_same_answers(serving, connect, until) -> None:
    """Answers, large bodies both ways, streaming, errors, keep-alive and the plain disconnect are the same on all."""
    async with serving() as url:
        async with connect(url) as client:
            answer = await client.post("/echo/a%20b?q=1", b'{"n": 1}', "Content-Type: application/json\r\n")
            assert answer.json() == {"got": {"n": 1}, "query": {"q": "1"}, "path": "/echo/a b"}
            assert (await client.post("/size", b"x" * 300_000)).body == b"300000"
            assert (await client.get("/count")).body == b"".join(b"data: %d\n\n" % number for number in range(5))
            assert len((await client.get("/large")).body) == 3_000_000
            assert (await client.get("/missing")).status == 404
            head = await client.get("/large", method="HEAD")
            assert (head.status, head.headers["content-length"]) == (200, "3000000")
        async with connect(url) as client:
            assert (await client.get("/fail")).status == 500
        async with connect(url) as client:
            assert (await client.get("/background")).body == b"ok"
            with trio.fail_after(10):
                while (await client.get("/log")).json() != ["worked"]:
                    pass
        await leave_hanging(connect, url, b"GET /hang HTTP/1.1\r\nHost: t\r\n\r\n")
        await leave_hanging(connect, url, b"POST /hang HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello")
        async with connect(url) as client:
            assert (await client.get("/hanging")).json() == {"now": 0, "cancelled": 2}


async def leave_hanging(connect, url: str, request: bytes) -> None:
    """Leave while the handler hangs, and wait until it does not any more."""
    with trio.fail_after(20):
        async with connect(url) as watcher:
            async with connect(url) as client:
                await client.send(request)
                while not (await watcher.get("/hanging")).json()["now"]:
                    pass
            while (await watcher.get("/hanging")).json()["now"]:
                pass
