"""A registry's life: `open_session_registry`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import trio

from ._registry import SessionRegistry
from ._timeouts import SessionTimeouts


async def _reap(registry: SessionRegistry[Any], scope: trio.CancelScope) -> None:
    with scope:
        await registry.reap()


@contextlib.asynccontextmanager
async def open_session_registry(
    *,
    name: str,
    session_close_timeout_seconds: float = 60.0,
    session_close_retry_window_seconds: float = 300.0,
    idle_ttl_seconds: float | None = None,
    absolute_ttl_seconds: float | None = None,
    minted_idle_ttl_seconds: float | None = 21600.0,
    minted_absolute_ttl_seconds: float | None = None,
) -> AsyncIterator[SessionRegistry[Any]]:
    """A registry for the block; leaving it drains.

    The times to live without ``minted`` are those of seeded sessions, off by default.

    **Ownership**: every open and close ends before the block does. Code that ignores its cancellation delays that.

    **Cancellation**: of the block cancels neither the drain nor a close; their own deadlines bound them.

    **Errors**: `ConfigError` for a time that is not finite or is negative, before anything starts.
    What the block raises comes out in a group, as from a nursery.
    """
    given: dict[str, Any] = {
        "session_close_timeout_seconds": session_close_timeout_seconds,
        "session_close_retry_window_seconds": session_close_retry_window_seconds,
        "idle_ttl_seconds": idle_ttl_seconds,
        "absolute_ttl_seconds": absolute_ttl_seconds,
        "minted_idle_ttl_seconds": minted_idle_ttl_seconds,
        "minted_absolute_ttl_seconds": minted_absolute_ttl_seconds,
    }
    timeouts = SessionTimeouts(**given)
    async with trio.open_nursery() as nursery:
        registry: SessionRegistry[Any] = SessionRegistry(nursery, name, timeouts)
        reaping = trio.CancelScope()
        nursery.start_soon(_reap, registry, reaping, name=f"{name}: session reaper")
        try:
            yield registry
        finally:
            with trio.CancelScope(shield=True):
                await registry.drain()
            registry.retire()
            reaping.cancel()
