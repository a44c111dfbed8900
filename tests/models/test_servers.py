"""Model servers of users' own and the scripted one: routes, rollouts, errors, records."""

from __future__ import annotations

import pytest
import trio

from gym_trio.capture import CaptureSettings, open_capture_store, read_captures
from gym_trio.errors import ConfigError, FormError, ModelCallError, RequestRefused
from gym_trio.http import MemoryTransport, ServerClient, open_lifespan
from gym_trio.models import IMPLEMENTATIONS
from gym_trio.models.scripted_model import ScriptedModelServer, turns_in
from gym_trio.models.vllm_model import VLLMModel
from gym_trio.servers import ModelServer
from gym_trio.testing import ScriptedModel


@pytest.fixture
def connect():
    """A client of one server in memory, without its lifespan."""

    def made(server: ModelServer) -> ServerClient:
        client = ServerClient()
        client.register("model", MemoryTransport(server.app), "http://model")
        return client

    return made


class Echo(ModelServer):
    """A user's own server: it defines what it must and no more."""

    async def responses(self, request):
        if request.get("input") == "refuse":
            raise RequestRefused(418, "a teapot")
        if request.get("input") == "break":
            raise LookupError("inside")
        return {
            "id": "resp_1",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": str(request["input"])}],
                }
            ],
        }


async def test_a_server_that_only_defines_responses_has_all_three_apis(connect) -> None:
    """Plain, under a rollout's prefix and under that of token capture; whole and streamed."""
    client = connect(Echo(name="echo"))
    for prefix in ("", "/ng-rollout/0-0", "/ng-rollout/0-0/training-token-capture"):
        chat = await client.post(
            "model", f"{prefix}/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]}
        )
        assert "'content': 'x'" in chat.json()["choices"][0]["message"]["content"]
        message = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "stream": True}
        async with client.stream("model", f"{prefix}/v1/messages", json=message) as stream:
            content = b"".join([chunk async for chunk in stream])
        assert content.startswith(b"event: message_start")
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_of_a_server_have_their_status_and_form(stream, connect, caplog) -> None:
    """Refused, broken, not JSON, no object: a status before the first byte, in the client's own form."""
    client = connect(Echo(name="echo"))

    async def post(body, path="/v1/responses", content=None):
        if content is not None:
            return await client.post("model", path, content=content)
        if not stream:
            return await client.post("model", path, json=body)
        async with client.stream("model", path, json={**body, "stream": True}) as answer:
            parts = [chunk async for chunk in answer]
        return type("Answer", (), {"status": answer.status, "text": b"".join(parts).decode()})

    refused = await post({"input": "refuse"})
    assert (refused.status, "a teapot" in refused.text) == (418, True)
    broken = await post({"input": "break"})
    assert (broken.status, "LookupError: inside" in broken.text) == (500, True)
    assert "a call failed" in caplog.text
    assert (await post({}, content=b"{")).status == 400
    assert (await post({}, content=b"[]")).status == 422
    wrong = await post({"messages": [{"role": "user"}]}, "/v1/messages")
    assert wrong.status in (200, 400)
    assert (await post({}, "/v1/nothing")).status == 404


async def test_a_server_that_defines_nothing_says_so(connect) -> None:
    """The method that must be defined is named."""
    answer = await connect(ModelServer(name="bare")).post("model", "/v1/responses", json={})
    assert (answer.status, "must define responses()" in answer.text) == (500, True)


async def test_each_rollout_has_its_own_place_in_the_script(connect) -> None:
    """The n-th call of each rollout gets the n-th reply, whatever others do; one more is an error that says so."""
    model = ScriptedModel(["a", "b"])
    client = connect(model)

    async def ask(rollout: str) -> str:
        answer = await client.post("model", f"/ng-rollout/{rollout}/v1/responses", json={"input": "x"})
        return answer.json()["output"][0]["content"][0]["text"] if answer.status == 200 else str(answer.status)

    assert [await ask(rollout) for rollout in ("0-0", "0-1", "0-0", "0-0-a1", "0-1", "0-0")] == [*"aabab", "500"]
    assert len(model.calls) == 6
    assert (model.calls[0]["input"], model.calls[0].rollout_id) == ("x", "0-0")


async def test_a_call_without_a_rollout_is_placed_by_its_conversation(connect) -> None:
    """The number of turns that the model has had decides."""
    client = connect(ScriptedModel(["a", "b", "c"]))
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "x"}
    for items, text in (
        ("x", "a"),
        (
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "y"}],
            "b",
        ),
        ([{"role": "user", "content": "x"}, call, result, {"role": "assistant", "content": "b"}], "c"),
    ):
        answer = (await client.post("model", "/v1/responses", json={"input": items})).json()
        assert answer["output"][0]["content"][0]["text"] == text
    assert turns_in([call, call, result, call]) == 2


async def test_a_script_forgets_rollouts_that_are_long_over(connect) -> None:
    """Memory is bounded, and a rollout that still calls keeps its place."""

    class Forgetful(ScriptedModel):
        remembered_rollouts = 2

    client = connect(Forgetful(["a", "b", "c"]))
    texts = []
    for rollout in ("0", "1", "0", "2", "0", "1"):
        answer = await client.post("model", f"/ng-rollout/{rollout}/v1/responses", json={"input": "x"})
        texts.append(answer.json()["output"][0]["content"][0]["text"])
    assert texts == ["a", "a", "b", "a", "c", "a"]


async def test_a_script_can_take_its_time(connect, autojump_clock) -> None:
    """``delay_seconds`` passes before each answer."""
    client = connect(ScriptedModel(["a"], delay_seconds=3))
    began = trio.current_time()
    await client.post("model", "/v1/responses", json={"input": "x"})
    assert trio.current_time() - began == 3


def test_a_script_that_is_none_is_refused() -> None:
    """The key is named."""
    with pytest.raises(ConfigError, match=r"m\.replies"):
        ScriptedModelServer(name="m", config={"replies": "hello"})


async def test_a_remote_model_without_its_lifespan_says_so(connect) -> None:
    """Whatever serves the app must run it; the error is not an attribute of ``None``."""
    server = VLLMModel(name="m", config={"base_url": "http://x", "model": "m"})
    answer = await connect(server).post("model", "/v1/responses", json={"input": "x"})
    assert "lifespan" in answer.text


async def test_methods_of_a_remote_model_answer_directly(open_vllm, chat_answer, autojump_clock) -> None:
    """A sub-class may call `responses`, `chat_completions` and `messages` of its parent."""

    class Mine(VLLMModel):
        async def answer(self, request):
            method = {"responses": self.responses, "chat_completions": self.chat_completions, "messages": self.messages}
            return await method[request.form](request)

    async with open_vllm(lambda *_: (200, {}, chat_answer("hello")), cls=Mine) as model:
        for path in ("/v1/responses", "/v1/chat/completions", "/v1/messages"):
            body = {"input": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
            assert "hello" in (await model.post(path, body)).text


async def test_a_lifespan_that_ends_badly_raises_what_was_raised() -> None:
    """No group is wrapped around it."""
    server = VLLMModel(name="m", config={"base_url": "http://x", "model": "m"})
    with pytest.raises(KeyError, match="mine"):
        async with open_lifespan(server.app, server="m"):
            raise KeyError("mine")


def test_every_implementation_can_be_imported() -> None:
    """The catalogue has no wrong entry."""
    import importlib

    for place in IMPLEMENTATIONS.values():
        module, _, name = place.partition(":")
        assert issubclass(getattr(importlib.import_module(module), name), ModelServer)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("bad \ud800"), 500),
        (FormError("bad \ud800"), 400),
        (ModelCallError("bad \ud800", status=503, kind="x"), 503),
        (ModelCallError("bad ?", status=503, kind="x", body={"error": {"message": "\ud800", "code": 2**70}}), 503),
    ],
)
async def test_an_error_of_half_a_character_is_answered_and_kept(error, status, streamed, tmp_path, connect) -> None:
    """Text that no UTF-8 can hold takes neither the refusal nor the capture of the whole run along."""

    class Failing(ModelServer):
        async def responses(self, request):
            raise error

    server = Failing(name="model")
    async with open_capture_store(CaptureSettings(folder=tmp_path)) as store:
        server.recorder = store
        body = {"input": "hi", "stream": streamed}
        answer = await connect(server).post("model", "/ng-rollout/0-0/v1/responses", json=body)
        assert await store.flush("0-0")
        (call,) = store.take("0-0").calls
    assert answer.status == call["status_code"] == status
    assert "bad ?" in answer.json()["failure"]["failure_reason"]
    assert "bad ?" in call["error"]
    assert len((await read_captures(tmp_path, "0-0")).calls) == 1
