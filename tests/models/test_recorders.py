"""What a recorder does is none of its model's clients' business, whichever way they ask."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from gym_trio.errors import FailureKind, ModelCallError
from gym_trio.http import MemoryTransport, Origin, Request
from gym_trio.servers import CallOutcome, ModelCall, ModelServer

MODEL = Origin("http", "model", 80)


class Recorder:
    """It keeps what it is given, and then raises ``error``."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.begun = 0
        self.calls: list[ModelCall] = []
        self.error = error

    def begin(self, rollout_id: str | None) -> None:
        self.begun += 1

    async def flush(self, rollout_id: str) -> bool:
        return True

    def record(self, call: ModelCall) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


class Once(ModelServer):
    """It answers, fails, or waits for ever."""

    async def responses(self, request):
        if request["input"] == "fail":
            raise ModelCallError("no", status=418, kind=FailureKind.PROVIDER_UNAVAILABLE)
        if request["input"] == "wait":
            await trio.sleep_forever()
        return {"output": [], "id": "r"}


def below_a_layer(app: Any) -> Any:
    async def layer(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    return layer


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3)])
@pytest.mark.parametrize("streamed", ["false", "true"])
@pytest.mark.parametrize("asked", ["answer", "fail"])
async def test_a_recorder_that_raises_takes_no_answer_along(asked, streamed, error, caplog) -> None:
    """The client gets what it gets from one that does not, in memory at once and in messages; the log tells of it."""
    seen = []
    for recorder in (Recorder(), Recorder(error), Recorder(error)):
        server = Once(name="model")
        server.recorder = recorder
        app = below_a_layer(server.app) if len(seen) == 1 else server.app
        body = f'{{"input": "{asked}", "stream": {streamed}}}'.encode()
        response = await MemoryTransport(app).send(Request("POST", MODEL, b"/v1/responses", body=body))
        seen.append((response.status, response.raw_headers, response.body))
        (call,) = recorder.calls
        assert (recorder.begun, call.status, call.streamed) == (1, response.status, streamed == "true")
    assert seen[0] == seen[1] == seen[2]
    assert [record.message for record in caplog.records] == ["model server model: its recorder raised"] * 2


@pytest.mark.parametrize("layer", [below_a_layer, lambda app: app])
async def test_a_recorder_that_raises_does_not_stop_a_cancellation(layer) -> None:
    """The call ends as a cancelled one."""
    server = Once(name="model")
    server.recorder = recorder = Recorder(ValueError("mine"))
    with trio.move_on_after(0.01) as scope:
        await MemoryTransport(layer(server.app)).send(
            Request("POST", MODEL, b"/v1/responses", body=b'{"input": "wait"}')
        )
    assert scope.cancelled_caught
    assert [call.outcome for call in recorder.calls] == [CallOutcome.CANCELLED]
