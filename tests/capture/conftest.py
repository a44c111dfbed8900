"""Model servers in memory whose calls are captured."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest

from gym_trio.capture import CaptureSettings, CaptureStore, open_capture_store
from gym_trio.http import MemoryTransport, Response, ServerClient, open_lifespan
from gym_trio.servers import CallOutcome, ModelCall, ModelServer
from gym_trio.testing import ScriptedModel


@attrs.define
class Running:
    """A client of captured model servers, and their store."""

    client: ServerClient
    store: CaptureStore

    async def ask(
        self, rollout: str, body: dict[str, Any], path: str = "/v1/responses", server: str = "model"
    ) -> Response:
        return await self.client.post(server, f"/ng-rollout/{rollout}{path}", json=body)


@pytest.fixture
def open_captured():
    """Opens model servers (by default one that is scripted) with a store."""

    @contextlib.asynccontextmanager
    async def open_it(*servers: ModelServer, replies: Any = ("hello",), **settings: Any) -> AsyncIterator[Running]:
        client = ServerClient()
        async with open_capture_store(CaptureSettings(**settings)) as store, contextlib.AsyncExitStack() as stack:
            for server in servers or (ScriptedModel(replies, name="model"),):
                server.recorder = store
                state = await stack.enter_async_context(open_lifespan(server.app, server=server.name))
                client.register(server.name, MemoryTransport(server.app, state=state), f"http://{server.name}")
            yield Running(client, store)

    return open_it


def call(text: str, call_id: str | None = None) -> list[dict[str, Any]]:
    """Output items: a message, and a tool call when ``call_id`` is given."""
    part = {"type": "output_text", "text": text, "annotations": []}
    items: list[dict[str, Any]] = [
        {"id": f"msg_{text}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    ]
    if call_id is not None:
        items.append(
            {"id": f"fc_{call_id}", "type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}
        )
    return items


@pytest.fixture
def items():
    """Makes output items of a model call."""
    return call


@pytest.fixture
def model_call():
    """Makes the record of one answered call of a rollout."""

    def make(rollout_id: str | None, response: Any = None, *, started_at: float = 1.0, **more: Any) -> ModelCall:
        made = ModelCall(
            server="model",
            rollout_id=rollout_id,
            api="responses",
            request={"input": "x"},
            response={"id": "resp_1", "output": []} if response is None else response,
            outcome=CallOutcome.COMPLETED,
            status=200,
            error=None,
            started_at=started_at,
            duration_seconds=0.5,
            first_byte_seconds=0.4,
            streamed=False,
            attempts=(),
        )
        return attrs.evolve(made, **more)

    return make
