"""The same Starlette app for every server that has no framework of its own, and one without a framework at all."""

from __future__ import annotations

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def echo(request: Request) -> JSONResponse:
    return JSONResponse(await request.json())


def make_app() -> Starlette:
    return Starlette(routes=[Route("/echo", echo, methods=["POST"])])


async def bare(scope, receive, send):
    """Reads JSON and answers it, in the form in which Starlette answers it."""
    if scope["type"] != "http":
        return await make_app()(scope, receive, send)
    body = orjson.dumps(orjson.loads((await receive())["body"]))
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
