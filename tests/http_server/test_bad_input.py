"""Malformed and hostile requests: a 4xx or a closed connection, and never one request taken for two."""

from __future__ import annotations

import pytest
import trio

from gym_trio.http import ServeLimits, open_server

GOOD = b"GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n"


def head(*lines: bytes, start: bytes = b"POST / HTTP/1.1") -> bytes:
    return b"\r\n".join([start, b"Host: t", *lines]) + b"\r\n\r\n"


CASES: dict[str, tuple[int, bytes]] = {
    # the request line
    "no version": (400, b"GET /\r\n\r\n"),
    "bare LF": (400, b"GET / HTTP/1.1\nHost: t\n\n"),
    "bare LF after the line": (400, b"GET / HTTP/1.1\nHost: t\r\n\r\n"),
    "lone CR": (400, b"GET / HTTP/1.1\rHost: t\r\n\r\n"),
    "two spaces": (400, b"GET  / HTTP/1.1\r\nHost: t\r\n\r\n"),
    "tab": (400, b"GET\t/ HTTP/1.1\r\nHost: t\r\n\r\n"),
    "space in the target": (400, b"GET /a b HTTP/1.1\r\nHost: t\r\n\r\n"),
    "space at the end": (400, b"GET / HTTP/1.1 \r\nHost: t\r\n\r\n"),
    "space at the start": (400, b" GET / HTTP/1.1\r\nHost: t\r\n\r\n"),
    "non-ASCII target": (400, "GET /ä HTTP/1.1\r\nHost: t\r\n\r\n".encode()),
    "latin-1 target": (400, b"GET /\xe4 HTTP/1.1\r\nHost: t\r\n\r\n"),
    "NUL in the target": (400, b"GET /\x00 HTTP/1.1\r\nHost: t\r\n\r\n"),
    "fragment": (400, b"GET /#a HTTP/1.1\r\nHost: t\r\n\r\n"),
    "no slash": (400, b"GET a HTTP/1.1\r\nHost: t\r\n\r\n"),
    "asterisk": (400, b"GET * HTTP/1.1\r\nHost: t\r\n\r\n"),
    "other host in the target": (400, b"GET http://evil/ HTTP/1.1\r\nHost: t\r\n\r\n"),
    "other scheme": (400, b"GET ftp://t/ HTTP/1.1\r\nHost: t\r\n\r\n"),
    "method not a token": (400, b"G@T / HTTP/1.1\r\nHost: t\r\n\r\n"),
    "empty method": (400, b" / HTTP/1.1\r\nHost: t\r\n\r\n"),
    "lower-case version": (400, b"GET / http/1.1\r\nHost: t\r\n\r\n"),
    "version 0.9": (400, b"GET / HTTP/0.9\r\nHost: t\r\n\r\n"),
    "version 1.2": (400, b"GET / HTTP/1.2\r\nHost: t\r\n\r\n"),
    "version 3.0": (400, b"GET / HTTP/3.0\r\nHost: t\r\n\r\n"),
    "version 1.10": (400, b"GET / HTTP/1.10\r\nHost: t\r\n\r\n"),
    "connect": (405, b"CONNECT t:443 HTTP/1.1\r\nHost: t:443\r\n\r\n"),
    "connect with a path": (405, b"CONNECT / HTTP/1.1\r\nHost: t\r\n\r\n"),
    "tls": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "binary": (400, bytes(range(256))),
    # headers
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\nHost: t\r\nHost: t\r\n\r\n"),
    "bad host": (400, b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    "host with a space": (400, b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    "no colon": (400, head(b"Foo")),
    "empty name": (400, head(b": bar")),
    "space before the colon": (400, head(b"Content-Length : 0")),
    "tab before the colon": (400, head(b"Foo\t: 0")),
    "folded": (400, head(b"Foo: a", b" b")),
    "folded by tab": (400, head(b"Foo: a", b"\tb")),
    "folded first": (400, b"GET / HTTP/1.1\r\n Host: t\r\n\r\n"),
    "name not a token": (400, head(b"F(o: a")),
    "name not ASCII": (400, head("Fö: a".encode())),
    "NUL in a value": (400, head(b"Foo: a\x00b")),
    "CR in a value": (400, head(b"Foo: a\rb")),
    "LF in a value": (400, head(b"Foo: a\nBar: b")),
    "DEL in a value": (400, head(b"Foo: a\x7fb")),
    "escape in a value": (400, head(b"Foo: a\x1bb")),
    # lengths
    "two lengths": (400, head(b"Content-Length: 5", b"Content-Length: 6") + b"hello"),
    "same length twice": (400, head(b"Content-Length: 5", b"Content-Length: 5") + b"hello"),
    "listed lengths": (400, head(b"Content-Length: 5, 5") + b"hello"),
    "length with sign": (400, head(b"Content-Length: +5") + b"hello"),
    "negative length": (400, head(b"Content-Length: -5") + b"hello"),
    "hex length": (400, head(b"Content-Length: 0x5") + b"hello"),
    "underscored length": (400, head(b"Content-Length: 1_0") + b"hello"),
    "length with a dot": (400, head(b"Content-Length: 5.0") + b"hello"),
    "empty length": (400, head(b"Content-Length:")),
    "exotic digits": (400, head("Content-Length: ٥".encode()) + b"hello"),
    "endless length": (400, head(b"Content-Length: " + b"9" * 40) + b"hello"),
    "length and chunked": (400, head(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + GOOD),
    "chunked and length": (400, head(b"Transfer-Encoding: chunked", b"Content-Length: 5") + b"0\r\n\r\n" + GOOD),
    "chunked twice": (400, head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n"),
    "chunked listed twice": (400, head(b"Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n"),
    "gzip": (400, head(b"Transfer-Encoding: gzip") + b"0\r\n\r\n"),
    "gzip, chunked": (400, head(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n"),
    "chunked, identity": (400, head(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n"),
    "identity": (400, head(b"Transfer-Encoding: identity") + GOOD),
    "empty coding": (400, head(b"Transfer-Encoding:") + GOOD),
    "quoted coding": (400, head(b'Transfer-Encoding: "chunked"') + GOOD),
    "vertical tab": (400, head(b"Transfer-Encoding: \x0bchunked") + GOOD),
    "chunked in HTTP/1.0": (400, head(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0") + b"0\r\n\r\n"),
    "xchunked": (400, head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n"),
    # chunks
    **{
        f"chunk {name}": (400, head(b"Transfer-Encoding: chunked") + body)
        for name, body in {
            "not hex": b"xyz\r\nhello\r\n0\r\n\r\n",
            "without size": b"\r\nhello\r\n0\r\n\r\n",
            "negative": b"-5\r\nhello\r\n0\r\n\r\n",
            "signed": b"+5\r\nhello\r\n0\r\n\r\n",
            "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
            "underscored": b"1_0\r\nhello\r\n0\r\n\r\n",
            "space before": b" 5\r\nhello\r\n0\r\n\r\n",
            "space behind": b"5 \r\nhello\r\n0\r\n\r\n",
            "space before an extension": b"5 ;a\r\nhello\r\n0\r\n\r\n",
            "length in a trailer": b"0\r\nContent-Length: 5\r\n\r\n",
            "coding in a trailer": b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "host in a trailer": b"0\r\nA: b\r\nHost: u\r\n\r\n",
            "longer": b"4\r\nhello\r\n0\r\n\r\n",
            "ends in LF": b"5\r\nhello\n0\r\n\r\n",
            "size ends in LF": b"5\nhello\r\n0\r\n\r\n",
            "size ends in CR": b"5\rhello\r\n0\r\n\r\n",
            "extension with LF": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
            "extension with NUL": b"5;a\x00\r\nhello\r\n0\r\n\r\n",
            "endless extension": b"5;" + b"a" * 2000,
            "endless zeros": b"0" * 2000,
            "17 digits": b"00000000000000005\r\nhello\r\n0\r\n\r\n",
            "bad trailer": b"0\r\nFoo\r\n\r\n",
            "trailer with LF": b"0\r\nFoo: a\n\r\n",
            "folded trailer": b"0\r\nFoo: a\r\n b\r\n\r\n",
            "many extensions": b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n" * 2100 + b"0\r\n\r\n",
        }.items()
    },
    "chunk of 16 exabytes": (413, head(b"Transfer-Encoding: chunked") + b"ffffffffffffffff\r\nhello"),
    # expectations
    "other expectation": (417, head(b"Content-Length: 5", b"Expect: 200-ok") + b"hello"),
    # sizes
    "long target": (431, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: t\r\n\r\n"),
    "long header": (431, head(b"Foo: " + b"a" * 70_000)),
    "endless head": (431, b"GET / HTTP/1.1\r\nHost: t\r\n" + b"a: b\r\n" * 20_000),
    "many headers": (431, head(*[b"a: b"] * 300)),
    "long trailers": (431, head(b"Transfer-Encoding: chunked") + b"0\r\n" + b"a: b\r\n" * 20_000),
    "many trailers": (431, head(b"Transfer-Encoding: chunked") + b"0\r\n" + b"a: b\r\n" * 300 + b"\r\n"),
    "long body": (413, head(b"Content-Length: 99999999999")),
}


@pytest.mark.parametrize("name", CASES)
async def test_refused(connect, recorder, name) -> None:
    """The app sees nothing of it, nor of what follows it, and the client gets the status and the end."""
    status, wire = CASES[name]
    async with open_server(recorder) as server, connect(server.url) as client:
        with trio.fail_after(5):
            try:
                await client.send(wire + GOOD)
            except trio.BrokenResourceError:
                assert len(wire) > 10_000  # the server had seen enough
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (status, "close")
            assert await client.rest() == b""
    assert recorder.seen == []


@pytest.mark.parametrize("name", CASES)
async def test_refused_behind_a_good_request(connect, recorder, name) -> None:
    """The same behind a request that is fine, which is answered, once."""
    status, wire = CASES[name]
    async with open_server(recorder) as server, connect(server.url) as client:
        with trio.fail_after(5):
            await client.send(GOOD)
            assert (await client.answer()).status == 200
            try:
                await client.send(wire + GOOD)
            except trio.BrokenResourceError:
                assert len(wire) > 10_000
            assert (await client.answer()).status == status
            assert await client.rest() == b""
    assert len(recorder.seen) == 1


ACCEPTED: dict[str, tuple[bytes, tuple[str, str, bytes]]] = {
    "stray line ends": (b"\r\n\r\n" + GOOD, ("GET", "/smuggled", b"")),
    "absolute target": (b"GET http://T/a?b HTTP/1.1\r\nHost: t\r\n\r\n", ("GET", "/a", b"")),
    "absolute target without a path": (b"GET http://t HTTP/1.1\r\nHost: t\r\n\r\n", ("GET", "/", b"")),
    "absolute target with a query alone": (b"GET http://t?q HTTP/1.1\r\nHost: t\r\n\r\n", ("GET", "/", b"")),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n", ("OPTIONS", "*", b"")),
    "unknown method": (b"BREW /pot HTTP/1.1\r\nHost: t\r\n\r\n", ("BREW", "/pot", b"")),
    "empty host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", ("GET", "/", b"")),
    "ipv6 host": (b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", ("GET", "/", b"")),
    "empty value": (b"GET / HTTP/1.1\r\nHost: t\r\nFoo:\r\nBar: \t \r\n\r\n", ("GET", "/", b"")),
    "leading zeros": (head(b"Content-Length: 0005") + b"hello", ("POST", "/", b"hello")),
    "spaces around": (head(b"Content-Length: \t 5 \t") + b"hello", ("POST", "/", b"hello")),
    "get with a body": (head(b"Content-Length: 5", start=b"GET / HTTP/1.1") + b"hello", ("GET", "/", b"hello")),
    "chunk extension": (head(b"Transfer-Encoding: chunked") + b"5;a=b\r\nhello\r\n0\r\n\r\n", ("POST", "/", b"hello")),
    "upper-case chunks": (
        head(b"TRANSFER-ENCODING: CHUNKED") + b"A\r\nhellohello\r\n00\r\n\r\n",
        ("POST", "/", b"hellohello"),
    ),
    "upgrade to the unknown": (head(b"Connection: upgrade", b"Upgrade: foo"), ("POST", "/", b"")),
    "upgrade without connection": (head(b"Upgrade: websocket", start=b"GET / HTTP/1.1"), ("GET", "/", b"")),
    "h2c with a body": (
        head(
            b"Connection: upgrade, http2-settings",
            b"Upgrade: h2c",
            b"HTTP2-Settings: AAMAAABkAAQA",
            b"Content-Length: 1",
        )
        + b"x",
        ("POST", "/", b"x"),
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_accepted(connect, recorder, name) -> None:
    """What the standard lets a client send is understood, and what follows it is the next request."""
    wire, seen = ACCEPTED[name]
    async with open_server(recorder) as server, connect(server.url) as client:
        await client.send(wire + GOOD)
        assert (await client.answer()).status == (await client.answer()).status == 200
    assert recorder.seen == [seen, ("GET", "/smuggled", b"")]


async def test_absurd_pipelining(connect, recorder) -> None:
    """Ten thousand requests in one write are ten thousand responses in order."""
    wire = b"".join(b"GET /%d HTTP/1.1\r\nHost: t\r\n\r\n" % number for number in range(10_000))
    async with open_server(recorder) as server, connect(server.url) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.send, wire)
        for number in range(10_000):
            assert (await client.answer()).json()[1] == f"/{number}"


async def test_a_body_past_the_limit_while_the_handler_streams(connect, recorder) -> None:
    """A chunked body that grows past the limit ends its handler's input and is answered with 413."""
    limits = ServeLimits(body_bytes=100_000, buffered_body_bytes=1000)
    async with open_server(recorder, limits=limits) as server, connect(server.url) as client:
        await client.send(head(b"Transfer-Encoding: chunked"))
        await client.send((b"2710\r\n" + b"x" * 10_000 + b"\r\n") * 11)
        assert (await client.answer()).status == 413
        assert await client.rest() == b""
    assert recorder.seen == []


async def test_a_malformed_chunk_while_the_handler_streams(connect, recorder) -> None:
    """A chunk that turns out malformed ends its handler's input and is answered with 400."""
    async with (
        open_server(recorder, limits=ServeLimits(buffered_body_bytes=10)) as server,
        connect(server.url) as client,
    ):
        await client.send(head(b"Transfer-Encoding: chunked") + b"14\r\n" + b"x" * 20 + b"\r\n")
        await client.send(b"zz\r\n")
        assert (await client.answer()).status == 400
    assert recorder.seen == []
