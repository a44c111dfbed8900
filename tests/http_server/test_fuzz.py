"""Random damage to requests: nothing crashes, hangs or leaks, and the app sees only what other parsers would see."""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket

import h11
import httptools
import pytest
import trio
from hypercorn.config import Config

from gym_trio.http import ServeLimits
from gym_trio.http._arrivals import open_arrivals
from gym_trio.http._connection import Connection
from gym_trio.http._service import Service

MUTATIONS = 50_000
SEED = 20_261_129
TOGETHER = 100  # connections that are open at the same time

HOST = b"Host: t\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
VALID = [
    b"GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /a?b=c HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"POST /b HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello",
    b"POST /c HTTP/1.1\r\n" + HOST + b"Content-Length: 35\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n",
    b"PUT /d HTTP/1.1\r\n" + HOST + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",
    b"POST /e HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n00a\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
    b"HEAD /f HTTP/1.1\r\n" + HOST + b"X: y\r\nAccept:\t*/* \r\n\r\n",
    b"DELETE http://t/g?h HTTP/1.1\r\n" + HOST + b"Cookie: a=\xe4\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    b"PATCH /i HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    b"\r\nGET /j HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n",
]
EXPECTED = [
    ("GET", b"/", b""),
    ("GET", b"/a?b=c", b""),
    ("POST", b"/b", b"hello"),
    ("POST", b"/c", b"GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n"),
    ("PUT", b"/d", b"hello"),
    ("POST", b"/e", b"abc0123456789"),
    ("HEAD", b"/f", b""),
    ("DELETE", b"/g?h", b""),
    ("OPTIONS", b"*", b""),
    ("PATCH", b"/i", b"ok"),
    ("GET", b"/j", b""),
]
TOKENS = [
    *(bytes([byte]) for byte in b"\r\n\0 \t:;,#%\x7f\x80\xff05aG"),
    b"\r\n",
    b"\r\n\r\n",
    b"\n\n",
    b"\r\n ",
    b" :",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Host: u\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"0\r\n\r\n",
    b"ffffffff\r\n",
    b"GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n",
]
RESPONSES = re.compile(
    rb"((HTTP/1\.1 100 Continue\r\n\r\n)?HTTP/1\.1 200 OK\r\n([a-z-]+: [^\r\n]*\r\n)*\r\n(ok)?)*"
    rb"(HTTP/1\.1 100 Continue\r\n\r\n)?(HTTP/1\.1 4\d\d [A-Za-z ]+\r\n([a-z-]+: [^\r\n]*\r\n)*\r\n[^\r\n]*\n)?"
)


class Bench:
    """Runs connections over socket pairs, without a listening socket, and tells what the app saw of each."""

    def __init__(self, service, arrivals) -> None:
        self.service = service
        self.arrivals = arrivals

    async def feed(self, inputs: list[list[bytes]]) -> list[tuple[list, bytes]]:
        """Each input is what one client sends, piece by piece, before it closes its sending side."""
        clients, seen = [], []
        async with trio.open_nursery() as nursery:
            for pieces in inputs:
                client, server = socket.socketpair()
                client.setblocking(False)
                server.setblocking(False)
                connection = Connection(self.service, self.arrivals, server)
                connection.seen = []
                seen.append(connection.seen)
                nursery.start_soon(self._run, connection, server)
                clients.append(client)
                client.send(pieces[0])
                if len(pieces) == 1:
                    client.shutdown(socket.SHUT_WR)
                else:
                    nursery.start_soon(self._send, client, pieces[1:])
        return [(requests, _drain(client)) for requests, client in zip(seen, clients, strict=True)]

    async def _run(self, connection, server) -> None:
        if await connection.run() is not None:
            server.close()

    async def _send(self, client, pieces) -> None:
        for piece in pieces:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            try:
                client.send(piece)
            except BrokenPipeError:
                return
        client.shutdown(socket.SHUT_WR)


def _drain(client) -> bytes:
    data = b""
    with client:
        try:
            while more := client.recv(1 << 20):
                data += more
        except ConnectionResetError:
            pass
    return data


async def record(scope, receive, send) -> None:
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    send.__self__._connection.seen.append((scope["method"], target, body))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def bench():
    config = Config()
    config.errorlog = None
    with open_arrivals() as arrivals:
        async with trio.open_nursery() as nursery:
            service = Service(record, config, ServeLimits(buffered_body_bytes=8), arrivals)
            service.spawn = lambda connection: nursery.start_soon(connection.run)
            nursery.start_soon(arrivals.run)
            nursery.start_soon(service.idle.run)
            yield Bench(service, arrivals)
            assert not service.connections
            assert not service.idle
            nursery.cancel_scope.cancel()


# ---- what other parsers make of the same bytes ----


class _Messages:
    def __init__(self) -> None:
        self.complete: list = []

    def on_message_begin(self) -> None:
        self.target, self.body = b"", b""

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete.append((self.parser.get_method().decode(), self.target, self.body))


def httptools_sees(data: bytes) -> list:
    messages = _Messages()
    messages.parser = httptools.HttpRequestParser(messages)
    with contextlib.suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        messages.parser.feed_data(data)
    return messages.complete


def h11_sees(data: bytes) -> list:
    complete: list = []
    while data := data.lstrip(b"\r\n"):
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        connection.receive_data(data)
        try:
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Request):
                    request, body = event, b""
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                else:
                    return complete
        except h11.ProtocolError:
            return complete
        complete.append((request.method.decode().upper(), request.target, body))
        data = connection.trailing_data[0]
    return complete


def same(ours: tuple, theirs: tuple) -> bool:
    """A target in absolute form reaches the app as its path; a query that is empty does not."""
    method, target, body = theirs
    path, _, query = re.sub(rb"^https?://[^/?]*", b"", target, flags=re.IGNORECASE).partition(b"?")
    return ours == (method, (path or b"/") + (b"?" + query if query else b""), body)


def disagreement(data: bytes, seen: list, answered: bytes) -> str | None:
    """What is wrong with what the app saw, if anything."""
    if not RESPONSES.fullmatch(answered):
        return "the responses are malformed"
    if answered.count(b"HTTP/1.1 200 OK\r\n") != len(seen):
        return "there is not one response per request"
    for parser in (httptools_sees, h11_sees):
        theirs = parser(data)
        if len(theirs) >= len(seen) and all(map(same, seen, theirs)):
            return None
    return f"httptools sees {httptools_sees(data)}, h11 sees {h11_sees(data)}"


# ---- damage ----


def compose(dice: random.Random) -> tuple[bytes, list[tuple[int, tuple]]]:
    """Some valid requests in a row, and where each ends."""
    data, ends = b"", []
    for index in dice.choices(range(len(VALID)), k=dice.choice((1, 1, 2, 3))):
        data += VALID[index]
        ends.append((len(data), EXPECTED[index]))
    return data, ends


def damage(dice: random.Random, data: bytes) -> tuple[bytes, int]:
    """``data`` with something wrong, and the index of the first byte that is not as it was."""
    first = len(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        at = dice.randrange(len(data) + 1)
        to = min(len(data), at + dice.choice((0, 1, 1, 2, 8, 30)))
        match dice.randrange(6):
            case 0:
                data = data[:at] + data[to:]
            case 1:
                data = data[:at] + dice.choice(TOKENS) + data[at:]
            case 2:
                data = data[:at] + dice.choice(TOKENS) + data[to:]
            case 3:
                data = data[:at] + data[at:to] * 2 + data[to:]
            case 4 if at < len(data):
                data = data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]
            case _:
                other = dice.choice(VALID)
                data = data[:at] + other[dice.randrange(len(other)) :]
        first = min(first, at)
    return data, first


@pytest.mark.timeout(300)  # ten seconds of CPU, which a busy machine stretches
async def test_fifty_thousand_mutations(bench) -> None:
    """Damaged requests: a 4xx or the end; requests ahead of the damage are served; none is taken for two."""
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    descriptors = len(os.listdir("/proc/self/fd"))
    done = served = refused = 0
    while done < MUTATIONS:
        batch = []
        for _ in range(TOGETHER):
            whole, ends = compose(dice)
            data, first = damage(dice, whole)
            cut = dice.randrange(len(data) + 1) if dice.random() < 0.2 else len(data)
            batch.append((data, [data[:cut], data[cut:]] if 0 < cut < len(data) else [data], ends, first))
        with trio.fail_after(30):
            results = await bench.feed([pieces for _, pieces, _, _ in batch])
        for (data, _, ends, first), (seen, answered) in zip(batch, results, strict=True):
            untouched = [request for end, request in ends if end <= first]
            assert seen[: len(untouched)] == untouched, (data, seen)
            wrong = disagreement(data, seen, answered)
            assert wrong is None, f"{wrong}\nsent {data!r}\nthe app saw {seen}\nanswered {answered!r}"
            served += len(seen)
            refused += b"HTTP/1.1 4" in answered
        done += TOGETHER
    print(f"{done} inputs, {served} requests served, {refused} refused")
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert served > done / 3
    assert refused > done / 3


@pytest.mark.parametrize("index", range(len(VALID)))
async def test_byte_by_byte(bench, index) -> None:
    """A valid request is understood when each of its bytes comes alone, also with another one behind it."""
    data = VALID[index] + VALID[2]
    [(seen, answered)] = await bench.feed([[data[at : at + 1] for at in range(len(data))]])
    assert seen == [EXPECTED[index], EXPECTED[2]]
    assert answered.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize("index", range(len(VALID)))
async def test_end_of_input_at_every_byte(bench, index) -> None:
    """A request that ends early is not served; the one before it is."""
    data = VALID[index]
    inputs = [[VALID[2] + data[:length]] for length in range(len(data))]
    for seen, answered in await bench.feed(inputs):
        assert seen == [EXPECTED[2]]
        assert RESPONSES.fullmatch(answered)


async def test_a_cut_anywhere(bench) -> None:
    """All valid requests in a row, cut in two at every byte, are understood the same."""
    data = b"".join(VALID)
    for seen, _ in await bench.feed([[data[:at], data[at:]] for at in range(1, len(data))]):
        assert seen == EXPECTED


def test_the_other_parsers_agree_on_what_is_valid() -> None:
    """The oracle sees the valid requests as the tests expect the app to."""
    data = b"".join(VALID)
    assert disagreement(data, EXPECTED, b"HTTP/1.1 200 OK\r\n\r\n" * len(VALID)) is None
    assert disagreement(data, EXPECTED[1:], b"HTTP/1.1 200 OK\r\n\r\n" * (len(VALID) - 1)) is not None
    assert disagreement(data, EXPECTED, b"") is not None
