"""Gyms for agents: an environment and a model of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gym_trio.gym import Gym, open_gym_of
from gym_trio.http import ServerClient
from gym_trio.servers import Server

OpenServers = Callable[..., AbstractAsyncContextManager[Gym]]

REFERENCES = {
    "resources_server": {"type": "resources_servers", "name": "env"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}


@pytest.fixture
def open_servers() -> OpenServers:
    """``open_servers(cls, ..., agent=(cls, settings))``: a gym of these, named ``env``, ``policy_model``, ``agent``."""

    @asynccontextmanager
    async def opened(*made: tuple[type[Server], str, dict[str, Any]], serve: Any = "memory") -> AsyncIterator[Gym]:
        client = ServerClient()
        servers = [
            cls(name=name, config={**(REFERENCES if name == "agent" else {}), **config}, client=client)
            for cls, name, config in made
        ]
        async with AsyncExitStack() as stack:
            yield await stack.enter_async_context(open_gym_of(servers, client, serve=serve))

    return opened


@pytest.fixture
def saying() -> Any:
    def say(text: str) -> dict[str, Any]:
        part = {"type": "output_text", "text": text, "annotations": []}
        return {"type": "message", "role": "assistant", "content": [part]}

    return say


@pytest.fixture
def calling() -> Any:
    def call(name: Any, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
        return {"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id}

    return call
