"""`open_fake_gym`: a gym whose one agent is a function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from ..gym import Gym, open_gym_of
from ..http import ServerClient
from ..servers import AgentServer, RequestBody

__all__ = ["open_fake_gym"]

Run = Callable[[dict[str, Any]], Awaitable[Any]]


class FakeAgent(AgentServer):
    """An agent whose rollout is one call of a function."""

    def __init__(self, run: Run, client: ServerClient) -> None:
        super().__init__(name="agent", client=client)
        self._run = run

    async def run(self, request: RequestBody) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = await self._run(dict(request))
        return answer


@asynccontextmanager
async def open_fake_gym(run: Run, *, serve: Literal["memory", "sockets"] = "memory") -> AsyncIterator[Gym]:
    """A `Gym` with one agent, named ``"agent"``, whose rollouts are ``await run(row)``; the result is a JSON object.

    Everything between is real: routes, JSON, failures, cancellation. What ``run`` raises fails that rollout.

    **Cancellation**: a rollout that is cancelled cancels its ``run``.
    """
    client = ServerClient()
    async with open_gym_of([FakeAgent(run, client)], client, serve=serve) as gym:
        yield gym
