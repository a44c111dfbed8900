"""Limits in time: idle connections, slow heads, slow bodies, in both directions."""

from __future__ import annotations

import errno
import logging
import os
import resource
from urllib.parse import urlsplit

import pytest
import trio
from hypercorn.config import Config

from gym_trio.http import ServeLimits, open_server
from gym_trio.http._arrivals import Arrivals
from gym_trio.http._limits import Allowance


def config(**settings) -> Config:
    made = Config()
    made.errorlog = None
    for name, value in settings.items():
        setattr(made, name, value)
    return made


async def test_an_idle_connection_is_closed(connect, recorder) -> None:
    """After the keep-alive time a connection without a request ends, without a word."""
    async with open_server(recorder, config=config(keep_alive_timeout=0.1)) as server:
        async with connect(server.url) as silent, connect(server.url) as used:
            await used.get()
            with trio.fail_after(5):
                assert await silent.rest() == await used.rest() == b""


async def test_its_end_is_seen_although_a_fork_holds_it(connect, recorder, monkeypatch) -> None:
    """Where the app has forked, the child has a copy of each of the server's descriptors for as long as it lives."""
    copies = []
    watch = Arrivals.watch

    def copy_and_watch(arrivals, descriptor, inlet) -> None:
        copies.append(os.dup(descriptor))
        watch(arrivals, descriptor, inlet)

    monkeypatch.setattr(Arrivals, "watch", copy_and_watch)
    async with open_server(recorder, config=config(keep_alive_timeout=0.1)) as server:
        async with connect(server.url) as client:
            await client.get()
            with trio.fail_after(5):
                assert await client.rest() == b""
    for copy in copies:
        os.close(copy)


async def test_a_used_connection_is_kept(connect, recorder) -> None:
    """Each request begins the keep-alive time anew."""
    async with open_server(recorder, config=config(keep_alive_timeout=1.5)) as server:
        async with connect(server.url) as client:
            start = trio.current_time()
            while trio.current_time() < start + 2:
                assert (await client.get()).status == 200


async def test_requests_per_connection(connect, recorder) -> None:
    """hypercorn's keep_alive_max_requests: the last response says that it is the last."""
    async with open_server(recorder, config=config(keep_alive_max_requests=2)) as server, connect(server.url) as client:
        assert "connection" not in (await client.get()).headers
        assert (await client.get()).headers["connection"] == "close"
        assert await client.rest() == b""


async def test_a_slow_head(connect, recorder) -> None:
    """A head that does not arrive in time gets a 408."""
    async with open_server(recorder, limits=ServeLimits(head_seconds=0.1)) as server, connect(server.url) as client:
        await client.send(b"GET / HTTP/1.1\r\nHo")
        with trio.fail_after(5):
            answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")


@pytest.mark.parametrize("buffered", [1, 1000])
async def test_a_slow_body(connect, recorder, buffered) -> None:
    """A body that stops gets a 408, whether it is read before the handler or by it."""
    limits = ServeLimits(transfer_seconds=0.1, buffered_body_bytes=buffered)
    async with open_server(recorder, limits=limits) as server, connect(server.url) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nhello")
        with trio.fail_after(5):
            assert (await client.answer()).status == 408
    assert recorder.seen == []


async def test_a_body_that_trickles(connect, recorder) -> None:
    """A body whose bytes keep coming, too few of them, is cut although no single wait is long."""
    limits = ServeLimits(transfer_seconds=0.3, min_bytes_per_second=1000)
    async with open_server(recorder, limits=limits) as server, connect(server.url) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n")

        async def trickle() -> None:
            while True:
                await client.send(b"x")
                await trio.sleep(0.01)

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trickle)
                assert (await client.answer()).status == 408
                nursery.cancel_scope.cancel()


def test_an_allowance() -> None:
    """Waiting spends it, bytes refill it, and no wait is longer than the first."""
    allowance = Allowance(ServeLimits(transfer_seconds=10, min_bytes_per_second=100))
    assert allowance.seconds() == 10
    allowance.spend(4, 0)
    assert allowance.seconds() == 6
    allowance.spend(1, 300)
    assert allowance.seconds() == 8
    allowance.spend(0, 10_000)
    assert allowance.seconds() == 10


@pytest.mark.parametrize("name", ["head_bytes", "body_bytes", "head_seconds", "connections"])
def test_limits_are_positive(name) -> None:
    """A limit of zero would refuse everything, so it is refused."""
    with pytest.raises(ValueError, match=name):
        ServeLimits(**{name: 0})


class Told(logging.Handler):
    """Lets a test wait for a line of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.event = trio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "cannot accept" in record.getMessage():
            self.event.set()


async def test_a_machine_without_file_descriptors_serves_later(connect, recorder) -> None:
    """A connection that cannot be accepted now waits in the backlog; those that are there are served meanwhile."""
    told, log = Told(), logging.getLogger("gym_trio.http")
    log.addHandler(told)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        async with open_server(recorder) as server, connect(server.url) as early:
            await early.get()
            with trio.socket.socket() as late, trio.fail_after(10):
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
                await late.connect(("127.0.0.1", urlsplit(server.url).port))
                await told.event.wait()
                assert (await early.get()).status == 200
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                await late.send(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
                assert (await late.recv(100)).startswith(b"HTTP/1.1 200 ")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        log.removeHandler(told)


async def test_a_machine_that_watches_no_more_sockets_serves_later(connect, recorder, monkeypatch, caplog) -> None:
    """The connection that is one too many is refused; those that are there, and the next, are served."""

    def refuse(*_) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with open_server(recorder) as server, connect(server.url) as early:
        await early.get()
        with monkeypatch.context() as patched:
            patched.setattr(Arrivals, "watch", refuse)
            async with connect(server.url) as refused:
                assert (await refused.answer()).status == 503
                assert await refused.rest() == b""
        assert (await early.get()).status == 200
        async with connect(server.url) as late:
            assert (await late.get()).status == 200
    assert "cannot serve a connection" in caplog.text
