"""`serve`: an ASGI app on hypercorn's configuration, sockets and lifespan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config, Sockets
from hypercorn.trio.run import worker_serve

from ._disconnect import App

__all__ = ["serve"]


async def serve(
    app: App,
    config: Config | None = None,
    *,
    sockets: Sockets | None = None,
    shutdown_trigger: Callable[[], Awaitable[object]] | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve ``app`` until ``shutdown_trigger`` returns."""
    await worker_serve(
        ASGIWrapper(app),  # type: ignore[arg-type]  # hypercorn narrows the ASGI callable
        config or Config(),
        sockets=sockets,
        shutdown_trigger=shutdown_trigger,
        task_status=task_status,
    )
