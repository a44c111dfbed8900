"""What a request's head looks like, and what cannot be one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest

from gym_trio.errors import UsageError
from gym_trio.http import Origin, Request
from gym_trio.http._encode import KnownHeaders, encode_head

ORIGIN = Origin("http", "a", 81)


def head(request: Request) -> bytes:
    """The head; the same whatever part of the headers is said to be in common, twice in a row."""
    alone = encode_head(request, KnownHeaders().prepare(request.headers)).head
    known = KnownHeaders()
    for count in [*range(len(request.headers) + 1)] * 2:
        again = attrs.evolve(request, common=request.headers[:count], headers=request.headers[count:])
        assert encode_head(again, known.of(again)).head == alone
        assert known.of(again).pairs == known.prepare(request.headers).pairs
    return alone


async def parts() -> AsyncIterator[bytes]:
    yield b"x"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request("GET", ORIGIN, b"/"), b"GET / HTTP/1.1\r\nhost: a:81\r\n\r\n"),
        (Request("GET", ORIGIN, b"/", ((b"Host", b"b"),)), b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"),
        (
            Request("POST", ORIGIN, b"/x?y", body=b"12"),
            b"POST /x?y HTTP/1.1\r\nhost: a:81\r\ncontent-length: 2\r\n\r\n",
        ),
        (Request("POST", ORIGIN, b"/"), b"POST / HTTP/1.1\r\nhost: a:81\r\ncontent-length: 0\r\n\r\n"),
        (Request("DELETE", ORIGIN, b"/"), b"DELETE / HTTP/1.1\r\nhost: a:81\r\n\r\n"),
        (Request("DELETE", ORIGIN, b"/", body=b"1"), b"DELETE / HTTP/1.1\r\nhost: a:81\r\ncontent-length: 1\r\n\r\n"),
        (
            Request("PUT", ORIGIN, b"/", ((b"content-length", b"2"),), b"12"),
            b"PUT / HTTP/1.1\r\nhost: a:81\r\ncontent-length: 2\r\n\r\n",
        ),
        (
            Request("PUT", ORIGIN, b"/", body=parts()),
            b"PUT / HTTP/1.1\r\nhost: a:81\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (
            Request("PUT", ORIGIN, b"/", ((b"Content-Length", b"1"),), parts()),
            b"PUT / HTTP/1.1\r\nhost: a:81\r\nContent-Length: 1\r\n\r\n",
        ),
        (Request("QUERY", ORIGIN, b"*"), b"QUERY * HTTP/1.1\r\nhost: a:81\r\ncontent-length: 0\r\n\r\n"),
    ],
)
def test_a_head_says_where_the_body_ends(request_: Request, expected: bytes) -> None:
    """The host and the framing are added where the caller left them out, and only there."""
    assert head(request_) == expected


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", ORIGIN, b"/", ((b"x", b"1\r\nx: 2"),)),
        Request("GET", ORIGIN, b"/", ((b"x", b"1\n"),)),
        Request("GET", ORIGIN, b"/", ((b"x", b"1\r"),)),
        Request("GET", ORIGIN, b"/", ((b"x", b"1\0"),)),
        Request("GET", ORIGIN, b"/", ((b"x y", b"1"),)),
        Request("GET", ORIGIN, b"/", ((b"x:", b"1"),)),
        Request("GET", ORIGIN, b"/", ((b"", b"1"),)),
        Request("GET", ORIGIN, b"/", ((b"x\r\nx", b"1"),)),
        Request("GET", ORIGIN, b"/", (("ä".encode(), b"1"),)),
        Request("GET", ORIGIN, b""),
        Request("GET", ORIGIN, b"/a b"),
        Request("GET", ORIGIN, b"/\r\nx: y"),
        Request("GET", ORIGIN, "/ä".encode()),
        Request("GET\r\n", ORIGIN, b"/"),
        Request("GE T", ORIGIN, b"/"),
        Request("", ORIGIN, b"/"),
        Request("GÄT", ORIGIN, b"/"),
        Request("CONNECT", ORIGIN, b"a:80"),
        Request("POST", ORIGIN, b"/", ((b"content-length", b"3"),), b"12"),
        Request("POST", ORIGIN, b"/", ((b"content-length", b"x"),), b"12"),
        Request("POST", ORIGIN, b"/", ((b"content-length", b"2"), (b"Content-Length", b"2")), b"12"),
        Request("POST", ORIGIN, b"/", ((b"content-length", b"2"), (b"transfer-encoding", b"chunked")), b"12"),
        Request("POST", ORIGIN, b"/", ((b"transfer-encoding", b"gzip, chunked"),), b"12"),
        Request("POST", ORIGIN, b"/", body="text"),
        Request("POST", ORIGIN, b"/", body=bytearray(b"12")),
        Request("POST", ORIGIN, b"/", ((b"transfer-encoding", b"chunked"),), [b"12"]),
    ],
)
def test_what_could_be_read_as_something_else_is_refused(request_: Request) -> None:
    """No method, target, header or length can smuggle a line, a header or a second request."""
    with pytest.raises(UsageError):
        head(request_)
    headers = request_.headers
    for count in range(len(headers) + 1):
        request_.common, request_.headers = headers[:count], headers[count:]
        with pytest.raises(UsageError):
            encode_head(request_, KnownHeaders().of(request_))


def test_an_error_never_quotes_a_headers_value() -> None:
    """Header values are keys and cookies."""
    with pytest.raises(UsageError) as caught:
        head(Request("GET", ORIGIN, b"/", ((b"authorization", b"Bearer s3cret\n"),)))
    assert "s3cret" not in str(caught.value)


def test_headers_that_were_prepared_once_are_found_again() -> None:
    """However many different ones come, what is kept stays bounded."""
    known = KnownHeaders()
    first = known.prepare(((b"a", b"b"),))
    assert known.prepare(((b"a", b"b"),)) is first
    for number in range(10_000):
        known.prepare(((b"a", b"%d" % number),))
        known.of(Request("GET", ORIGIN, b"/", ((b"x-%d" % number, b""),), common=((b"a", b"b"),)))
    assert len(known._known) <= 256
    assert len(known._names) <= 257
