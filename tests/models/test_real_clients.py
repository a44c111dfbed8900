"""The real ``openai`` and ``anthropic`` clients against a model server, whole and streamed."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anthropic
import openai
import pytest
import trio

from gym_trio.http import open_server
from gym_trio.testing import ScriptedModel

REPLIES = [
    [
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "It is asked for two cities."}],
        },
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "call_id": "c1",
            "name": "get_weather",
            "arguments": '{"city":"Rom"}',
            "status": "completed",
        },
        {
            "id": "fc_2",
            "type": "function_call",
            "call_id": "c2",
            "name": "get_weather",
            "arguments": '{"city":"Oslo"}',
            "status": "completed",
        },
    ],
    "Sunny in Rom, snow in Oslo.",
]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture
async def server():
    """A scripted model on a port."""
    async with open_server(ScriptedModel(REPLIES).app) as running:
        yield running


@asynccontextmanager
async def open_openai(url: str, rollout: str):
    async with openai.AsyncOpenAI(base_url=f"{url}/ng-rollout/{rollout}/v1", api_key="k", max_retries=0) as client:
        yield client


@asynccontextmanager
async def open_anthropic(url: str, rollout: str):
    async with anthropic.AsyncAnthropic(base_url=f"{url}/ng-rollout/{rollout}", api_key="k", max_retries=0) as client:
        yield client


def plain(part):
    """A client's object as JSON, without what the client itself adds to it."""
    made = part.to_dict()
    for inner in (made, *made.get("content", ())):
        for own in ("parsed", "parsed_arguments", "parsed_output"):
            inner.pop(own, None)
    return made


async def test_openai_responses(server) -> None:
    """`responses.create` and `responses.stream` give the same items, and the conversation goes on with them."""
    tools = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": True}]
    async with open_openai(server.url, "0-0") as client:
        response = await client.responses.create(model="m", input="weather?", tools=tools)
        assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
        assert response.output_text == "I look."
        output = [item.model_dump(exclude_none=True) for item in response.output]
        results = [{"type": "function_call_output", "call_id": call, "output": "x"} for call in ("c1", "c2")]
        again = await client.responses.create(
            model="m", input=[{"role": "user", "content": "weather?"}, *output, *results]
        )
        assert again.output_text == REPLIES[1]
        assert again.usage is not None
        assert again.usage.total_tokens > 0
    async with (
        open_openai(server.url, "0-1") as client,
        client.responses.stream(model="m", input="weather?") as stream,
    ):
        kinds = [event.type async for event in stream]
        streamed = await stream.get_final_response()
    assert [plain(item) for item in streamed.output] == [plain(item) for item in response.output]
    assert kinds[0] == "response.created"
    assert kinds.count("response.function_call_arguments.delta") == 2


def stream_chat(url: str, messages):
    """With the synchronous client: the other one leaves its generators to asyncio to finish."""
    with (
        openai.OpenAI(base_url=f"{url}/ng-rollout/1-1/v1", api_key="k", max_retries=0) as client,
        client.chat.completions.stream(model="m", messages=messages, stream_options={"include_usage": True}) as stream,
    ):
        for _ in stream:
            pass
        return stream.get_final_completion()


async def test_openai_chat_completions(server) -> None:
    """`chat.completions.create` and the accumulating stream give the same message, parallel calls included."""
    messages = [{"role": "user", "content": "weather?"}]
    async with open_openai(server.url, "1-0") as client:
        whole = await client.chat.completions.create(model="m", messages=messages)
    streamed = await trio.to_thread.run_sync(stream_chat, server.url, messages)
    for completion in (whole, streamed):
        choice = completion.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "I look."
        assert [(call.id, call.function.arguments) for call in choice.message.tool_calls] == [
            ("c1", '{"city":"Rom"}'),
            ("c2", '{"city":"Oslo"}'),
        ]
        assert completion.usage.completion_tokens > 0
    assert whole.choices[0].message.reasoning_content == "It is asked for two cities."


async def test_anthropic_messages(server) -> None:
    """`messages.create` and `messages.stream` give the same blocks, and the conversation goes on with them."""
    messages = [{"role": "user", "content": "weather?"}]
    tools = [{"name": "get_weather", "input_schema": PARAMETERS}]
    async with open_anthropic(server.url, "2-0") as client:
        whole = await client.messages.create(model="m", max_tokens=99, messages=messages, tools=tools)
        assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert whole.stop_reason == "tool_use"
        results = [{"type": "tool_result", "tool_use_id": call, "content": "x"} for call in ("c1", "c2")]
        again = await client.messages.create(
            model="m",
            max_tokens=99,
            messages=[
                *messages,
                {"role": "assistant", "content": [block.model_dump() for block in whole.content]},
                {"role": "user", "content": results},
            ],
        )
        assert again.content[0].text == REPLIES[1]
        assert again.stop_reason == "end_turn"
    async with (
        open_anthropic(server.url, "2-1") as client,
        client.messages.stream(model="m", max_tokens=99, messages=messages) as stream,
    ):
        async for _ in stream:
            pass
        streamed = await stream.get_final_message()
    assert [plain(block) for block in streamed.content] == [plain(block) for block in whole.content]
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    assert streamed.stop_reason == "tool_use"


async def test_errors_are_those_of_the_clients(server) -> None:
    """Each client raises its own error for a request that cannot be converted, with the reason in it."""
    async with open_openai(server.url, "3-0") as client:
        with pytest.raises(openai.BadRequestError, match="several choices"):
            await client.chat.completions.create(model="m", messages=[], n=2)
    async with open_anthropic(server.url, "3-1") as client:
        with pytest.raises(anthropic.BadRequestError, match="search_result"):
            await client.messages.create(
                model="m",
                max_tokens=9,
                messages=[{"role": "user", "content": [{"type": "search_result", "source": "x", "title": "x"}]}],
            )
    async with open_openai(server.url, "3-2") as client:
        for reply in REPLIES:
            assert (await client.responses.create(model="m", input="x")).output, reply
        with pytest.raises(openai.InternalServerError, match="2 replies"):
            await client.responses.create(model="m", input="x")
