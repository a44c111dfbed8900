"""One call at a provider: its budget, its endings, its bounds. Virtual time throughout."""

from __future__ import annotations

import contextlib
import math

import pytest
import trio
import trio.testing

from gym_trio.errors import ConnectFailed, PeerDropped
from gym_trio.http import MemoryTransport, Origin, Request
from gym_trio.servers import CallOutcome, ModelServer

ERROR = {"error": {"message": "no", "type": "t", "code": None}}


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_status_that_says_try_again_is_tried_again(status, open_vllm, chat_answer, autojump_clock) -> None:
    """The second answer is the call's; both attempts are in the record, the first with its status and reason."""
    answers = {1: (status, {}, ERROR)}
    async with open_vllm(lambda _, n: answers.get(n, (200, {}, chat_answer()))) as model:
        response = await model.respond()
        assert response.status == 200
        (call,) = model.records.calls
    assert [attempt.status for attempt in call.attempts] == [status, 200]
    assert "no" in call.attempts[0].error
    assert call.attempts[1].waited_seconds > 0
    assert (call.outcome, call.status, call.rollout_id) == (CallOutcome.COMPLETED, 200, "0-0")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
async def test_other_errors_end_the_call_at_once_in_the_providers_words(status, open_vllm, autojump_clock) -> None:
    """Status and body reach the client as they are; the failure beside them names server, URL and reason."""
    async with open_vllm(lambda *_: (status, {}, ERROR)) as model:
        response = await model.respond()
        assert len(model.back_end.asked) == 1
    assert response.status == status
    body = response.json()
    assert body["error"] == ERROR["error"]
    assert body["failure"]["terminal"] == (status in (400, 413, 422))
    assert "model server model: http://backend:80/v1/chat/completions answered" in body["failure"]["failure_reason"]


async def test_the_count_bounds_the_call(open_vllm, autojump_clock, caplog) -> None:
    """After the last attempt the provider's status is the answer; every attempt was logged or is the error."""
    async with open_vllm(lambda *_: (503, {}, ERROR), retry_max_attempts=4) as model:
        response = await model.respond()
        assert len(model.back_end.asked) == 4
    assert response.status == 503
    assert "after 4 attempts" in response.json()["failure"]["failure_reason"]
    assert response.json()["failure"]["failure_kind"] == "provider_unavailable"
    assert [record.levelname for record in caplog.records].count("WARNING") == 3


async def test_the_time_bounds_the_call(open_vllm, autojump_clock) -> None:
    """No attempt begins after the budget, however many are left."""
    config = {"retry_max_attempts": 1000, "retry_budget_seconds": 20, "retry_first_wait_seconds": 2}
    async with open_vllm(lambda *_: (503, {}, ERROR), **config) as model:
        began = trio.current_time()
        await model.respond()
        assert trio.current_time() - began <= 20
        assert 3 <= len(model.back_end.asked) <= 8


async def test_retry_after_is_honoured_by_all(open_vllm, chat_answer, autojump_clock) -> None:
    """The endpoint is left alone by every rollout for as long as it asked."""
    times = []

    def answer(_, number):
        times.append(trio.current_time())
        return (429, {"retry-after": "30"}, ERROR) if number == 1 else (200, {}, chat_answer())

    async with open_vllm(answer) as model, trio.open_nursery() as nursery:
        nursery.start_soon(model.respond, "0-0")
        await trio.sleep(1)
        nursery.start_soon(model.respond, "1-0")
    assert all(time - times[0] >= 30 for time in times[1:])
    assert all(time - times[0] <= 33 for time in times[1:])


async def test_advice_beyond_the_budget_is_passed_on(open_vllm, autojump_clock) -> None:
    """A wait that the budget does not hold is not begun: the client gets the advice instead."""
    async with open_vllm(lambda *_: (429, {"retry-after": "4000"}, ERROR)) as model:
        response = await model.respond()
        assert len(model.back_end.asked) == 1
    assert (response.status, response.headers["retry-after"]) == (429, "4000")
    assert response.json()["failure"]["failure_kind"] == "provider_quota_exhausted"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, {"message": "This model's maximum context length is 4096 tokens", "code": None}),
        (400, {"message": "x", "code": "context_length_exceeded"}),
        (400, {"message": "request (21031 tokens) exceeds the available context size (2048 tokens)", "code": 400}),
    ],
)
async def test_a_prompt_that_is_too_long_is_terminal(status, error, open_vllm, autojump_clock) -> None:
    """It is not tried again, whatever status it came with, and a resumed run will not try it either."""
    async with open_vllm(lambda *_: (status, {}, {"error": error})) as model:
        response = await model.respond()
        assert len(model.back_end.asked) == 1
    assert response.json()["failure"]["terminal"]
    assert response.json()["error"]["message"] == error["message"]


async def test_a_spent_quota_is_not_tried_again(open_vllm, autojump_clock) -> None:
    """429 with ``insufficient_quota`` does not go away by waiting."""
    error = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    async with open_vllm(lambda *_: (429, {}, error)) as model:
        assert (await model.respond()).status == 429
        assert len(model.back_end.asked) == 1


async def test_the_key_is_shown_nowhere(open_openai_model, secret, autojump_clock, caplog) -> None:
    """Neither the answer, nor the record, nor the log has a key that the provider repeats, but the provider gets it."""
    said = f"Incorrect API key provided: {secret}. See Bearer {secret}"
    statuses = iter([500, 401])

    def answer(*_):
        return next(statuses), {}, {"error": {"message": said, "api_key": secret}}

    async with open_openai_model(answer) as model:
        response = await model.respond()
        (call,) = model.records.calls
        assert model.back_end.asked[0].headers["authorization"] == f"Bearer {secret}"
    for shown in (response.text, repr(call), caplog.text):
        assert secret not in shown
        assert "Incorrect API key" in shown
    assert response.status == 401
    assert "check the API key" in response.text


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ({"content-type": "text/html"}, b"<html><body>Log <b>in</b></body></html>", "an HTML page: Log in"),
        ({}, b'{"choices": [', "not a model's answer"),
        ({}, b"[1, 2]", "not a model's answer"),
        ({}, {"unexpected": True}, "no choices[0].message"),
        ({}, {"choices": [{"message": {"role": "assistant", "content": 5}}]}, "not in the form"),
        ({}, {"error": {"message": "overloaded", "code": 418}}, "overloaded"),
    ],
)
async def test_an_answer_that_is_none_is_named(headers, body, words, open_vllm, autojump_clock) -> None:
    """HTML, half JSON, other JSON and an error under status 200 are one clear sentence each, and asked once."""
    async with open_vllm(lambda *_: (200, headers, body)) as model:
        response = await model.respond()
        assert len(model.back_end.asked) == 1
    assert response.status in (502, 418)
    assert words in response.json()["failure"]["failure_reason"]


async def test_a_failed_response_object_is_an_error(open_openai_model, autojump_clock) -> None:
    """A Responses object with status ``failed`` is tried again when it says that it may help."""
    failed = {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}, "output": []}
    fine = {"id": "resp_1", "status": "completed", "output": []}
    async with open_openai_model(lambda _, n: (200, {}, failed if n == 1 else fine)) as model:
        response = await model.respond()
    assert response.json() == fine
    assert [attempt.status for attempt in model.records.calls[0].attempts] == [429, 200]


class Breaking:
    """A transport that breaks in a given way before it works."""

    def __init__(self, inner, *errors) -> None:
        self.inner, self.errors, self.sent = inner, list(errors), []

    async def send(self, request):
        self.sent.append(request)
        await trio.lowlevel.checkpoint()
        if self.errors:
            raise self.errors.pop(0)
        return await self.inner.send(request)

    async def aclose(self) -> None:
        """Nothing to end."""


async def test_only_what_was_not_sent_is_sent_again(open_breaking, autojump_clock) -> None:
    """A refused connection is tried again; one that was lost after the request went out is not, ever."""
    async with open_breaking(Breaking, ConnectFailed("refused"), ConnectFailed("refused")) as (model, transport):
        assert (await model.respond()).status == 200
        assert len(transport.sent) == 3
    async with open_breaking(Breaking, PeerDropped("gone")) as (model, transport):
        response = await model.respond()
        assert len(transport.sent) == 1
    assert response.status == 502
    assert response.json()["failure"]["failure_kind"] == "transport_peer_drop"
    async with open_breaking(Breaking, *[ConnectFailed("refused")] * 9) as (model, _):
        failure = (await model.respond()).json()["failure"]
    assert failure["failure_kind"] == "transport_unreachable"
    assert "is it running?" in failure["failure_reason"]


async def test_an_attempt_is_bounded(open_vllm, autojump_clock) -> None:
    """A provider that says nothing is given up after ``attempt_seconds``, and not asked again."""

    async def never(*_):
        await trio.sleep_forever()

    async with open_vllm(never, attempt_seconds=100) as model:
        began = trio.current_time()
        response = await model.respond()
        assert trio.current_time() - began == 100
        assert (len(model.back_end.asked), model.back_end.cancelled) == (1, 1)
    assert response.status == 504
    assert response.json()["failure"]["failure_kind"] == "transport_timeout"


@pytest.mark.parametrize(("config", "bound"), [({"idle_seconds": 50}, 50), ({"attempt_seconds": 70}, 70)])
async def test_a_stream_is_bounded(config, bound, open_vllm, autojump_clock) -> None:
    """A stream that stops, and one that never ends, become an error event within their bounds."""

    async def chunks():
        yield b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
        while math.isfinite(bound) and "attempt_seconds" in config:
            await trio.sleep(1)
            yield b'data: {"choices":[{"delta":{"content":"b"}}]}\n\n'
        await trio.sleep_forever()

    async with open_vllm(lambda *_: (200, {}, chunks()), **config) as model:
        began = trio.current_time()
        content = await model.stream("/v1/responses", {"input": "x"})
        assert trio.current_time() - began == bound
        (call,) = model.records.calls
    assert b"event: error\n" in content
    assert (call.outcome, call.status) == (CallOutcome.FAILED, 504)
    assert call.attempts[0].error is not None


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_takes_the_provider_call_with_it(path, streamed, open_vllm, autojump_clock) -> None:
    """A cancelled call is cancelled at the provider, and its record says so."""

    async def chunks():
        yield b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
        await trio.sleep_forever()

    async def answer(*_):
        if not streamed:
            await trio.sleep_forever()
        return 200, {}, chunks()

    body = {"input": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
    async with open_vllm(answer) as model:
        with trio.move_on_after(5):
            await (model.stream if streamed else model.post)(path, body)
        await trio.testing.wait_all_tasks_blocked()
        assert model.back_end.cancelled == 1
        (call,) = model.records.calls
    assert call.outcome is CallOutcome.CANCELLED
    assert call.attempts[0].error == "cancelled"


async def test_a_cancelled_wait_between_attempts_asks_no_more(open_vllm, autojump_clock) -> None:
    """A client that leaves during the backoff is the end of it."""
    async with open_vllm(lambda *_: (503, {"retry-after": "60"}, ERROR)) as model:
        with trio.move_on_after(5):
            await model.respond()
        await trio.sleep(1000)
        assert len(model.back_end.asked) == 1
        assert model.records.calls[0].outcome is CallOutcome.CANCELLED


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("also_raises", [False, True])
async def test_a_call_that_is_cancelled_among_tasks_of_its_own_is_a_cancelled_one(
    streamed, also_raises, records
) -> None:
    """Its cancellation comes as a group, also with an error beside it; no such call has been completed."""

    async def clean_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            if also_raises:
                raise ValueError("while it cleaned up")

    class Nurseries(ModelServer):
        async def responses(self, request):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(clean_up)
                nursery.start_soon(trio.sleep_forever)
                await trio.sleep_forever()

    server = Nurseries(name="model")
    server.recorder = records
    body = b'{"stream": true}' if streamed else b"{}"
    request = Request("POST", Origin("http", "model", 80), b"/v1/responses", body=body)
    async with trio.open_nursery() as nursery:
        with pytest.RaisesGroup(ValueError, flatten_subgroups=True) if also_raises else contextlib.nullcontext():
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_when_blocked, scope)
                await MemoryTransport(server.app).send(request)
    (call,) = records.calls
    assert (call.outcome, call.status) == (CallOutcome.CANCELLED, None)


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()
