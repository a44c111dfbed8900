"""Servers whose sessions do what the test says, and clients that keep cookies or do not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import SessionSetupError
from gym_trio.http import MemoryTransport, Response, ServerClient, open_lifespan, open_server, open_socket_transport
from gym_trio.servers import AgentServer, RequestBody, ResourcesServer, Server, tool

EPISODE = {"rollout_id": "1-0", "attempt": 0}
TASK = {"taskset": "t", "task_id": "1"}


class Agent(AgentServer):
    """Opens and closes as it is told, and keeps books."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"name": "agent", **options})
        self.open_seconds = 0.0
        self.close_seconds = 0.0
        self.fail_closes = 0
        self.fail_open: Exception | None = None
        self.partial_when_cancelled = True
        self.opened: list[str] = []
        self.closing: list[str] = []
        self.closed: list[str] = []
        self.cancelled_opens = 0
        self.sessions_seen: list[Any] = []

    async def open_session(self, seed: RequestBody) -> Any:
        state = {"id": seed.agent_session_id, "checkpoint": 0}
        try:
            await trio.sleep(self.open_seconds)
        except trio.Cancelled:
            self.cancelled_opens += 1
            if not self.partial_when_cancelled:
                raise
            self.opened.append(seed.agent_session_id)
            raise SessionSetupError(state) from None
        if self.fail_open is not None:
            raise self.fail_open
        self.opened.append(seed.agent_session_id)
        return state

    async def close_session(self, state: Any) -> Any:
        self.closing.append(state["id"])
        await trio.sleep(self.close_seconds)
        if self.fail_closes:
            self.fail_closes -= 1
            raise RuntimeError("the sandbox is gone")
        self.closed.append(state["id"])
        return {"turns": state["checkpoint"]}

    async def responses(self, request: RequestBody) -> Any:
        self.sessions_seen.append(request.agent_session)
        if request.agent_session is not None:
            request.agent_session["checkpoint"] += 1
        await trio.sleep(request.get("seconds", 0))
        return {"output": [], "cookies": dict(request.cookies)}

    async def run(self, request: RequestBody) -> Any:
        await trio.sleep(request.get("seconds", 0))
        return {"reward": 1.0}


class Shop(ResourcesServer):
    """An environment whose sessions are counted and must be closed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"name": "shop", **options})
        self.made = 0
        self.disposed: list[Any] = []
        self.seed_seconds = 0.0
        self.create_seconds = 0.0
        self.fail_disposals = 0

    async def create_session(self) -> Any:
        await trio.sleep(self.create_seconds)
        self.made += 1
        return {"number": self.made, "count": 0}

    async def dispose_session(self, session: Any) -> None:
        if self.fail_disposals:
            self.fail_disposals -= 1
            raise RuntimeError("cannot dispose")
        self.disposed.append(session["number"])

    async def seed_session(self, session: Any, row: RequestBody) -> Any:
        await trio.sleep(self.seed_seconds)
        if row.get("bad"):
            raise RuntimeError("a bad row")
        session["count"] = row.get("start", 0)
        return {"start": session["count"]}

    @tool
    async def add(self, session: Any, *, amount: int) -> dict[str, Any]:
        session["count"] += amount
        return {"count": session["count"], "number": session["number"]}

    async def verify(self, session: Any, request: RequestBody) -> float:
        return float(session["count"])


@attrs.define
class Peer:
    """A client of one server. ``fresh`` requests send no cookies; the others keep them, as a browser does."""

    client: ServerClient
    name: str
    jar: dict[str, str] = attrs.field(factory=dict)

    async def post(self, path: str, body: Any = None, *, fresh: bool = False) -> Response:
        jar = {} if fresh else self.jar
        response = await self.client.post(self.name, path, json={} if body is None else body, cookies=jar or None)
        if not fresh:
            self.jar.update(response.cookies())
        return response

    async def get(self, path: str) -> Any:
        return (await self.client.get(self.name, path)).json()

    async def seed(self, session_id: str = "a", *, fresh: bool = False, **more: Any) -> Response:
        body = {"agent_session_id": session_id, "episode_id": EPISODE, "task_id": TASK, **more}
        return await self.post("/v1/agent_sessions", body, fresh=fresh)

    async def close(self, session_id: str = "a", *, fresh: bool = False, episode: Any = EPISODE) -> Response:
        body = {"agent_session_id": session_id, "episode_id": episode}
        return await self.post("/v1/agent_sessions/close", body, fresh=fresh)

    def another(self) -> Peer:
        """Another client of the same server, without cookies."""
        return Peer(self.client, self.name)


OpenPeer = Callable[..., AbstractAsyncContextManager[Peer]]


@pytest.fixture
def open_peer() -> OpenPeer:
    """``open_peer(server, "memory" | "sockets")``: the server runs for the block."""

    @asynccontextmanager
    async def opened(server: Server, serve: Literal["memory", "sockets"] = "memory") -> AsyncIterator[Peer]:
        client = ServerClient()
        if serve == "memory":
            async with open_lifespan(server.app, server=server.name) as state:
                client.register(server.name, MemoryTransport(server.app, state=state), f"http://{server.name}")
                yield Peer(client, server.name)
        else:
            async with open_server(server.app) as running, open_socket_transport() as transport:
                client.register(server.name, transport, running.url)
                yield Peer(client, server.name)

    return opened


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def make_agent() -> type[Agent]:
    return Agent


@pytest.fixture
def make_shop() -> type[Shop]:
    return Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def episode() -> dict[str, Any]:
    return EPISODE


@pytest.fixture
def until() -> Callable[..., Any]:
    """Wait over a socket for what the other side must come to; the test's own limit ends a vain wait."""

    async def wait(condition: Callable[[], bool]) -> None:
        while not condition():
            await wait_all_tasks_blocked(0.002)

    return wait
