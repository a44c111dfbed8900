"""`open_server`: one ASGI app on a socket of its own, for the length of a block."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio
from hypercorn.config import Config, Sockets

from ._disconnect import App
from ._serve import serve

__all__ = ["ServedApp", "open_server"]


@attrs.frozen
class ServedApp:
    """A server that is up: requests to ``url`` reach the app."""

    url: str  # "http://host:port", without a slash at the end
    host: str
    port: int


@asynccontextmanager
async def open_server(app: App, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[ServedApp]:
    """Serve ``app`` inside the block; port 0 takes a free one. Leaving the block is a graceful shutdown."""
    config = Config()
    config.errorlog = None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=4096) as listener:
        listener.setblocking(False)
        bound = listener.getsockname()[1]
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(serve, app, config, sockets=Sockets([], [listener], []), shutdown_trigger=stop.wait)
            )
            try:
                shown = f"[{host}]" if ":" in host else host
                yield ServedApp(url=f"http://{shown}:{bound}", host=host, port=bound)
            finally:
                stop.set()
