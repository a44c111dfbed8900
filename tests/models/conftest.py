"""Back ends that do as they are told, and model servers in front of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import orjson
import pytest
import trio

from gym_trio.http import MemoryTransport, Response, ServerClient, open_lifespan
from gym_trio.models.openai_model import OpenAIModel
from gym_trio.models.vllm_model import VLLMModel
from gym_trio.servers import ModelCall


@attrs.define
class Asked:
    """One request that a back end got."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]


Answer = tuple[int, dict[str, str], Any]


class FakeBackEnd:
    """An ASGI app that answers with what ``answer(asked, number)`` returns: a status, headers and a body.

    A body is bytes, JSON, or an asynchronous iterator of bytes; ``None`` for the status breaks the connection.
    """

    def __init__(self, answer: Callable[[Asked, int], Any]) -> None:
        self._answer = answer
        self.asked: list[Asked] = []
        self.cancelled = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        content = b""
        while True:
            message = await receive()
            content += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        asked = Asked(scope["path"], orjson.loads(content) if content else {}, headers)
        self.asked.append(asked)
        try:
            answer = self._answer(asked, len(self.asked))
            if isinstance(answer, Awaitable):
                answer = await answer
            await self._send(answer, send)
        except trio.Cancelled:
            self.cancelled += 1
            raise

    async def _send(self, answer: Answer, send: Any) -> None:
        status, headers, body = answer
        stream = hasattr(body, "__aiter__")
        named = {"content-type": "text/event-stream" if stream else "application/json", **headers}
        pairs = [(name.encode(), value.encode()) for name, value in named.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        if stream:
            async with contextlib.aclosing(body) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            content = body if isinstance(body, bytes) else orjson.dumps(body)
            await send({"type": "http.response.body", "body": content})


class Records:
    """A recorder that keeps what it is given."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self.begun = 0

    def begin(self, rollout_id: str | None) -> None:
        self.begun += 1

    async def flush(self, rollout_id: str) -> bool:
        return self.begun == len(self.calls)

    def record(self, call: ModelCall) -> None:
        self.calls.append(call)


@attrs.define
class RunningModel:
    """A model server in memory in front of a fake back end."""

    client: ServerClient
    back_end: FakeBackEnd
    records: Records

    async def post(self, path: str, body: dict[str, Any], rollout: str = "0-0") -> Response:
        return await self.client.post("model", f"/ng-rollout/{rollout}{path}", json=body)

    async def respond(self, rollout: str = "0-0", **body: Any) -> Response:
        return await self.post("/v1/responses", {"input": "hi", **body}, rollout)

    async def stream(self, path: str, body: dict[str, Any], rollout: str = "0-0") -> bytes:
        sent = {**body, "stream": True}
        async with self.client.stream("model", f"/ng-rollout/{rollout}{path}", json=sent) as answer:
            return b"".join([chunk async for chunk in answer])


@contextlib.asynccontextmanager
async def open_model_server(
    cls: Any, answer: Callable[[Asked, int], Any], **config: Any
) -> AsyncIterator[RunningModel]:
    """``cls`` in memory, asking a `FakeBackEnd`."""
    back_end = FakeBackEnd(answer)
    server = cls(name="model", config=config, transport=MemoryTransport(back_end))
    server.recorder = records = Records()
    client = ServerClient()
    async with open_lifespan(server.app, server="model") as state:
        client.register("model", MemoryTransport(server.app, state=state), "http://model")
        yield RunningModel(client, back_end, records)


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def open_vllm() -> Callable[..., Any]:
    """Opens a ``vllm_model`` in front of a fake back end."""

    def open_it(answer: Callable[[Asked, int], Any], cls: Any = VLLMModel, **config: Any) -> Any:
        return open_model_server(cls, answer, **{"base_url": "http://backend/v1", "model": "m", **config})

    return open_it


@pytest.fixture
def open_breaking() -> Callable[..., Any]:
    """Opens a ``vllm_model`` whose transport is ``make(memory transport, *errors)``; gives that too."""

    @contextlib.asynccontextmanager
    async def open_it(make: Any, *errors: Exception) -> AsyncIterator[Any]:
        back_end = FakeBackEnd(lambda *_: (200, {}, completion()))
        transport = make(MemoryTransport(back_end), *errors)
        config = {"base_url": "http://backend/v1", "model": "m"}
        server = VLLMModel(name="model", config=config, transport=transport)
        client = ServerClient()
        async with open_lifespan(server.app, server="model") as state:
            client.register("model", MemoryTransport(server.app, state=state), "http://model")
            yield RunningModel(client, back_end, Records()), transport

    return open_it


@pytest.fixture
def open_openai_model() -> Callable[..., Any]:
    """Opens an ``openai_model`` in front of a fake back end."""

    def open_it(answer: Callable[[Asked, int], Any], **config: Any) -> Any:
        block = {"openai_base_url": "http://backend/v1", "openai_model": "m", "openai_api_key": SECRET, **config}
        return open_model_server(OpenAIModel, answer, **block)

    return open_it


SECRET = "sk-test-1234567890abcdef"


def completion(text: str = "hello", **more: Any) -> dict[str, Any]:
    """A chat completion that says ``text``."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1790000000,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
        **more,
    }


@pytest.fixture
def chat_answer() -> Callable[..., dict[str, Any]]:
    """Makes chat completions."""
    return completion


@pytest.fixture
def secret() -> str:
    """The API key of ``open_openai_model``."""
    return SECRET
