"""What is sent to the back end, and what becomes of its answer, whole and streamed, in each form."""

from __future__ import annotations

import orjson
import pytest
import trio

from gym_trio.servers import forms

PATHS = {"responses": "/v1/responses", "chat_completions": "/v1/chat/completions", "messages": "/v1/messages"}
ASKED = {
    "responses": {"input": "x", "max_output_tokens": 5},
    "chat_completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5},
    "messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5},
}


def text_in(form: str, body) -> str:
    if form == "responses":
        return "".join(p["text"] for i in body["output"] if i["type"] == "message" for p in i["content"])
    if form == "chat_completions":
        return body["choices"][0]["message"]["content"]
    return "".join(block["text"] for block in body["content"] if block["type"] == "text")


def chunks_of(*deltas, finish="stop", cut=None):
    """A chat stream of ``deltas``, in pieces of ``cut`` bytes."""
    base = {"id": "chatcmpl-9", "created": 1790000000, "model": "m", "object": "chat.completion.chunk"}
    events = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    events.append({**base, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})
    content = (
        b": ping\n\n" + b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    )
    size = cut or len(content)

    async def send():
        for start in range(0, len(content), size):
            yield content[start : start + size]

    return send()


def events_in(content: bytes):
    return [event.data for event in forms.EventReader().feed(content) if event.data is not None]


def response(*items, **more):
    return {
        "id": "resp_9",
        "object": "response",
        "created_at": 1.0,
        "status": "completed",
        "output": list(items),
        **more,
    }


def message(text):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_9", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


@pytest.mark.parametrize("form", PATHS)
async def test_a_chat_back_end_answers_every_form(form, open_vllm, chat_answer, autojump_clock) -> None:
    """One completion reaches the client in its own form; model, extra_body and bound are what the block says."""
    config = {"extra_body": {"top_k": 4, "temperature": 0.1}, "chat_template_kwargs": {"thinking": False}}
    async with open_vllm(lambda *_: (200, {}, chat_answer("hello")), **config) as model:
        answer = await model.post(PATHS[form], {**ASKED[form], "model": "other", "temperature": 0.7, "_ng_x": 1})
        (asked,) = model.back_end.asked
        (call,) = model.records.calls
    assert text_in(form, answer.json()) == "hello"
    assert asked.path == "/v1/chat/completions"
    sent = asked.body
    assert (sent["model"], sent["top_k"], sent["temperature"], sent["max_tokens"]) == ("m", 4, 0.7, 5)
    assert sent["chat_template_kwargs"] == {"thinking": False}
    assert "_ng_x" not in sent
    assert (call.api, call.streamed, call.response) == (form, False, answer.json())


@pytest.mark.parametrize("cut", [None, 1, 7])
@pytest.mark.parametrize("form", PATHS)
async def test_a_chat_stream_reaches_every_form(form, cut, open_vllm, autojump_clock) -> None:
    """However its bytes are cut, a stream gives each client its own events, and the record the whole."""
    deltas = [{"role": "assistant"}, {"reasoning_content": "hm"}, {"content": "he"}, {"content": "llo"}]
    async with open_vllm(lambda *_: (200, {}, chunks_of(*deltas, cut=cut))) as model:
        content = await model.stream(PATHS[form], ASKED[form])
        (call,) = model.records.calls
        assert model.back_end.asked[0].body["stream_options"] == {"include_usage": True}
    assert text_in(form, call.response) == "hello"
    assert call.streamed
    kinds = [event.get("type") for event in events_in(content)]
    if form == "responses":
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert events_in(content)[-1]["response"] == call.response
        assert call.response["usage"]["total_tokens"] == 5
    elif form == "messages":
        assert kinds[0] == "message_start"
        assert kinds[-1] == "message_stop"
        assert kinds.count("content_block_start") == 2
    else:
        assert content.endswith(b"data: [DONE]\n\n")
        assert not any(event.get("usage") for event in events_in(content))  # it was not asked for


async def test_a_chat_client_that_asks_for_usage_gets_it(open_vllm, autojump_clock) -> None:
    """The chunk with the usage is passed on to a client that asked for it."""
    async with open_vllm(lambda *_: (200, {}, chunks_of({"content": "a"}))) as model:
        content = await model.stream(
            PATHS["chat_completions"], {**ASKED["chat_completions"], "stream_options": {"include_usage": True}}
        )
    assert events_in(content)[-1]["usage"]["total_tokens"] == 5


@pytest.mark.parametrize("form", PATHS)
async def test_parallel_calls_in_a_stream_keep_their_own_arguments(form, open_vllm, autojump_clock) -> None:
    """Two calls whose pieces are interleaved come out whole in each form."""
    deltas = [
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"y"'}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": ":1}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":2}"}}]},
    ]
    async with open_vllm(lambda *_: (200, {}, chunks_of(*deltas, finish="tool_calls"))) as model:
        content = await model.stream(PATHS[form], ASKED[form])
        whole = model.records.calls[0].response
    if form == "responses":
        found = [(item["call_id"], item["name"], item["arguments"]) for item in whole["output"]]
        assert found == [("a", "f", '{"y":2}'), ("b", "g", '{"x":1}')]
    elif form == "messages":
        blocks: dict[int, str] = {}
        for event in events_in(content):
            if event["type"] == "content_block_delta":
                blocks[event["index"]] = blocks.get(event["index"], "") + event["delta"]["partial_json"]
        assert blocks == {0: '{"y":2}', 1: '{"x":1}'}
        assert [block["input"] for block in whole["content"]] == [{"y": 2}, {"x": 1}]
    else:
        calls = whole["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["arguments"] for call in calls] == ['{"y":2}', '{"x":1}']


@pytest.mark.parametrize("place", [{}, {"index": 0}, {"index": None}])
@pytest.mark.parametrize("arguments", ['{"x":1}', {"x": 1}])
async def test_calls_that_have_no_place_of_their_own_are_told_apart(
    place, arguments, open_vllm, autojump_clock
) -> None:
    """Servers that number no calls, or all alike, and that write arguments as an object, lose none and mix none."""
    deltas = [
        {"tool_calls": [{**place, "id": name, "function": {"name": name, "arguments": arguments}}]} for name in "abc"
    ]
    again = {"tool_calls": [{**place, "id": "c", "function": {"name": "c", "arguments": " "}}]}
    async with open_vllm(lambda *_: (200, {}, chunks_of(*deltas, again, finish="tool_calls"))) as model:
        await model.stream(PATHS["responses"], ASKED["responses"])
        (call,) = model.records.calls
    found = [(item["call_id"], item["name"], item["arguments"]) for item in call.response["output"]]
    assert found == [("a", "a", '{"x":1}'), ("b", "b", '{"x":1}'), ("c", "c", '{"x":1} ')]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("identifier", [{}, {"id": None}, {"id": ""}])
async def test_calls_without_an_id_get_one_each(identifier, streams, open_vllm, chat_answer, autojump_clock) -> None:
    """Results are told apart by it, so that a server which gives none would get one tool's answer for another's."""
    calls = [
        {"index": index, **identifier, "type": "function", "function": {"name": name, "arguments": {"x": index}}}
        for index, name in enumerate("fg")
    ]
    answer = chat_answer()
    answer["choices"][0]["message"]["tool_calls"] = calls

    def give(*_):
        return 200, {}, chunks_of({"tool_calls": calls}, finish="tool_calls") if streams else answer

    async with open_vllm(give) as model:
        await model.stream(PATHS["responses"], ASKED["responses"])
        items = [item for item in model.records.calls[0].response["output"] if item["type"] == "function_call"]
    assert [(item["name"], item["arguments"]) for item in items] == [("f", '{"x":0}'), ("g", '{"x":1}')]
    assert all(item["call_id"] for item in items)
    assert len({item["call_id"] for item in items}) == 2


@pytest.mark.parametrize("form", ["responses", "messages"])
async def test_think_tags_are_taken_out_of_a_stream(form, open_vllm, autojump_clock) -> None:
    """Without a reasoning parser at the endpoint, a think block becomes reasoning, wherever its tags are cut."""
    deltas = [{"content": piece} for piece in (" <th", "ink>a", " < b</thi", "nk>\n", "\nanswer </th")]
    async with open_vllm(lambda *_: (200, {}, chunks_of(*deltas)), uses_reasoning_parser=False) as model:
        await model.stream(PATHS[form], ASKED[form])
        whole = model.records.calls[0].response
    assert text_in(form, whole) == "answer </th"
    if form == "responses":
        assert whole["output"][0]["content"][0]["text"] == "a < b"
    else:
        assert whole["content"][0]["thinking"] == "a < b"


@pytest.mark.parametrize("form", PATHS)
@pytest.mark.parametrize(
    ("last", "words"),
    [
        (b"", b"ended before its answer was complete"),
        (b"data: {oops\n\n", b"not a JSON object"),
        (b'data: {"error": {"message": "out of memory", "code": 500}}\n\n', b"out of memory"),
        (b'data: {"choices": [5]}\n\n', b"not in the form"),
    ],
)
async def test_a_stream_that_breaks_off_is_an_error_event(form, last, words, open_vllm, autojump_clock) -> None:
    """A client that has half an answer is told why there is no more, in its own form, and nothing is asked again."""

    async def chunks():
        yield b'data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\n' + last

    async with open_vllm(lambda *_: (200, {}, chunks())) as model:
        content = await model.stream(PATHS[form], ASKED[form])
        (call,) = model.records.calls
        assert len(model.back_end.asked) == 1
    assert b"half" in content
    assert words in content.split(b"half")[1]
    assert (call.outcome, call.status) == ("failed", 502)


@pytest.mark.parametrize("form", PATHS)
async def test_a_back_end_that_does_not_stream_is_played(form, open_vllm, chat_answer, autojump_clock) -> None:
    """A whole answer to a request for a stream becomes the stream's events."""
    async with open_vllm(lambda *_: (200, {}, chat_answer("hello"))) as model:
        content = await model.stream(PATHS[form], ASKED[form])
        assert text_in(form, model.records.calls[0].response) == "hello"
    assert b"hello" in content


@pytest.mark.parametrize("form", PATHS)
async def test_a_responses_back_end_answers_every_form(form, open_openai_model, autojump_clock) -> None:
    """One Responses object reaches the client in its own form."""
    async with open_openai_model(lambda *_: (200, {}, response(message("hello"))), api="responses") as model:
        answer = await model.post(PATHS[form], ASKED[form])
        (asked,) = model.back_end.asked
    assert text_in(form, answer.json()) == "hello"
    assert asked.path == "/v1/responses"
    assert (asked.body["model"], asked.body["max_output_tokens"]) == ("m", 5)


@pytest.mark.parametrize("form", PATHS)
@pytest.mark.parametrize("sparse", [False, True])
async def test_a_responses_stream_reaches_every_form(form, sparse, open_openai_model, autojump_clock) -> None:
    """Events are passed on or converted, also those of servers that leave out what can be inferred."""
    call = {
        "id": "fc_9",
        "type": "function_call",
        "call_id": "c",
        "name": "f",
        "arguments": "{}",
        "status": "completed",
    }
    thought = {"id": "rs_9", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}
    events = list(forms.events_of_response(response(thought, message("hello"), call)))
    if sparse:
        for event in events:
            for name in ("output_index", "content_index", "sequence_number"):
                event.pop(name, None)

    async def chunks():
        for event in events:
            yield b"event: x\ndata: " + orjson.dumps(event) + b"\n\n"

    async with open_openai_model(lambda *_: (200, {}, chunks()), api="responses") as model:
        content = await model.stream(PATHS[form], ASKED[form])
        whole = model.records.calls[0].response
    assert text_in(form, whole) == "hello"
    if form == "messages":
        assert [block["type"] for block in whole["content"]] == ["redacted_thinking", "text", "tool_use"]
        starts = [event["content_block"]["type"] for event in events_in(content) if "content_block" in event]
        assert starts == ["redacted_thinking", "text", "tool_use"]


@pytest.mark.parametrize(
    "event",
    [{"type": "response.failed", "response": {"error": {"message": "boom"}}}, {"type": "error", "message": "boom"}],
)
async def test_a_failure_in_a_responses_stream_is_an_error_event(event, open_openai_model, autojump_clock) -> None:
    """What the provider says is what the client reads."""

    async def chunks():
        yield b"data: " + orjson.dumps({"type": "response.created", "response": response()}) + b"\n\n"
        yield b"data: " + orjson.dumps(event) + b"\n\n"

    async with open_openai_model(lambda *_: (200, {}, chunks()), api="responses") as model:
        content = await model.stream(PATHS["responses"], ASKED["responses"])
    assert b"boom" in content
    assert b"event: error" in content


async def test_what_responses_cannot_carry_is_dropped_with_a_warning(open_openai_model, autojump_clock, caplog) -> None:
    """Once for each key: a run of a million calls does not write a million lines."""
    async with open_openai_model(lambda *_: (200, {}, response(message("a"))), api="responses") as model:
        for _ in range(3):
            await model.post(PATHS["chat_completions"], {**ASKED["chat_completions"], "seed": 3})
        assert all("seed" not in asked.body for asked in model.back_end.asked)
    assert [record.getMessage().count("'seed'") for record in caplog.records] == [1]


@pytest.mark.parametrize("status", [404, 405, 501])
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_api_of_an_endpoint_is_found_out_once(
    status, streamed, open_openai_model, chat_answer, autojump_clock, caplog
) -> None:
    """An endpoint without ``/responses`` is asked at ``/chat/completions``, and from then on at once."""

    def answer(asked, _):
        if asked.path.endswith("/responses"):
            return status, {}, {"detail": "Not Found"}
        return 200, {}, chunks_of({"content": "a"}) if streamed else chat_answer()

    async with open_openai_model(answer) as model:
        for form in ("responses", "messages", "chat_completions", "responses"):
            if streamed:
                assert b'"error":{' not in await model.stream(PATHS[form], ASKED[form])
            else:
                assert (await model.post(PATHS[form], ASKED[form])).status == 200
        paths = [asked.path for asked in model.back_end.asked]
    assert paths == ["/v1/responses", *["/v1/chat/completions"] * 4]
    assert "has no responses API" in caplog.text


@pytest.mark.parametrize("streamed", [False, True])
async def test_calls_that_begin_together_all_find_out(streamed, open_openai_model, chat_answer, autojump_clock) -> None:
    """Those that hear of the missing route when another call has found it out already go to the other API, too."""

    async def answer(asked, number):
        if asked.path.endswith("completions"):
            return 200, {}, chat_answer()
        await trio.sleep(number)
        return 404, {}, {"detail": "Not Found"}

    async with open_openai_model(answer) as model:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                body = {**ASKED["responses"], "stream": streamed}
                nursery.start_soon(model.post, PATHS["responses"], body, f"{number}-0")
        assert [call.error for call in model.records.calls] == [None] * 5
        paths = [asked.path for asked in model.back_end.asked]
    assert sorted(paths) == ["/v1/chat/completions"] * 5 + ["/v1/responses"] * 5


async def test_a_chat_client_of_a_responses_endpoint_is_converted(open_openai_model, autojump_clock) -> None:
    """The other way round works too."""

    def answer(asked, _):
        found = asked.path.endswith("/responses")
        return (200, {}, response(message("hello"))) if found else (404, {}, b"no such route")

    async with open_openai_model(answer) as model:
        for _ in range(2):
            answered = await model.post(PATHS["chat_completions"], ASKED["chat_completions"])
            assert text_in("chat_completions", answered.json()) == "hello"
        assert len(model.back_end.asked) == 3


async def test_a_model_that_is_not_there_is_no_missing_api(open_openai_model, autojump_clock) -> None:
    """404 from both APIs is the provider's answer; nothing is concluded from it."""
    error = {"error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "code": 404}}
    async with open_openai_model(lambda *_: (404, {}, error)) as model:
        for _ in range(2):
            answer = await model.respond()
        assert len(model.back_end.asked) == 4
    assert answer.status == 404
    assert "The model `m` does not exist." in answer.text
    assert "check the model's name" in answer.text


@pytest.mark.parametrize(
    ("form", "body"),
    [("chat_completions", {"messages": "x"}), ("responses", {"input": [5]}), ("messages", {"messages": [{}]})],
)
async def test_a_request_that_is_none_is_the_clients_fault(form, body, open_vllm, autojump_clock) -> None:
    """It is refused with 400 before anything is asked."""
    async with open_vllm(lambda *_: None) as model:
        answer = await model.post(PATHS[form], body)
        assert not model.back_end.asked
    assert answer.status == 400
    assert "this is no" in answer.text
    assert answer.json()["failure"]["terminal"]
