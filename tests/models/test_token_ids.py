"""The exact tokens of each call: on the answer, and unchanged in the next turn's request."""

from __future__ import annotations

import orjson
import pytest

from gym_trio.models._token_ids import generation_of, prompt_of
from gym_trio.servers import forms

KEYS = {"prompt_token_ids": [1, 2, 3], "generation_token_ids": [7, 8], "generation_log_probs": [-0.5, -0.25]}
ENTRIES = [{"token": "token_id:7", "logprob": -0.5}, {"token": "token_id:8", "logprob": -0.25}]


def answer_with(**choice):
    choice = {"index": 0, "message": {"role": "assistant", "content": "ab"}, "finish_reason": "stop", **choice}
    return {"id": "chatcmpl-1", "model": "m", "choices": [choice], "usage": None}


ANSWERS = {
    "vllm": answer_with(logprobs={"content": ENTRIES}, token_ids=[7, 8]) | {"prompt_token_ids": [1, 2, 3]},
    "older vllm": answer_with(logprobs={"content": ENTRIES}),
    "ids beside": answer_with(
        logprobs={"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]},
        token_ids=[7, 8],
        prompt_token_ids=[1, 2, 3],
    ),
    "on the message": answer_with(message={"role": "assistant", "content": "ab", **KEYS}),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_tokens_stand_on_the_last_item(kind, open_vllm, autojump_clock) -> None:
    """Wherever a back end puts them, they come out the same; a missing prompt is asked of ``/tokenize``."""

    def answer(asked, _):
        if asked.path == "/tokenize":
            return 200, {}, {"tokens": [1, 2, 3], "count": 3}
        return 200, {}, ANSWERS[kind]

    async with open_vllm(answer, return_token_id_information=True) as model:
        response = (await model.respond()).json()
        paths = [asked.path for asked in model.back_end.asked]
        assert model.back_end.asked[0].body["logprobs"] is True
    item = response["output"][-1]
    assert {name: item[name] for name in KEYS} == KEYS
    assert item["content"][0]["logprobs"] == []  # they were not asked for
    assert paths == ["/v1/chat/completions", *(["/tokenize"] if kind == "older vllm" else [])]


async def test_tokens_go_back_unchanged(open_vllm, autojump_clock) -> None:
    """The next turn's request has them on the assistant message that they belong to."""
    async with open_vllm(lambda *_: (200, {}, ANSWERS["vllm"]), return_token_id_information=True) as model:
        output = (await model.respond()).json()["output"]
        turn = [{"role": "user", "content": "hi"}, *output, {"role": "user", "content": "more"}]
        await model.post("/v1/responses", {"input": turn})
        messages = model.back_end.asked[1].body["messages"]
    assert messages[1] == {"role": "assistant", "content": "ab", **KEYS}


async def test_tokens_stay_here_unless_asked_for(open_vllm, open_openai_model, autojump_clock) -> None:
    """A back end that does not take part is not sent keys that it may refuse."""
    turn = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ab", **KEYS}]
    async with open_vllm(lambda *_: (200, {}, ANSWERS["vllm"])) as model:
        await model.post("/v1/responses", {"input": turn})
        assert model.back_end.asked[0].body["messages"][1] == {"role": "assistant", "content": "ab"}
    async with open_openai_model(lambda *_: (200, {}, {"output": []}), api="responses") as model:
        await model.post("/v1/responses", {"input": turn})
        assert model.back_end.asked[0].body["input"][1] == {"role": "assistant", "content": "ab"}


@pytest.mark.parametrize("form", ["responses", "chat_completions"])
async def test_tokens_of_a_stream(form, open_vllm, autojump_clock) -> None:
    """A streamed answer ends with the same tokens as a whole one."""

    async def chunks():
        for number, entry in enumerate(ENTRIES):
            choice = {"index": 0, "delta": {"content": "ab"[number]}, "logprobs": {"content": [entry]}}
            first = {"prompt_token_ids": [1, 2, 3]} if number == 0 else {}
            yield b"data: " + orjson.dumps({"choices": [choice], **first}) + b"\n\n"
        yield b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

    path = {"responses": "/v1/responses", "chat_completions": "/v1/chat/completions"}[form]
    body = {"input": "x"} if form == "responses" else {"messages": [{"role": "user", "content": "x"}]}
    async with open_vllm(lambda *_: (200, {}, chunks()), return_token_id_information=True) as model:
        content = await model.stream(path, body)
        whole = model.records.calls[0].response
    owner = whole["output"][-1] if form == "responses" else whole["choices"][0]["message"]
    assert {name: owner[name] for name in KEYS} == KEYS
    last = [event.data for event in forms.EventReader().feed(content) if event.data][-1]
    sent = last["response"]["output"][-1] if form == "responses" else last["choices"][0]["delta"]
    assert {name: sent[name] for name in KEYS} == KEYS


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("status", [200, 302, 400, 404, 503])
async def test_an_answer_is_not_lost_with_its_tokens(status, streams, open_vllm, autojump_clock, caplog) -> None:
    """Where the prompt's tokens cannot be asked for, the answer comes without any, once, and the log says why."""
    chunk = ANSWERS["older vllm"]["choices"][0]
    chunk = {"choices": [{**chunk, "delta": chunk["message"]}]}

    async def events():
        yield b"data: " + orjson.dumps(chunk) + b"\n\n"

    def answer(asked, _):
        if asked.path == "/tokenize":
            return status, {}, b"no such thing"
        return 200, {}, events() if streams else ANSWERS["older vllm"]

    async with open_vllm(answer, return_token_id_information=True, retry_max_attempts=2) as model:
        if streams:
            await model.stream("/v1/responses", {"input": "hi"})
        else:
            assert (await model.respond()).status == 200
        (call,) = model.records.calls
        paths = [asked.path for asked in model.back_end.asked]
    assert call.error is None
    item = call.response["output"][-1]
    assert item["content"][0]["text"] == "ab"
    assert not KEYS.keys() & item.keys()
    assert paths.count("/v1/chat/completions") == 1
    assert "the tokens of an answer are not known: model server model: http://backend:80/tokenize" in caplog.text


async def test_half_of_the_tokens_are_none(open_vllm, autojump_clock) -> None:
    """Where an id or a log probability is missing, the answer has no token information at all."""
    strange = answer_with(logprobs={"content": [{"token": "a", "logprob": -0.5}]}, token_ids=[7, 8])
    short = {**ANSWERS["vllm"], "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}}
    for answer in (strange, short):
        async with open_vllm(lambda *_, a=answer: (200, {}, a), return_token_id_information=True) as model:
            item = (await model.respond()).json()["output"][-1]
        assert not KEYS.keys() & item.keys()
    assert generation_of([{"token": "x", "logprob": 0.0}], {}) is None
    assert prompt_of({}, {"prompt_token_ids": []}) is None
