"""A provider that does everything wrong, under five hundred rollouts at once, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import Counter

import orjson
import pytest
import trio

from gym_trio.http import MemoryTransport, ServerClient, open_lifespan, open_server, open_socket_transport
from gym_trio.models.vllm_model import VLLMModel

ROLLOUTS = 500
FAULTS = ("fine", "reset", "half", "storm", "slow", "nonsense", "endless", "error")


def fault_of(number: int) -> str:
    return FAULTS[number % len(FAULTS)]


def wire(status: int, body: bytes, *headers: str, length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} X", "content-type: application/json", *headers]
    lines.append(f"content-length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Chaos:
    """Answers each request by the number in it. ``heard`` counts requests by number."""

    def __init__(self, good: bytes) -> None:
        self.good = good
        self.heard: Counter[int] = Counter()
        self.open = 0
        self.changed = trio.Event()

    def count(self, step: int) -> None:
        self.open += step
        self.changed.set()
        self.changed = trio.Event()

    async def until_open(self, wanted: int) -> None:
        while self.open != wanted:
            await self.changed.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.count(1)
        try:
            received = b""
            while True:
                head, found, rest = received.partition(b"\r\n\r\n")
                length = (
                    next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                    if found
                    else 0
                )
                if found and len(rest) >= length:
                    received = rest[length:]
                    if not await self.answer(stream, orjson.loads(rest[:length])):
                        return
                    continue
                data = await stream.receive_some()
                if not data:
                    return
                received += data
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.count(-1)

    async def answer(self, stream: trio.SocketStream, request) -> bool:
        """Answer; whether the connection may go on."""
        number = int(request["messages"][0]["content"])
        self.heard[number] += 1
        again = self.heard[number] > 1
        fault = fault_of(number)
        good = wire(200, self.good)
        if fault == "reset":
            # Each rollout loses its connection at another byte of the answer.
            await stream.send_all(good[: number // len(FAULTS) * 5 % len(good)])
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.socket.close()
            return False
        if fault == "half":
            await stream.send_all(wire(200, self.good[:20], length=len(self.good)))
            return False
        if fault == "storm" and not again:
            await stream.send_all(wire(429, b'{"error": {"message": "slow down"}}', "retry-after: 1"))
            return True
        if fault == "error" and not again:
            await stream.send_all(wire(500, b"<html>oh no</html>"))
            return True
        if fault == "slow":
            await trio.sleep(1 + number / ROLLOUTS)
        if fault == "nonsense":
            await stream.send_all(wire(200, b"<html>welcome</html>"))
            return True
        if fault == "endless":
            await stream.send_all(
                b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            while True:
                await stream.send_all(b"1\r\n \r\n")
                await trio.sleep(0.5)
        await stream.send_all(good)
        return True


@pytest.fixture
async def chaos(chat_answer, nursery):
    """The provider, and its URL."""
    provider = Chaos(orjson.dumps(chat_answer("hello")))
    listeners = await nursery.start(trio.serve_tcp, provider.serve, 0)
    port = listeners[0].socket.getsockname()[1]
    yield provider, f"http://127.0.0.1:{port}"
    nursery.cancel_scope.cancel()


async def roll_all(numbers, url: str, attempt_seconds: float, recorder=None) -> dict[int, tuple[int, str | None]]:
    """A call of each number at once; the status and the failure's kind of each."""
    config = {"base_url": url, "model": "m", "attempt_seconds": attempt_seconds, "retry_first_wait_seconds": 0.1}
    server = VLLMModel(name="model", config=config)
    server.recorder = recorder
    client = ServerClient()
    answers: dict[int, tuple[int, str | None]] = {}

    async def roll(number: int) -> None:
        response = await client.post("model", f"/ng-rollout/{number}-0/v1/responses", json={"input": str(number)})
        failure = response.json().get("failure")
        answers[number] = response.status, failure and failure["failure_kind"]

    async with open_lifespan(server.app, server="model") as state:
        client.register("model", MemoryTransport(server.app, state=state), "http://model")
        async with trio.open_nursery() as rollouts:
            for number in numbers:
                rollouts.start_soon(roll, number)
    return answers


class Calls(list):
    """A recorder that is a list of what it was given."""

    def begin(self, rollout_id) -> None:
        """Nothing to do."""

    record = list.append


async def test_every_rollout_ends_rightly_within_its_bound(chaos, caplog) -> None:
    """Each fault has its outcome, no lost request is sent again, and all counts agree."""
    provider, url = chaos
    began = trio.current_time()
    await roll_all(range(0, ROLLOUTS * len(FAULTS), len(FAULTS)), url, 600)  # as many that all go well
    provider.heard.clear()
    attempt_seconds = 4 + 3 * (trio.current_time() - began)  # this machine may be doing other things too
    calls = Calls()
    began = trio.current_time()
    answers = await roll_all(range(ROLLOUTS), url, attempt_seconds, calls)
    assert trio.current_time() - began < 4 * attempt_seconds

    expected = {
        "fine": (200, None),
        "slow": (200, None),
        "storm": (200, None),
        "error": (200, None),
        "reset": (502, "transport_peer_drop"),
        "half": (502, "transport_peer_drop"),
        "nonsense": (502, "provider_unavailable"),
        "endless": (504, "transport_timeout"),
    }
    assert answers == {number: expected[fault_of(number)] for number in range(ROLLOUTS)}
    once_or_twice = {number: 2 if fault_of(number) in ("storm", "error") else 1 for number in range(ROLLOUTS)}
    assert provider.heard == once_or_twice
    assert {call.rollout_id: len(call.attempts) for call in calls} == {
        f"{number}-0": times for number, times in once_or_twice.items()
    }
    outcomes = Counter(call.outcome for call in calls)
    assert outcomes["failed"] == sum(status != 200 for status, _ in answers.values())
    assert outcomes["completed"] + outcomes["failed"] == ROLLOUTS == len(calls)
    retried = [record for record in caplog.records if "attempt 2 follows" in record.getMessage()]
    assert len(retried) == sum(times - 1 for times in once_or_twice.values())


@pytest.mark.parametrize("over", ["memory", "sockets"])
async def test_cancelled_rollouts_leave_no_connection_at_the_provider(over, chaos) -> None:
    """A hundred rollouts that wait for an endless answer are cancelled; the provider sees every connection end."""
    provider, url = chaos
    server = VLLMModel(name="model", config={"base_url": url, "model": "m"})
    client = ServerClient()
    async with contextlib.AsyncExitStack() as stack:
        if over == "memory":
            state = await stack.enter_async_context(open_lifespan(server.app, server="model"))
            client.register("model", MemoryTransport(server.app, state=state), "http://model")
        else:
            running = await stack.enter_async_context(open_server(server.app))
            transport = await stack.enter_async_context(open_socket_transport())
            client.register("model", transport, running.url)
        async with trio.open_nursery() as rollouts:
            for number in range(100):
                endless = number * len(FAULTS) + FAULTS.index("endless")
                path = f"/ng-rollout/{endless}-0/v1/responses"
                rollouts.start_soon(lambda path=path, n=endless: client.post("model", path, json={"input": str(n)}))
            with trio.fail_after(20):
                await provider.until_open(100)
            rollouts.cancel_scope.cancel()
        with trio.fail_after(20):
            await provider.until_open(0)
    assert sum(provider.heard.values()) == 100
