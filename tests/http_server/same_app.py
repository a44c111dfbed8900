"""One app for every server: `app` is what ``hypercorn --worker-class trio same_app:app`` loads too."""

from __future__ import annotations

import contextlib

import trio
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from gym_trio import CancelOnDisconnect


@contextlib.asynccontextmanager
async def lifespan(app):
    yield {"log": [], "hanging": {"now": 0, "cancelled": 0}}


async def echo(request) -> JSONResponse:
    return JSONResponse({"got": await request.json(), "query": dict(request.query_params), "path": request.url.path})


async def size(request) -> PlainTextResponse:
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
    return PlainTextResponse(str(total))


async def count(request) -> StreamingResponse:
    async def numbers():
        for number in range(5):
            yield f"data: {number}\n\n"
            await trio.sleep(0.001)

    return StreamingResponse(numbers(), media_type="text/event-stream")


async def hang(request) -> PlainTextResponse:
    hanging = request.state.hanging
    hanging["now"] += 1
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        hanging["cancelled"] += 1
        raise
    finally:
        hanging["now"] -= 1


async def hanging(request) -> JSONResponse:
    return JSONResponse(request.state.hanging)


async def fail(request) -> PlainTextResponse:
    raise ValueError("mine")


async def background(request) -> PlainTextResponse:
    async def work() -> None:
        await trio.sleep(0.01)
        request.state.log.append("worked")

    return PlainTextResponse("ok", background=BackgroundTask(work))


async def log(request) -> JSONResponse:
    return JSONResponse(request.state.log)


async def large(request) -> PlainTextResponse:
    return PlainTextResponse("x" * 3_000_000)


app = CancelOnDisconnect(
    Starlette(
        routes=[
            Route("/echo/{rest:path}", echo, methods=["POST"]),
            Route("/size", size, methods=["POST"]),
            Route("/count", count),
            Route("/hang", hang, methods=["GET", "POST"]),
            Route("/hanging", hanging),
            Route("/fail", fail),
            Route("/large", large),
            Route("/background", background),
            Route("/log", log),
        ],
        lifespan=lifespan,
    )
)
