"""`open_server`: one ASGI app on a socket of its own, for the length of a block."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio
from hypercorn.config import Config

from ._disconnect import App
from ._limits import ServeLimits
from ._serve import serve

__all__ = ["ServedApp", "open_server"]


@attrs.frozen
class ServedApp:
    """A server that is up: requests to ``url`` reach the app."""

    url: str  # "http://host:port", without a slash at the end
    host: str
    port: int


@asynccontextmanager
async def open_server(
    app: App,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    config: Config | None = None,
    limits: ServeLimits | None = None,
) -> AsyncIterator[ServedApp]:
    """Serve ``app`` inside the block; port 0 takes a free one. Adds nothing to the app.

    **Cancellation**: leaving the block, cancelled or not, is a graceful shutdown: see `serve`.

    **Errors**: `ServerStartError`, `GymError` and `OSError` as `serve`. An error of the block's own is raised as it is.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    bound = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    stop = trio.Event()
    run = partial(serve, app, config, sockets=[listener], limits=limits, shutdown_trigger=stop.wait)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(run, name=f"serve {shown}:{bound}")
            try:
                yield ServedApp(url=f"http://{shown}:{bound}", host=host, port=bound)
            finally:
                stop.set()
    except BaseExceptionGroup as group:
        # The nursery's wrapping is nobody's concern outside.
        if len(group.exceptions) > 1:
            raise
        failure = group.exceptions[0]
    finally:
        listener.close()
    if failure is not None:
        raise failure
