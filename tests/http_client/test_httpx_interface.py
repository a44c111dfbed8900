"""`httpx.AsyncClient(transport=...)`: what httpx documents holds over our sockets too."""

from __future__ import annotations

import gzip
import json
import ssl
from collections.abc import AsyncIterator

import httpx
import pytest
import trio
import trustme
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from gym_trio import http
from gym_trio.http import RetryPolicy, SocketTransport, TransportSettings

ONCE = TransportSettings(connect_retry=RetryPolicy(attempts=1))


async def show(request: Request) -> Response:
    body = await request.body()
    return JSONResponse(
        {
            "method": request.method,
            "url": str(request.url),
            "path": request.scope["raw_path"].decode(),
            "query": list(request.query_params.multi_items()),
            "headers": [[name.decode(), value.decode()] for name, value in request.headers.raw],
            "body": body.decode("latin-1"),
        }
    )


async def upload(request: Request) -> Response:
    async with request.form() as form:
        return JSONResponse(
            {
                name: [value.filename, len(await value.read())] if isinstance(value, UploadFile) else value
                for name, value in form.items()
            }
        )


async def guarded(request: Request) -> Response:
    if request.headers.get("authorization") != "Basic bWU6cHc=":
        return PlainTextResponse("who?", 401, {"www-authenticate": 'Digest realm="r", nonce="n", qop="auth"'})
    return PlainTextResponse("welcome")


async def status(request: Request) -> Response:
    return PlainTextResponse("status", int(request.path_params["code"]))


async def hop(request: Request) -> Response:
    left = int(request.path_params["left"])
    return RedirectResponse(f"/hop/{left - 1}" if left else "/show", 302)


class Lines:
    """Not a generator: a stream that is left early leaves nothing to be closed."""

    def __init__(self) -> None:
        self.left = iter(range(5))

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        await trio.lowlevel.checkpoint()
        for number in self.left:
            return f"line {number}\n"
        raise StopAsyncIteration


async def stream(request: Request) -> Response:
    return StreamingResponse(Lines())


async def compressed(request: Request) -> Response:
    return Response(gzip.compress(b"small" * 100), headers={"content-encoding": "gzip"})


async def cookies(request: Request) -> Response:
    response = JSONResponse(dict(request.cookies))
    response.set_cookie("seen", "yes")
    return response


APP = Starlette(
    routes=[
        Route("/show", show, methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]),
        Route("/show/{rest:path}", show),
        Route("/upload", upload, methods=["POST"]),
        Route("/guarded", guarded),
        Route("/status/{code}", status),
        Route("/hop/{left}", hop, methods=["GET", "POST"]),
        Route("/stream", stream),
        Route("/compressed", compressed),
        Route("/cookies", cookies),
    ]
)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with (
        http.open_server(APP) as server,
        httpx.AsyncClient(transport=SocketTransport(), base_url=server.url) as client,
    ):
        yield client


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_every_method_arrives_with_its_headers_and_body(client: httpx.AsyncClient, method: str) -> None:
    """Bodies from ``content``, ``json`` and ``data``; duplicate headers stay duplicate."""
    seen = (await client.request(method, "/show", content=b"raw", headers=[("x", "1"), ("x", "2")])).json()
    assert (seen["method"], seen["body"]) == (method, "raw")
    assert [value for name, value in seen["headers"] if name == "x"] == ["1", "2"]
    assert (await client.request(method, "/show", json={"a": 1})).json()["body"] == json.dumps(
        {"a": 1}, separators=(",", ":")
    )
    assert (await client.request(method, "/show", data={"a": "ä"})).json()["body"] == "a=%C3%A4"


async def test_head_has_headers_and_no_body(client: httpx.AsyncClient) -> None:
    """And the connection goes on."""
    for _ in range(3):
        response = await client.head("/show")
        assert int(response.headers["content-length"]) > 0
        assert response.content == b""


async def test_urls_params_and_the_target_extension(client: httpx.AsyncClient) -> None:
    """Encoding is httpx's; ``target`` replaces what stands in the request line."""
    seen = (await client.get("/show/a b/ä", params=[("q", "1 2"), ("q", "ü")])).json()
    assert (seen["path"], seen["query"]) == ("/show/a%20b/%C3%A4", [["q", "1 2"], ["q", "ü"]])
    other = client.build_request("GET", "/nothing", extensions={"target": b"/show/other"})
    assert (await client.send(other)).json()["path"] == "/show/other"


async def test_uploads_from_iterators_and_files(client: httpx.AsyncClient) -> None:
    """An asynchronous iterator is sent in chunks, a multipart form with its length."""

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 10_000

    seen = (await client.post("/show", content=parts())).json()
    assert seen["body"] == "x" * 200_000
    assert ["transfer-encoding", "chunked"] in seen["headers"]
    form = await client.post("/upload", data={"name": "n"}, files={"file": ("f.bin", b"y" * 300_000)})
    assert form.json() == {"name": "n", "file": ["f.bin", 300_000]}


async def test_redirects_are_off_unless_asked_for(client: httpx.AsyncClient) -> None:
    """As httpx says; followed, the history is there and too many end it."""
    response = await client.get("/hop/2")
    assert (response.status_code, response.has_redirect_location, response.history) == (302, True, [])
    assert response.next_request is not None
    followed = await client.get("/hop/2", follow_redirects=True)
    assert (followed.json()["method"], len(followed.history)) == ("GET", 3)
    assert (await client.post("/hop/0", follow_redirects=True)).json()["method"] == "GET"
    with pytest.raises(httpx.TooManyRedirects):
        await client.get("/hop/99", follow_redirects=True)


async def test_auth_flows(client: httpx.AsyncClient) -> None:
    """Basic at once; digest in two requests on one connection, whose first answer is read."""
    assert (await client.get("/guarded", auth=("me", "pw"))).text == "welcome"
    assert (await client.get("/guarded", auth=("me", "no"))).status_code == 401
    response = await client.get("/guarded", auth=httpx.DigestAuth("me", "pw"))
    assert len(response.history) == 1
    assert response.request.headers["authorization"].startswith("Digest ")


async def test_event_hooks_and_cookies(client: httpx.AsyncClient) -> None:
    """Hooks see each request and response; the client's jar keeps what the server sets."""
    events: list[str] = []

    async def asked(request: httpx.Request) -> None:
        events.append(request.method)

    async def answered(response: httpx.Response) -> None:
        await response.aread()
        events.append(response.text)

    client.event_hooks = {"request": [asked], "response": [answered]}
    assert (await client.get("/cookies")).json() == {}
    assert (await client.get("/cookies")).json() == {"seen": "yes"}
    assert events == ["GET", "{}", "GET", '{"seen":"yes"}']


@pytest.mark.parametrize("code", [200, 204, 304, 404, 500, 599])
async def test_statuses_reasons_and_versions(client: httpx.AsyncClient, code: int) -> None:
    """What the server said, in httpx's properties."""
    response = await client.get(f"/status/{code}")
    assert response.status_code == code
    assert response.http_version == "HTTP/1.1"
    assert response.is_error is (code >= 400)
    if code >= 400:
        with pytest.raises(httpx.HTTPStatusError):
            response.raise_for_status()


async def test_responses_can_be_streamed(client: httpx.AsyncClient) -> None:
    """By bytes, lines and text; read in full; left early; and decoded."""
    transport = client._transport
    assert isinstance(transport, SocketTransport)
    async with client.stream("GET", "/stream") as response:
        assert [line async for line in response.aiter_lines()] == [f"line {number}" for number in range(5)]
    async with client.stream("GET", "/stream") as response:
        assert not response.is_closed
        assert b"".join([chunk async for chunk in response.aiter_bytes(3)]) == await response_text(client)
    async with client.stream("GET", "/stream") as response:
        await response.aread()
        assert response.text.count("\n") == 5
    assert transport.statistics().open == transport.statistics().idle
    async with client.stream("GET", "/stream") as response:
        assert transport.statistics().open > transport.statistics().idle
    assert transport.statistics().open == transport.statistics().idle
    assert (await client.get("/compressed")).content == b"small" * 100


async def response_text(client: httpx.AsyncClient) -> bytes:
    return (await client.get("/stream")).content


async def test_concurrent_requests_on_one_client(client: httpx.AsyncClient) -> None:
    """A hundred tasks share the client."""
    answers = []

    async def ask(number: int) -> None:
        answers.append((await client.post("/show", content=b"%d" % number)).json()["body"])

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(ask, number)
    assert sorted(answers, key=int) == [str(number) for number in range(100)]


async def silent(incoming) -> None:
    await incoming.request()
    await trio.sleep_forever()


async def half(incoming) -> None:
    await incoming.request()
    await incoming.stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
    await trio.sleep_forever()


async def drops(incoming) -> None:
    await incoming.request()


async def resets(incoming) -> None:
    await incoming.request()
    await incoming.reset()


async def babbles(incoming) -> None:
    await incoming.request()
    await incoming.stream.send_all(b"hello\r\n\r\n")


async def never_reads(incoming) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize(
    ("handler", "bounds", "expected"),
    [
        (silent, httpx.Timeout(5, read=0.05), httpx.ReadTimeout),
        (half, httpx.Timeout(5, read=0.05), httpx.ReadTimeout),
        (never_reads, httpx.Timeout(5, write=0.05), httpx.WriteTimeout),
        (drops, 5, httpx.RemoteProtocolError),
        (resets, 5, httpx.ReadError),
        (babbles, 5, httpx.RemoteProtocolError),
    ],
)
async def test_failures_have_httpxs_names(open_peer, handler, bounds, expected: type[Exception]) -> None:
    """Each with its request, and with its connection closed."""
    transport = SocketTransport(ONCE)
    async with open_peer(handler) as peer, httpx.AsyncClient(transport=transport, timeout=bounds) as client:
        body = b"x" * (30_000_000 if handler is never_reads else 10)
        with pytest.raises(expected) as caught:
            await client.post(peer.url, content=body)
        assert caught.value.request.url == peer.url
        assert transport.statistics().open == 0


async def test_failed_connects_have_httpxs_names(refusing: http.Origin, deaf: http.Origin) -> None:
    """Refused, not reachable in time, and what is not sent at all."""
    async with httpx.AsyncClient(transport=SocketTransport(ONCE), timeout=httpx.Timeout(5, connect=0.05)) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(str(refusing))
        with pytest.raises(httpx.ConnectTimeout):
            await client.get(str(deaf))
        with pytest.raises(httpx.UnsupportedProtocol):
            await client.get("ftp://a/")
        with pytest.raises(httpx.LocalProtocolError):
            await client.post(str(refusing), content=b"12", headers={"content-length": "7"})


async def test_waiting_for_a_place_has_httpxs_name(open_peer) -> None:
    """A pool timeout, which holds nothing."""
    transport = SocketTransport(TransportSettings(max_connections_per_origin=1))
    async with (
        open_peer(silent) as peer,
        httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(5, pool=0.05)) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.get, peer.url)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(httpx.PoolTimeout):
            await client.get(peer.url)
        assert transport.statistics().waiting == 0
        nursery.cancel_scope.cancel()


async def test_no_timeout_means_none(open_peer) -> None:
    """``timeout=None`` waits for as long as the server takes."""
    go = trio.Event()

    async def handler(incoming) -> None:
        await incoming.request()
        await go.wait()
        await incoming.answer(b"at last")

    async with (
        open_peer(handler) as peer,
        httpx.AsyncClient(transport=SocketTransport(), timeout=None) as client,
        trio.open_nursery() as nursery,
    ):

        async def ask() -> None:
            assert (await client.get(peer.url)).text == "at last"

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked(0.02)
        go.set()


async def test_a_cancelled_request_closes_its_connection(open_peer) -> None:
    """Also while its body is read."""
    for handler in (silent, half):
        transport = SocketTransport()
        async with open_peer(handler) as peer, httpx.AsyncClient(transport=transport) as client:
            with trio.move_on_after(0.05) as scope:
                await client.get(peer.url)
            assert scope.cancelled_caught
            assert transport.statistics().open == 0


async def test_https_through_httpx(open_peer, echo) -> None:
    """With the context of the transport's settings."""
    authority = trustme.CA()
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server_context)
    client_context = ssl.create_default_context()
    authority.configure_trust(client_context)
    transport = SocketTransport(TransportSettings(ssl_context=client_context))
    async with open_peer(echo, ssl_context=server_context) as peer, httpx.AsyncClient(transport=transport) as client:
        assert (await client.post(peer.url, content=b"x" * 100_000)).content == b"x" * 100_000


async def test_the_transport_can_be_used_without_a_client(open_peer, echo) -> None:
    """As httpx's own: enter it, handle a request, read and close its stream."""
    async with open_peer(echo) as peer, SocketTransport() as transport:
        response = await transport.handle_async_request(httpx.Request("POST", peer.url, content=b"x"))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        assert b"".join([chunk async for chunk in response.stream]) == b"x"
        await response.aclose()
        assert transport.statistics().idle == 1
    assert transport.statistics().open == 0
