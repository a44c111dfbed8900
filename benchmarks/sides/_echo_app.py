"""The same Starlette app for every server that has no framework of its own."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def echo(request: Request) -> JSONResponse:
    return JSONResponse(await request.json())


def make_app() -> Starlette:
    return Starlette(routes=[Route("/echo", echo, methods=["POST"])])
