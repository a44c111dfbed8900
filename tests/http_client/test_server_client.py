"""`ServerClient`: servers by name, JSON both ways, and no request sent twice unasked."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from gym_trio.errors import PeerDropped, TransportError, UsageError
from gym_trio.http import (
    CancelOnDisconnect,
    MemoryTransport,
    Origin,
    Request,
    Response,
    RetryPolicy,
    ServerClient,
    open_server,
    open_socket_transport,
)
from gym_trio.http._retry import Attempts


async def mirror(scope, receive, send) -> None:
    """Answers with what it was asked."""
    received = await receive()
    seen = {
        "method": scope["method"],
        "target": (scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")).decode(),
        "headers": [[name.decode(), value.decode()] for name, value in scope["headers"]],
        "body": received["body"].decode(),
    }
    content = json.dumps(seen).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"set-cookie", b"a=b")]})
    await send({"type": "http.response.body", "body": content})


@pytest.fixture
def client() -> ServerClient:
    return ServerClient({"agent": (MemoryTransport(mirror), "http://agent.test:8080/base/")})


async def headers_of(client: ServerClient, **fields: object) -> dict[str, str]:
    return dict((await client.post("agent", "/", **fields)).json()["headers"])


async def test_a_post_carries_json(client: ServerClient) -> None:
    """To the server's base URL and the path, with the headers that a server needs."""
    response = await client.post("agent", "/run", json={"a": ["ä", None, 1.5]})
    seen = response.json()
    assert (seen["method"], seen["target"]) == ("POST", "/base/run")
    assert json.loads(seen["body"]) == {"a": ["ä", None, 1.5]}
    headers = dict(seen["headers"])
    assert headers["host"] == "agent.test:8080"
    assert headers["content-type"] == "application/json"
    assert headers["content-length"] == str(len(seen["body"].encode()))
    assert response.server == "agent"
    assert response.cookies() == {"a": "b"}


async def test_bodies_can_be_null_absent_or_raw(client: ServerClient) -> None:
    """``json=None`` is the JSON null; nothing is no body; ``content`` goes as it is."""
    assert (await client.post("agent", "/", json=None)).json()["body"] == "null"
    assert (await client.post("agent", "/")).json()["body"] == ""
    assert (await client.post("agent", "/", content=b"raw")).json()["body"] == "raw"
    with pytest.raises(UsageError, match="exclude"):
        await client.post("agent", "/", json=1, content=b"raw")


@pytest.mark.parametrize("value", [2**70, "\ud800", {"a": [-(2**65)]}])
async def test_json_that_a_strict_writer_refuses_is_sent_all_the_same(client: ServerClient, value: object) -> None:
    """Large integers and halves of characters come back as they were."""
    body = (await client.post("agent", "/", json=value)).json()["body"]
    assert json.loads(body) == value


@pytest.mark.parametrize("value", [{1, 2}, object(), {"a": b"bytes"}])
async def test_what_cannot_be_json_is_a_usage_error(client: ServerClient, value: object) -> None:
    """Raised before anything is sent."""
    told = []
    with pytest.raises(UsageError, match="JSON"):
        await client.post("agent", "/", json=value, on_sent=lambda: told.append(1))
    assert told == []


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/run", "/base/run"),
        ("run", "/base/run"),
        ("", "/base/"),
        ("/a b/ä?q=1 2&r=%20", "/base/a%20b/%C3%A4?q=1%202&r=%20"),
        ("/v1/models/a:b@c", "/base/v1/models/a:b@c"),
        ("/x#y", "/base/x%23y"),
        ("/x\r\ny: z", "/base/x%0D%0Ay%3A%20z".replace("%3A", ":")),
    ],
)
async def test_paths_are_encoded_once(client: ServerClient, path: str, target: str) -> None:
    """What is encoded already stays as it is; nothing in a path can end the request line."""
    for _ in range(2):
        assert (await client.get("agent", path)).json()["target"] == target


async def test_headers_and_cookies_can_be_added_and_replaced(client: ServerClient) -> None:
    """The caller's headers win over ours."""
    headers = await headers_of(
        client, json=1, headers={"Content-Type": "x/y", "X-Id": "ü"}, cookies={"a": "b=", "c": "d"}
    )
    assert headers["content-type"] == "x/y"
    assert headers["x-id"] == "ü"
    assert headers["cookie"] == "a=b=; c=d"
    assert len(headers) == len(await headers_of(client, json=1)) + 2


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"x": "a\r\nb: c"}},
        {"headers": {"a b": "c"}},
        {"headers": {"x": "\ud800"}},
        {"cookies": {"a": "b; c=d"}},
        {"cookies": {"a=b": "c"}},
        {"cookies": {"a": "b\n"}},
    ],
)
async def test_headers_and_cookies_that_say_more_than_they_should_are_refused(client: ServerClient, fields) -> None:
    """In memory as over a socket."""
    with pytest.raises(UsageError):
        await client.post("agent", "/", **fields)
    with pytest.raises(UsageError):
        await client.get("agent", "/", **fields)


async def test_a_path_with_half_of_a_character_is_refused(client: ServerClient) -> None:
    """It has no encoding."""
    with pytest.raises(UsageError):
        await client.get("agent", "/\ud800")


async def test_a_server_that_is_not_known_is_named_with_those_that_are(client: ServerClient) -> None:
    """At once, for posts, gets and streams."""
    for call in (client.post, client.get):
        with pytest.raises(UsageError, match=r"'judge'.*agent"):
            await call("judge", "/")
    with pytest.raises(UsageError, match=r"'judge'.*agent"):
        client.stream("judge", "/")
    with pytest.raises(UsageError, match="none"):
        await ServerClient().get("judge", "/")


async def test_a_server_can_be_registered_anew(client: ServerClient) -> None:
    """Later requests go to its new place."""
    await client.get("agent", "/x")
    client.register("agent", MemoryTransport(mirror), "http://other")
    client.register("judge", MemoryTransport(mirror), "http://judge/v1")
    seen = (await client.get("agent", "/x")).json()
    assert (seen["target"], dict(seen["headers"])["host"]) == ("/x", "other")
    assert client.server_names == ("agent", "judge")
    assert "judge" in repr(client)
    for url in ("nonsense", "http://a/?q=1"):
        with pytest.raises(UsageError):
            client.register("wrong", MemoryTransport(mirror), url)


async def test_streams_give_the_head_and_then_the_body(client: ServerClient) -> None:
    """With JSON, headers and cookies as for a post."""
    async with client.stream("agent", "/sse", json={"a": 1}, headers={"accept": "text/event-stream"}) as response:
        assert response.status == 200
        seen = json.loads(b"".join([chunk async for chunk in response]))
    assert (seen["method"], seen["target"], seen["body"]) == ("POST", "/base/sse", '{"a":1}')
    assert dict(seen["headers"])["accept"] == "text/event-stream"
    async with client.stream("agent", "/", method="GET") as response:
        assert json.loads(b"".join([chunk async for chunk in response]))["method"] == "GET"


async def test_error_statuses_are_answers(open_peer) -> None:
    """Whatever the status, the request is sent once."""
    served = 0

    async def handler(incoming) -> None:
        nonlocal served
        while (await incoming.request())[0]:
            served += 1
            await incoming.answer(b"{}", b"HTTP/1.1 503 Service Unavailable")

    async with open_peer(handler) as peer, open_socket_transport() as transport:
        client = ServerClient({"peer": (transport, peer.url)})
        assert (await client.post("peer", "/", json=1)).status == 503
        assert served == 1


async def drops_twice(incoming) -> None:
    head, body = await incoming.request()
    if incoming.number > 2:
        await incoming.answer(head + b"\n" + body)


async def test_a_lost_connection_is_not_replayed_unasked(open_peer) -> None:
    """The server may have acted."""
    async with open_peer(drops_twice) as peer, open_socket_transport() as transport:
        client = ServerClient({"peer": (transport, peer.url)})
        with pytest.raises(PeerDropped):
            await client.post("peer", "/", json=1)
        assert peer.connections == 1


async def test_a_post_with_an_idempotency_key_is_replayed_within_its_policy(open_peer) -> None:
    """With the same key each time, a bounded number of times, and told as sent once."""
    told: list[int] = []
    for attempts in (3, 2):
        policy = RetryPolicy(attempts=attempts, first_wait_seconds=0.01)
        async with open_peer(drops_twice) as peer, open_socket_transport() as transport:
            client = ServerClient({"peer": (transport, peer.url)}, replay=policy)
            if attempts == 3:
                response = await client.post("peer", "/", json=1, idempotency_key="k-1", on_sent=lambda: told.append(1))
                assert b"idempotency-key: k-1" in response.body
                assert response.body.endswith(b"\n1")
                assert told == [1]
            else:
                with pytest.raises(PeerDropped):
                    await client.post("peer", "/", json=1, idempotency_key="k-2")
            assert peer.connections == attempts


async def test_what_cannot_be_sent_twice_takes_no_idempotency_key(client: ServerClient) -> None:
    """A body that is iterated is gone after the first time."""

    async def parts():
        yield b"x"

    source = parts()
    with pytest.raises(UsageError, match="idempotency"):
        await client.post("agent", "/", content=source, idempotency_key="k")
    await source.aclose()


async def test_what_is_kept_per_path_is_bounded(client: ServerClient) -> None:
    """However many rollout ids pass through."""
    for number in range(3000):
        await client.get("agent", f"/ng-rollout/{number}")
    assert len(client._servers["agent"].targets) <= 1024


def test_waits_grow_to_their_maximum() -> None:
    """Doubling, capped, one fewer than there are attempts."""
    policy = RetryPolicy(attempts=6, first_wait_seconds=0.1, max_wait_seconds=0.5)
    assert list(policy.waits()) == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])
    assert list(RetryPolicy(attempts=1).waits()) == []


async def test_attempts_end_with_their_time(autojump_clock) -> None:
    """No attempt begins later than the policy allows."""
    attempts = Attempts(RetryPolicy(attempts=100, first_wait_seconds=1, max_wait_seconds=1, total_seconds=3.5))
    count = 0
    while (seconds := attempts.next_wait()) is not None:
        await trio.sleep(seconds)
        count += 1
    assert count == 3


HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"X-A", b" b ")]}
PART = {"type": "http.response.body", "body": b"x", "more_body": True}
LAST = {"type": "http.response.body", "body": b"y"}
SCRIPTS: dict[str, tuple[object, ...]] = {
    "/early": (ValueError("early"),),
    "/head-only": (HEAD, ValueError("head only")),
    "/late": (HEAD, PART, ValueError("late")),
    "/short": ({**HEAD, "headers": [(b"content-length", b"9")]}, PART, LAST),
    "/long": ({**HEAD, "headers": [(b"content-length", b"1")]}, PART, LAST),
    "/whole-long": ({**HEAD, "headers": [(b"content-length", b"0")]}, LAST),
    "/empty": ({**HEAD, "status": 204}, {"type": "http.response.body"}),
    "/chunks": (HEAD, PART, {**PART, "body": b""}, LAST),
    "/unfinished": (HEAD, PART),
    "/silent": (),
    "/missing": ({**HEAD, "status": 404}, LAST),
    "/order": (LAST,),
    "/done": (HEAD, LAST, ValueError("after")),
}


async def scripted(scope, receive, send) -> None:
    """Says what the script of its path has, and raises what is an exception."""
    if scope["type"] == "lifespan":
        raise ValueError("none")
    if scope["path"] == "/mirror":
        await mirror(scope, receive, send)
    for message in SCRIPTS.get(scope["path"], ()):
        if isinstance(message, Exception):
            raise message
        await send(message)


async def outcome(client: ServerClient, path: str, streamed: bool) -> object:
    try:
        if streamed:
            async with client.stream("app", path, json={"a": 1}) as stream:
                body = b"".join([chunk async for chunk in stream])
                status, pairs = stream.status, stream.headers.multi_items()
        else:
            response = await client.post("app", path, json={"a": 1}, headers={"X-Y": " z "}, cookies={"k": "v"})
            status, body, pairs = response.status, response.body, response.headers.multi_items()
    except TransportError as exc:
        return type(exc), exc.delivery
    return status, body, sorted(pair for pair in pairs if pair[0] not in {"date", "server", "transfer-encoding"})


@pytest.mark.parametrize("path", ["/mirror", *SCRIPTS])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("layer", [lambda app: app, CancelOnDisconnect], ids=["bare", "CancelOnDisconnect"])
async def test_memory_and_sockets_cannot_be_told_apart(layer, path: str, streamed: bool) -> None:
    """The same app, asked the same thing, gives the same answer or the same error over both."""
    app = layer(scripted)
    async with open_server(app) as server, open_socket_transport() as transport:
        over_socket = await outcome(ServerClient({"app": (transport, server.url)}), path, streamed)
        in_memory = await outcome(ServerClient({"app": (MemoryTransport(app), server.url)}), path, streamed)
        assert in_memory == over_socket


class Watched:
    """A transport, and the requests that were given to it."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        return await self.inner.send(request)

    def stream(self, request: Request):
        self.requests.append(request)
        return self.inner.stream(request)


@pytest.mark.parametrize("where", ["sockets", "memory"])
@pytest.mark.parametrize("how", ["post", "stream", "content", "idempotent", "by hand"])
async def test_a_long_body_does_not_wait_for_its_answer(where: str, how: str) -> None:
    """It is let go of once it has been handed over; not where it may have to be sent again."""
    told, go = trio.Event(), trio.Event()
    bodies = []

    async def app(scope, receive, send) -> None:
        assert scope["type"] == "http"  # what an app without a lifespan says
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        bodies.append(body)
        told.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"{}"})

    async def ask(client: ServerClient, transport: Watched, url: str) -> None:
        text = "x" * 300_000
        if how == "stream":
            async with client.stream("agent", "/", json=text) as response:
                assert b"".join([chunk async for chunk in response]) == b"{}"
            return
        if how == "by hand":
            response = await transport.send(Request("POST", Origin.parse(url)[0], b"/", body=json.dumps(text).encode()))
        elif how == "content":
            response = await client.post("agent", "/", content=json.dumps(text).encode())
        else:
            response = await client.post("agent", "/", json=text, idempotency_key="1" if how == "idempotent" else None)
        assert response.json() == {}

    async with open_server(app) as server, open_socket_transport() as sockets:
        transport = Watched(sockets if where == "sockets" else MemoryTransport(app))
        client = ServerClient({"agent": (transport, server.url)})
        async with trio.open_nursery() as asking:
            asking.start_soon(ask, client, transport, server.url)
            await told.wait()
            await trio.testing.wait_all_tasks_blocked()
            kept = how in ("idempotent", "by hand")
            assert len(transport.requests[0].body) == (300_002 if kept else 0)
            go.set()
    assert [len(body) for body in bodies] == [300_002]
