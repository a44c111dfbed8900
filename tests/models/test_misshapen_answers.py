"""Back ends whose answers are JSON but not in the form of their API, in every place and of every type."""

from __future__ import annotations

import copy
import json

import pytest

from gym_trio.capture import open_capture_store
from gym_trio.servers import CallOutcome, forms

CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
    {"id": "b", "type": "custom", "custom": {"name": "g", "input": "y"}},
]
LOG_PROB = {"token": "token_id:5", "logprob": -0.5, "bytes": [1], "top_logprobs": []}
CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "prompt_token_ids": [1, 2],
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "hello",
                "reasoning_content": "hm",
                "refusal": "no",
                "tool_calls": CALLS,
            },
            "finish_reason": "tool_calls",
            "logprobs": {"content": [LOG_PROB]},
            "token_ids": [5],
        }
    ],
    "usage": {
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "total_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 1},
    },
}


def chunk(delta, finish_reason=None, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, **more}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


CHAT_STREAM = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "hm"}),
    chunk({"content": "hello"}, logprobs={"content": [LOG_PROB]}, token_ids=[5]),
    chunk({"refusal": "no"}),
    chunk({"tool_calls": [{"index": 0, **CALLS[0]}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": " "}}, {"index": 1, **CALLS[1]}]}),
    chunk({}, "tool_calls"),
    {"choices": [], "usage": CHAT["usage"]},
]
RESPONSE = forms.chat_to_responses(CHAT)
RESPONSE["output"][0]["summary"] = [{"type": "summary_text", "text": "s"}]
RESPONSE_STREAM = [
    json.loads(line[6:])
    for piece in forms.pieces_of_whole("responses", RESPONSE, {})
    for line in piece.content.splitlines()
    if line.startswith(b"data: ")
]

# `...` takes the value away. Half a character and NaN are what the standard library writes and no other reads.
WRONG = [..., None, [], {}, "", "x", -1, 1.5, 10**30, True, [None], [[]], {"a": None}, "\ud800", float("nan")]
REQUESTS = {
    "/v1/responses": {"input": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
}


def places_in(value, place=()):
    """Every place in a JSON value, its own left out."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*place, key)
        yield from places_in(item, (*place, key))


def misshapen(good):
    """``good`` with one value wrong, in every place in turn: each place has its share of `WRONG`."""
    step = 3 if isinstance(good, dict) else 7  # a stream says the same things in many places
    for number, (*way, last) in enumerate(places_in(good)):
        for wrong in WRONG[number % step :: step]:
            made = copy.deepcopy(good)
            holder = made
            for key in way:
                holder = holder[key]
            if wrong is ...:
                del holder[last]
            else:
                holder[last] = wrong
            yield made


async def events(values):
    for value in values:
        yield b"data: " + json.dumps(value).encode() + b"\n\n"


@pytest.fixture
def log_of_faults(caplog):
    """The records that say that this program has failed, not the provider."""
    return lambda: [record for record in caplog.records if record.levelname == "ERROR"]


async def check_every_client(model, bad, *, streams: bool) -> None:
    for path, request in REQUESTS.items():
        for streamed in (True,) if streams else (False, True):
            model.records.calls.clear()
            if streamed:
                await model.stream(path, request)
            else:
                answer = await model.post(path, request)
                assert json.loads(answer.body), bad
            (call,) = model.records.calls
            if call.outcome is CallOutcome.COMPLETED:
                assert call.status == 200
                assert isinstance(call.response, dict), bad
            else:
                assert call.status == 502, (bad, call.error)
                assert call.error.startswith("model server model: "), call.error
                assert "\n" not in call.error
            async with open_capture_store() as store:  # whatever it is, it can be kept
                store.begin("0-0")
                store.record(call)
                assert len(store.take("0-0").calls) == 1


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_chat_answer_of_any_shape(streams, tokens, open_vllm, log_of_faults, autojump_clock) -> None:
    """It is an answer or one line that says that the back end's is none: never a fault of this program's."""
    answer = {}

    def give(asked, _):
        if "tokenize" in asked.path:
            return 200, {}, {"tokens": [1, 2]}
        return 200, {}, events(answer["now"]) if streams else json.dumps(answer["now"]).encode()

    options = {"return_token_id_information": tokens, "uses_reasoning_parser": not tokens}
    async with open_vllm(give, **options) as model:
        for answer["now"] in misshapen(CHAT_STREAM if streams else CHAT):
            await check_every_client(model, answer["now"], streams=streams)
    assert not log_of_faults()


@pytest.mark.parametrize("streams", [False, True])
async def test_a_responses_answer_of_any_shape(streams, open_openai_model, log_of_faults, autojump_clock) -> None:
    """The same holds for the other API."""
    answer = {}

    def give(*_):
        return 200, {}, events(answer["now"]) if streams else json.dumps(answer["now"]).encode()

    async with open_openai_model(give, api="responses") as model:
        for answer["now"] in misshapen(RESPONSE_STREAM if streams else RESPONSE):
            await check_every_client(model, answer["now"], streams=streams)
    assert not log_of_faults()


@pytest.mark.parametrize("streams", [False, True])
async def test_what_only_the_standard_library_writes_is_read(streams, open_vllm, chat_answer, autojump_clock) -> None:
    """Half a character becomes "?", NaN null, and a time that is none is now: the answer is not lost for it."""
    whole = chat_answer("a\ud800", created=10**30, service_tier=float("nan"))
    pieces = [chunk({"content": "a\ud800"}, logprobs={"content": float("nan")}), chunk({}, "stop")]
    async with open_vllm(lambda *_: (200, {}, events(pieces) if streams else json.dumps(whole).encode())) as model:
        if streams:
            await model.stream("/v1/responses", {"input": "hi"})
        else:
            assert (await model.respond()).status == 200
        (call,) = model.records.calls
    assert call.response["output"][0]["content"][0]["text"] == "a?"
    assert 0 < call.response["created_at"] < 2**53


VLLM_ERROR = {"object": "error", "message": "too many users", "type": "T", "code": 429}


async def test_an_error_in_vllms_own_form_is_one(open_vllm, autojump_clock) -> None:
    """Its status holds though the answer's is 200; in a stream, whose answer has begun, its words are told."""
    async with open_vllm(lambda *_: (200, {}, VLLM_ERROR), retry_max_attempts=2) as model:
        answer = await model.respond()
        assert len(model.back_end.asked) == 2
        assert answer.status == 429
        assert "answered 429: too many users" in answer.json()["failure"]["failure_reason"]
    async with open_vllm(lambda *_: (200, {}, events([CHAT_STREAM[2], VLLM_ERROR]))) as model:
        assert b"too many users" in await model.stream("/v1/responses", {"input": "hi"})
        (call,) = model.records.calls
    assert "failed in the middle of its answer: too many users" in call.error


@pytest.mark.parametrize("status", [204, 205, 299, 300, 301, 304, 307])
async def test_a_status_that_is_no_errors_is_not_passed_on(status, open_vllm, autojump_clock) -> None:
    """Such an answer has no body, or sends a client elsewhere: what the client gets is 502 and the reason."""
    async with open_vllm(lambda *_: (status, {"location": "http://elsewhere"}, b"")) as model:
        answer = await model.respond()
        assert len(model.back_end.asked) == 1
    assert answer.status == 502
    failure = answer.json()["failure"]
    assert f"answered {status}" in failure["failure_reason"]
    assert (failure["failure_kind"], failure["terminal"]) == ("provider_unavailable", False)


@pytest.mark.parametrize("empty", [None, []])
async def test_an_error_beside_an_empty_answer_is_the_error(empty, open_vllm, autojump_clock) -> None:
    """A 200 whose choices are null or none, with an error, is refused in the error's words and with its status."""
    body = {"choices": empty, "error": {"message": "too\nmany\r\nusers", "code": 429}}
    async with open_vllm(lambda *_: (200, {}, body), retry_max_attempts=2) as model:
        answer = await model.respond()
        assert len(model.back_end.asked) == 2
    assert answer.status == 429
    reason = answer.json()["failure"]["failure_reason"]
    assert "answered 429: too many users (lower the concurrency" in reason


@pytest.mark.parametrize("content", [b"a\nb\r\n\tc", json.dumps({"error": {"message": "a\nb\r\n\tc"}}).encode()])
async def test_a_refusal_is_one_line(content, open_vllm, autojump_clock) -> None:
    """A traceback or a page of text that a provider answers with is shown within a line, and no longer than one."""
    for body, said in ((content, "answered 400: a b c"), (content.replace(b"c", b"c" * 10**6), "ccc")):
        async with open_vllm(lambda *_, body=body: (400, {}, body)) as model:
            answer = await model.respond()
            (call,) = model.records.calls
        reason = answer.json()["failure"]["failure_reason"]
        assert said in reason
        assert "\n" not in reason
        assert len(reason) < 700
        assert call.attempts[0].error in reason


@pytest.mark.parametrize("options", [[], [1], "x", 1, True, {}])
@pytest.mark.parametrize("path", REQUESTS)
async def test_stream_options_that_are_none_are_refused(
    path, options, open_vllm, open_openai_model, chat_answer, autojump_clock
) -> None:
    """They are the client's fault, told with 400 before anything is asked; empty ones are none."""
    request = {**REQUESTS[path], "stream_options": options}
    asks_chat = open_vllm(lambda *_: (200, {}, chat_answer()))
    asks_responses = open_openai_model(lambda *_: (200, {}, RESPONSE), api="responses")
    for opened in (asks_chat, asks_responses):
        async with opened as model:
            answer = await model.post(path, request)
            assert answer.status == (400 if options else 200)
            assert len(model.back_end.asked) == (0 if options else 1)
