from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gym_trio.gym import Gym, open_gym_of
from gym_trio.http import ServerClient
from gym_trio.servers import Server

Make = tuple[type[Server], str, dict[str, Any]]
OpenServers = Callable[..., AbstractAsyncContextManager[Gym]]


@pytest.fixture
def open_servers() -> OpenServers:
    """``open_servers((cls, name, config), ...)``: a gym of these servers, in memory or on sockets."""

    @asynccontextmanager
    async def opened(*made: Make, serve: Any = "memory") -> AsyncIterator[Gym]:
        client = ServerClient()
        servers = [cls(name=name, config=config, client=client) for cls, name, config in made]
        async with AsyncExitStack() as stack:
            yield await stack.enter_async_context(open_gym_of(servers, client, serve=serve))

    return opened
