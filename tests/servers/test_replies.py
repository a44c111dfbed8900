"""What a handler answers with is the same in memory, below a layer of its author's, and over a socket."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.middleware import Middleware
from starlette.routing import Route

from gym_trio.http import MemoryTransport, Origin, Request, open_lifespan, open_server, open_socket_transport
from gym_trio.servers import JsonEndpoint, Reply, RequestBody, ResourcesServer

SHARED = [(b"x-shared", b"1")]  # as an author may write it who does not know that headers are a tuple
OURS = frozenset({b"date", b"server", b"connection"})


class Answering(ResourcesServer):
    """It answers every request with ``reply``."""

    reply: Any = None

    def routes(self) -> Any:
        return [self.route("POST", "/answer", self.answer), *super().routes()]

    async def answer(self, request: RequestBody) -> Any:
        request.cookies["whose"] = request.whose
        return self.reply


def below_a_layer(app: Any) -> Any:
    async def layer(scope: Any, receive: Any, send: Any) -> None:
        async def look(message: Any) -> None:
            await send(message)

        await app(scope, receive, look)

    return layer


async def answers(reply: Any, make: Any = Answering) -> list[Any]:
    """Status, headers and body, or the error: in memory at once, in memory in parts, over a socket; then once more."""
    server = make(name="env")
    server.reply = reply
    seen: list[Any] = []
    async with open_lifespan(server.app) as state, open_socket_transport() as sockets, open_server(server.app) as real:
        ways = [
            (MemoryTransport(server.app, state=state), "http://env"),
            (MemoryTransport(below_a_layer(server.app), state=state), "http://env"),
            (sockets, real.url),
        ]
        for transport, url in ways * 2:
            origin, target = Origin.parse(f"{url}/answer")
            whose = b'{"whose": "mine"}' if len(seen) < len(ways) else b'{"whose": "other"}'
            response = await transport.send(Request("POST", origin, target, body=whose))  # type: ignore[attr-defined]
            headers = sorted(pair for pair in response.raw_headers if pair[0] not in OURS)
            seen.append((response.status, headers, response.body))
    return seen


@pytest.mark.parametrize(
    "reply",
    [
        {"a": 1},
        Reply(b"abc"),
        *(Reply({"a": 1}, status=status) for status in (204, 304, 503, 99, 100, "200", 200.0, None)),
        *(Reply(b"abc", headers=((b"Content-Length", length),)) for length in (b"3", b"4", b"0", b"03", b"-3", b"x")),
        Reply(b"", headers=((b"content-length", b"3"),)),
        Reply({}, headers=((b"transfer-encoding", b"chunked"), (b"connection", b"close"))),
        Reply({}, headers=((b"x", b"a\r\nb"),)),
        *(Reply({}, headers=((name, b"v"),)) for name in (b"", b"a b", b"a:b", b"\xe4", b"X-Fit_1")),
        Reply({}, headers=(("x", "y"),)),  # type: ignore[arg-type]
        Reply({}, headers=SHARED),  # type: ignore[arg-type]
    ],
)
async def test_a_reply_is_the_same_wherever_its_server_is(reply: Any, caplog: Any) -> None:
    """Also one that cannot be sent; and it has the cookies of its own request alone."""
    caplog.set_level(logging.CRITICAL)
    seen = await answers(reply)
    for each, whose in ((seen[:3], b"mine"), (seen[3:], b"other")):
        assert each[0] == each[1] == each[2]
        cookies = [value for name, value in each[0][1] if name == b"set-cookie"]
        if each[0][2] != b"Internal Server Error\n":
            assert [cookie.partition(b";")[0] for cookie in cookies] == [b"whose=" + whose]
    assert SHARED == [(b"x-shared", b"1")]


class Layer:
    """An ASGI middleware."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def stamp(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"x-path", scope["path"].encode())]}
            await send(message)

        await self.app(scope, receive, stamp)


class Stamping(JsonEndpoint):
    """An author's endpoint: it sees each request, and has a header of its own."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await Layer(super().__call__)(scope, receive, send)


class Renamed(Stamping):
    """It inherits the call."""


class Outer(Answering):
    """Its endpoints are of its author's making, each in another way."""

    made: Any = None

    def routes(self) -> Any:
        return [type(self).made(self.answer), *ResourcesServer.routes(self)]


def called_on_instance(handler: Any) -> Route:
    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        await Stamping(handler, server="env")(scope, receive, send)

    route = Route("/answer", endpoint=JsonEndpoint(handler, server="env"), methods=["POST"])
    route.app = asgi
    return route


@pytest.mark.parametrize(
    "made",
    [
        lambda handler: Route("/answer", endpoint=Stamping(handler, server="env"), methods=["POST"]),
        lambda handler: Route("/answer", endpoint=Renamed(handler, server="env"), methods=["POST"]),
        lambda handler: Route(
            "/answer", endpoint=JsonEndpoint(handler, server="env"), methods=["POST"], middleware=[Middleware(Layer)]
        ),
        called_on_instance,
    ],
)
async def test_what_an_author_puts_around_an_answer_is_there_in_memory_too(made: Any, monkeypatch: Any) -> None:
    """An endpoint with a call of its own, a route's middleware, an app in its place."""
    monkeypatch.setattr(Outer, "made", made)
    seen = await answers({"a": 1}, Outer)
    for each in (seen[:3], seen[3:]):
        assert each[0] == each[1] == each[2]
        assert (b"x-path", b"/answer") in each[0][1]
