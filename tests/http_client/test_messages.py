"""Requests, responses and origins as values."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from gym_trio.errors import ResponseError, UsageError
from gym_trio.http import Origin, Response


def response(body: bytes = b"", *headers: tuple[bytes, bytes], status: int = 200) -> Response:
    return Response(status, headers, body, "judge")


@pytest.mark.parametrize(
    ("url", "origin", "target", "authority"),
    [
        ("http://a", Origin("http", "a", 80), b"/", b"a"),
        ("http://a:80/x", Origin("http", "a", 80), b"/x", b"a"),
        ("https://a", Origin("https", "a", 443), b"/", b"a"),
        ("https://a:80/", Origin("https", "a", 80), b"/", b"a:80"),
        ("http://127.0.0.1:9/v1?k=ä b", Origin("http", "127.0.0.1", 9), b"/v1?k=%C3%A4%20b", b"127.0.0.1:9"),
        ("http://[::1]:8000/", Origin("http", "::1", 8000), b"/", b"[::1]:8000"),
        ("http://[::1]", Origin("http", "::1", 80), b"/", b"[::1]"),
        ("http://policy_model", Origin("http", "policy_model", 80), b"/", b"policy_model"),
        ("http://bücher.example", Origin("http", "xn--bcher-kva.example", 80), b"/", b"xn--bcher-kva.example"),
    ],
)
def test_a_url_is_split_once_into_origin_and_target(url: str, origin: Origin, target: bytes, authority: bytes) -> None:
    """Names, addresses, default ports and non-ASCII come out in the form that goes over the wire."""
    assert Origin.parse(url) == (origin, target)
    assert Origin.parse(url)[0].authority == authority


@pytest.mark.parametrize(
    "url", ["", "a", "ftp://a", "http://", "http://a:b", "http://a\n", "//a", "http://a:99999", "http://a:0"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    """A base URL that cannot be asked is a usage error, at the time it is given."""
    with pytest.raises(UsageError):
        Origin.parse(url)


def test_credentials_in_a_url_are_refused_and_not_shown() -> None:
    """A password in a URL is neither dropped silently nor repeated in the error."""
    with pytest.raises(UsageError) as caught:
        Origin.parse("http://me:s3cret@a/")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1, 2.5, null, "\xc3\xa4"]}', {"a": [1, 2.5, None, "ä"]}),
        (b"[-Infinity]", [-math.inf]),
        (b'"\\ud800"', "\ud800"),
    ],
)
def test_json_reads_what_servers_write(body: bytes, value: object) -> None:
    """Also what strict JSON does not allow and Python's own writer produces."""
    assert response(body).json() == value


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"\xff", b"[" * 100_000])
def test_a_body_that_is_not_json_names_the_server(body: bytes) -> None:
    """The error has the server's name, its status and the beginning of what it said."""
    with pytest.raises(ResponseError, match="judge") as caught:
        response(body, status=203).json()
    assert caught.value.server == "judge"
    assert caught.value.status == 203
    assert len(caught.value.body) <= 2000
    assert len(str(caught.value)) < 500


def test_error_statuses_raise_only_when_asked() -> None:
    """399 and below are fine; 400 and above carry status, body and the server's advice."""
    response(status=399).raise_for_status()
    with pytest.raises(ResponseError, match="429") as caught:
        response(b"slow down", (b"retry-after", b"7"), status=429).raise_for_status()
    assert (caught.value.status, caught.value.body, caught.value.retry_after_seconds) == (429, "slow down", 7.0)


def test_the_error_of_a_status_is_one_line() -> None:
    """However many lines the body has, which the error carries as it came."""
    with pytest.raises(ResponseError) as info:
        Response(500, (), b"a\n  b\r\n\tc\n", "agent").raise_for_status()
    assert str(info.value) == "agent: status 500: a b c"
    assert info.value.body == "a\n  b\r\n\tc\n"


@pytest.mark.parametrize(
    "advice", ["junk", "nan", "inf", "+99999999999 Nov Feb 10:00:00 -0000", "Nov " + "1" * 400 + " 2026 99:99:99", ""]
)
def test_advice_that_is_none_is_none(advice: str) -> None:
    """Whatever stands there, numbers beyond any clock included."""
    assert Response(429, ((b"retry-after", advice.encode()),), b"").retry_after_seconds() is None


def test_retry_after_is_a_number_or_a_date() -> None:
    """What is neither, or lies in the past, gives no wait."""
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True).encode()
    naive = format_datetime((datetime.now(UTC) + timedelta(seconds=60)).replace(tzinfo=None)).encode()
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=60), usegmt=True).encode()

    def advice(value: bytes) -> float | None:
        return response(b"", (b"retry-after", value)).retry_after_seconds()

    assert advice(b"1.5") == 1.5
    assert advice(b"-3") == 0
    assert 50 < (advice(soon) or 0) <= 60
    assert 50 < (advice(naive) or 0) <= 60
    assert advice(past) == 0
    assert advice(b"soon") is None
    assert advice(b"inf") is None
    assert advice(b"nan") is None
    assert response().retry_after_seconds() is None


def test_cookies_are_read_without_their_attributes() -> None:
    """The value is what the server set, to the letter, so that it can be sent back."""
    found = response(
        b"",
        (b"set-cookie", b"session=eyJ=.x; path=/; httponly"),
        (b"set-cookie", b' other = "a b" '),
        (b"set-cookie", b"noise"),
        (b"x-set-cookie", b"no=1"),
    ).cookies()
    assert found == {"session": "eyJ=.x", "other": '"a b"'}


def test_headers_are_httpx_headers_made_when_asked_for() -> None:
    """Lookups ignore case and the same object is given each time."""
    answer = response(b"x", (b"content-type", b"text/plain"))
    assert answer.headers["Content-Type"] == "text/plain"
    assert answer.headers is answer.headers
    assert answer.text == "x"
