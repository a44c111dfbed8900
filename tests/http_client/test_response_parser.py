"""Bytes from a server, read without a socket."""

from __future__ import annotations

import random

import pytest

from gym_trio.errors import PeerDropped, ProtocolError
from gym_trio.http import Origin
from gym_trio.http._response_parser import ResponseParser

ORIGIN = Origin("http", "a", 80)

# Bytes, whether the connection's end is theirs, the method; and what they mean: status, body, can the connection go on.
VALID = [
    (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", False, "GET", 200, b"hello", True),
    (b"HTTP/1.1 200 OK\r\nContent-Length:5\r\n\r\nhello", False, "GET", 200, b"hello", True),
    (b"HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n", False, "GET", 200, b"", True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", False, "GET", 204, b"", True),
    (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 99\r\n\r\n", False, "GET", 304, b"", True),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", False, "HEAD", 200, b"", True),
    (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        False,
        "GET",
        200,
        b"hello",
        True,
    ),
    (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;x=y\r\nh\r\nA\r\nelloworld!\r\n0\r\nt: v\r\n\r\n",
        False,
        "GET",
        200,
        b"helloworld!",
        True,
    ),
    (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", False, "GET", 200, b"ok", False),
    (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", False, "GET", 200, b"ok", False),
    (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", False, "GET", 200, b"ok", True),
    (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", True, "GET", 200, b"until the end", False),
    (b"HTTP/1.1 200 OK\r\n\r\n", True, "GET", 200, b"", False),
    (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!",
        False,
        "GET",
        200,
        b"!",
        True,
    ),
    (b"HTTP/1.1 599 Odd\r\nx: \xff\r\ncontent-length: 1\r\n\r\n!", False, "GET", 599, b"!", True),
]


def started(method: str = "GET", max_body_bytes: int | None = None, max_head_bytes: int = 65536) -> ResponseParser:
    parser = ResponseParser(max_head_bytes)
    parser.begin(ORIGIN, method == "HEAD", max_body_bytes)
    return parser


def feed(parser: ResponseParser, data: bytes, *, pieces: int | list[int]) -> None:
    cuts = range(pieces, len(data) + pieces, pieces) if isinstance(pieces, int) else [*pieces, len(data)]
    start = 0
    for cut in cuts:
        if start < min(cut, len(data)):
            parser.feed(memoryview(data)[start:cut])
        start = cut


@pytest.mark.parametrize(("data", "ends", "method", "status", "body", "lives"), VALID)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_a_response_means_the_same_however_it_is_cut(
    data: bytes, ends: bool, method: str, status: int, body: bytes, lives: bool, size: int
) -> None:
    """Every valid case, byte by byte and in larger pieces."""
    parser = started(method, max_body_bytes=100)
    feed(parser, data, pieces=size)
    assert parser.complete is not ends
    if ends:
        parser.feed_eof()
    assert (parser.status, b"".join(parser.chunks), parser.keep_alive, parser.excess) == (status, body, lives, False)
    assert b"link" not in dict(parser.raw_headers)
    assert b"t" not in dict(parser.raw_headers)


@pytest.mark.parametrize(("data", "ends", "method", "status", "body", "lives"), VALID)
def test_an_end_at_any_byte_is_a_drop_or_an_empty_close_delimited_body(
    data: bytes, ends: bool, method: str, status: int, body: bytes, lives: bool
) -> None:
    """A truncated response is never taken for a whole one, unless its end is the connection's."""
    for cut in range(len(data)):
        parser = started(method)
        parser.feed(data[:cut])
        if parser.complete:
            assert method == "HEAD" or parser.status in (204, 304)
            continue
        if ends and parser.head_complete:
            parser.feed_eof()
            assert b"".join(parser.chunks) == body[: len(b"".join(parser.chunks))]
            continue
        with pytest.raises(PeerDropped):
            parser.feed_eof()


def test_one_parser_reads_responses_one_after_the_other() -> None:
    """After a complete response that keeps its connection the same parser reads the next, of any connection."""
    parser = ResponseParser(65536)
    for data, _, method, status, body, _ in VALID * 2:
        if not data.endswith(b"hello") and not data.endswith(b"0\r\n\r\n"):
            continue
        parser.begin(ORIGIN, method == "HEAD", None)
        parser.feed(data)
        assert (parser.status, b"".join(parser.chunks), parser.is_clean) == (status, body, True)


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"\0",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx y: 1\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: \0\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    ],
)
def test_what_is_not_a_response_is_a_protocol_error(data: bytes) -> None:
    """Malformed and ambiguous answers end the request, whole or byte by byte."""
    for size in (1, len(data)):
        with pytest.raises(ProtocolError):
            feed(started(), data, pieces=size)


def test_limits_hold_exactly_however_the_bytes_come() -> None:
    """Head and body are refused one byte past their limit, and accepted at it."""
    head = b"HTTP/1.1 200 OK\r\nx: " + b"y" * 971 + b"\r\n\r\n"
    for size in (1, 100, 10_000):
        feed(started(max_head_bytes=1000), head, pieces=size)
        with pytest.raises(ProtocolError, match="head"):
            feed(started(max_head_bytes=900), head + b"z" * 5, pieces=size)
    body = b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + b"y" * 2000
    for size in (1, 100, 10_000):
        feed(started(max_body_bytes=2000, max_head_bytes=100), body, pieces=size)
        with pytest.raises(ProtocolError, match="body"):
            feed(started(max_body_bytes=1999, max_head_bytes=100), body, pieces=size)


@pytest.mark.parametrize(
    ("begin", "flood", "what"),
    [
        (b"HTTP/1.1 200 OK\r\nx: ", b"x: y\r\n", "head"),
        (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 50, "head"),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n", "head"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx: ", b"x: y\r\n", "framing"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx: ", b"y" * 50, "framing"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"y" * 50, "framing"),
    ],
)
def test_what_has_no_end_is_refused(begin: bytes, flood: bytes, what: str) -> None:
    """Neither endless headers, interim responses, trailers nor chunk extensions fill the memory or the time."""
    parser = started(max_head_bytes=5000)
    parser.feed(begin)
    with pytest.raises(ProtocolError, match=what):
        feed(parser, flood * 10_000, pieces=len(flood))


def test_one_byte_chunks_are_not_mistaken_for_a_flood() -> None:
    """A server that sends its body a byte at a time is slow, not hostile."""
    parser = started(max_head_bytes=100)
    parser.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(2000):
        parser.feed(b"00000001\r\nx\r\n")
    parser.feed(b"0\r\n\r\n")
    assert len(b"".join(parser.chunks)) == 2000


@pytest.mark.parametrize(
    "behind",
    [b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n?", b"x", b"\0\0", b"HTTP/1.1 200 OK\r\n"],
)
@pytest.mark.parametrize("connection", [b"", b"connection: close\r\n"])
def test_bytes_behind_a_response_spoil_the_connection_and_not_the_response(behind: bytes, connection: bytes) -> None:
    """What nobody asked for is never read as an answer to the next request."""
    parser = started()
    parser.feed(b"HTTP/1.1 200 OK\r\n" + connection + b"content-length: 1\r\n\r\n!" + behind)
    assert (parser.complete, b"".join(parser.chunks), parser.status) == (True, b"!", 200)
    assert parser.excess
    assert not parser.is_clean or connection


def test_a_body_that_follows_a_head_request_spoils_the_connection() -> None:
    """A server that answers HEAD with a body does not get its body taken for a response."""
    parser = started("HEAD")
    parser.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
    assert (parser.complete, parser.chunks, parser.excess, parser.is_clean) == (True, [], True, False)


def mutate(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        where = rng.randrange(len(changed) or 1)
        match rng.randrange(4):
            case 0:
                changed[where : where + 1] = bytes([rng.randrange(256)])
            case 1:
                del changed[where : where + rng.randrange(1, 5)]
            case 2:
                changed[where:where] = rng.choice(
                    [b"\r\n", b"\n", b"\0", b":", b"0", b"\xff", b"content-length: 1\r\n"]
                )
            case 3:
                changed[where:where] = changed[where : where + 8]
    return bytes(changed)


def test_mutated_responses_never_do_anything_but_parse_or_raise(rng: random.Random) -> None:
    """Fifty thousand seeded mutations: complete, incomplete, or a typed error; never another exception."""
    outcomes = {"complete": 0, "partial": 0, "refused": 0}
    for _ in range(50_000):
        data, _, method, *_ = rng.choice(VALID)
        data = mutate(data, rng)
        parser = started(method, max_body_bytes=100, max_head_bytes=200)
        try:
            feed(parser, data, pieces=sorted(rng.sample(range(len(data)), min(2, len(data)))))
            parser.feed_eof()
            outcomes["complete"] += 1
        except ProtocolError:
            outcomes["refused"] += 1
        except PeerDropped:
            outcomes["partial"] += 1
    assert all(outcomes.values()), outcomes
