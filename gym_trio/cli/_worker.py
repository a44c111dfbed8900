"""The process of one managed server, with the arguments NAME LISTENER CONFIGURATION.

The numbers are inherited descriptors: a listening socket that is bound already, and the configuration as JSON. SIGINT
or SIGTERM shuts down in order: requests in flight get their grace, then sessions are drained.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import socket
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import orjson
import trio

from ..capture import CaptureSettings, open_capture_store
from ..config import GymConfig, load_config
from ..errors import GymError
from ..gym import build_server
from ..http import ServerClient, open_socket_transport, serve
from ..processes import READY_FD
from ..servers import ModelServer
from ._collector import collector_for_rollouts
from ._console import complain
from ._signals import open_interrupts
from ._telemetry import open_telemetry

__all__ = ["main"]


def main() -> None:
    """Serve until told to stop."""
    name, listener, configuration = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    described = _read(configuration)
    sys.path[:] = described["sys_path"]
    failures: list[BaseException] = []
    try:
        loaded = load_config(described["config"], env_yaml=False, env=os.environ)
        with open_telemetry(loaded):
            trio.run(_serve, loaded, name, listener, described["urls"], described["capture_folder"])
    except* GymError as group:
        failures.extend(_leaves(group))
    if failures:
        sys.exit(complain("; ".join(map(str, failures)), code=1))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _read(descriptor: int) -> Any:
    # Several workers share one open file, and with it its offset: each reads by position.
    return orjson.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))


async def _serve(loaded: GymConfig, name: str, listener: int, urls: dict[str, str], folder: str | None) -> None:
    stop = trio.Event()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_interrupts(stop.set))
        transport = await stack.enter_async_context(open_socket_transport())
        client = ServerClient({other: (transport, url) for other, url in urls.items()})
        server = build_server(loaded.server(name), client)
        if folder is not None and isinstance(server, ModelServer):
            settings = CaptureSettings(folder=pathlib.Path(folder))
            server.recorder = await stack.enter_async_context(open_capture_store(settings))
        with socket.socket(fileno=listener) as bound:
            bound.setblocking(False)
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(serve, server.app, sockets=[bound], shutdown_trigger=stop.wait))
                stack.enter_context(collector_for_rollouts())
                _say_ready(urls[name])


def _say_ready(url: str) -> None:
    descriptor = os.environ.get(READY_FD)
    if descriptor is not None:
        # Whoever waited for it may have given up, because another server did not come up. What follows is the stop.
        with contextlib.suppress(BrokenPipeError), os.fdopen(int(descriptor), "wb", buffering=0) as pipe:
            pipe.write(url.encode() + b"\n")
