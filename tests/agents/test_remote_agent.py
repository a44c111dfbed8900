"""`remote_agent` against services of someone else: well-behaved ones, and the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import trio

import gym_trio
from gym_trio.agents.remote_agent import RemoteAgent
from gym_trio.errors import ConfigError
from gym_trio.servers import RequestBody, ResourcesServer, Session, tool

ROW = {"responses_create_params": {"input": "go", "temperature": 0.5}, "secret": "the answer"}


class Env(ResourcesServer):
    async def create_session(self) -> Session:
        session = Session()
        session.got = []  # type: ignore[attr-defined]
        return session

    @tool
    async def put(self, session: Any, thing: str) -> int:
        """Put a thing in."""
        session.got.append(thing)
        return len(session.got)

    async def verify(self, session: Any, request: RequestBody) -> dict[str, Any]:
        return {"reward": float(len(session.got)), "got": session.got}


class Service:
    """A service that gives the n-th request the n-th answer: a dict, or (status, headers, body); never, for None."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.cookies: list[str | None] = []

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.requests.append((scope["path"], orjson.loads(body)))
        self.cookies.append(dict(scope["headers"]).get(b"cookie", b"").decode() or None)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if answer is None:  # as long as the client is there
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        status, headers, content = answer if isinstance(answer, tuple) else (200, [], answer)
        raw = content if isinstance(content, bytes) else orjson.dumps(content)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": raw})


@pytest.fixture
def open_service(open_servers: Any) -> Any:
    @asynccontextmanager
    async def opened(service: Any, **settings: Any) -> AsyncIterator[Any]:
        async with gym_trio.open_server(service) as served:
            agent = (RemoteAgent, "agent", {"agent_base_url": served.url + "/api/", **settings})
            async with open_servers((Env, "env", {}), agent) as gym:
                yield gym

    return opened


async def outcome_of(gym: Any, row: Any = ROW) -> Any:
    async with gym.run_examples([row]) as rollouts:
        (outcome,) = [outcome async for outcome in rollouts]
    assert (await gym.client.get("env", "/status")).json()["sessions"]["ready"] == 0
    return outcome


async def test_open_calls_are_carried_out_and_pairs_passed_on(open_service: Any, saying: Any, calling: Any) -> None:
    """Only the call without its output reaches the environment; the rest stays as the service said it."""
    own = [calling("search", "{}", "own"), {"type": "function_call_output", "call_id": "own", "output": "found"}]
    service = Service(
        {"output": [*own, calling("put", '{"thing": "a"}', "c1"), calling("put", "{", "c2")], "usage": {"x": 1}},
        {"output": own},
        {"output": [saying("done")], "usage": {"x": 2}},
    )
    async with open_service(service) as gym:
        result = (await outcome_of(gym)).unwrap()[1]
    assert result["got"] == ["a"]
    assert result["response"]["usage"] == {"x": 3}
    kinds = [(item["type"], item.get("call_id")) for item in result["response"]["output"]]
    assert kinds == [
        ("function_call", "own"),
        ("function_call_output", "own"),
        ("function_call", "c1"),
        ("function_call", "c2"),
        ("function_call_output", "c1"),
        ("function_call_output", "c2"),
        ("function_call", "own"),
        ("function_call_output", "own"),
        ("message", None),
    ]
    assert [path for path, _ in service.requests] == ["/api/v1/responses"] * 3
    assert len(service.requests[-1][1]["input"]) == 1 + 8
    assert service.requests[0][1]["temperature"] == 0.5
    assert "the answer" not in str(service.requests)


async def test_cookies_are_echoed_within_a_rollout_alone(open_service: Any, saying: Any, calling: Any) -> None:
    """The service can keep state by its own cookie; the environment's never reaches it, and rollouts share none."""
    cookie = (200, [(b"set-cookie", b"sid=1; Path=/; HttpOnly")], {"output": [calling("put", '{"thing": "a"}')]})
    service = Service(cookie, {"output": [saying("done")]})
    async with open_service(service) as gym:
        await outcome_of(gym)
        await outcome_of(gym)
    assert service.cookies == [None, "sid=1", None]


@pytest.mark.parametrize(
    ("answer", "kind", "terminal", "said"),
    [
        ((302, [(b"location", b"http://elsewhere/")], b""), "agent_run_error", True, "elsewhere"),
        ((308, [(b"location", b"http://elsewhere/")], b""), "agent_run_error", True, "redirect"),
        ((500, [], b"broken"), "agent_run_error", False, "500"),
        ((503, [], b"busy"), "agent_request_failed", False, "503"),
        ((404, [], b"no"), "agent_run_error", False, "404"),
        (b"not json", "agent_run_error", False, "not JSON"),
        (b"[1]", "agent_run_error", True, "list"),
        ({}, "agent_run_error", True, "output items"),
        ({"output": "hi"}, "agent_run_error", True, "output items"),
        ({"output": [3]}, "agent_run_error", False, "output items"),
        (b"x" * 3_000_000, "transport_peer_drop", False, "2000000"),
    ],
)
async def test_what_a_service_gets_wrong_is_one_failure(
    open_service: Any, answer: Any, kind: str, terminal: bool, said: str
) -> None:
    """Each has its kind, says what was wrong, and leaves no session; no redirect is followed."""
    service = Service(answer)
    async with open_service(service, max_response_bytes=2_000_000) as gym:
        failure = (await outcome_of(gym)).failure
    assert (failure.kind, failure.stage, failure.terminal) == (kind, "agent", terminal)
    assert said in failure.message
    assert len(service.requests) == 1


async def test_a_service_that_is_not_there(open_servers: Any) -> None:
    """No connection is a failure of the transport, in stage agent."""
    async with gym_trio.open_server(Service({})) as served:
        url = served.url
    async with open_servers((Env, "env", {}), (RemoteAgent, "agent", {"agent_base_url": url})) as gym:
        failure = (await outcome_of(gym)).failure
    assert (failure.kind, failure.stage) == ("transport_unreachable", "agent")


@pytest.mark.parametrize("key", ["remote_responses_timeout_secs", "run_timeout_secs"])
async def test_a_service_that_never_answers_is_bounded(open_service: Any, key: str) -> None:
    """One call, and the whole rollout, has its own bound, which the failure names."""
    async with open_service(Service(None), **{key: 0.2}) as gym:
        failure = (await outcome_of(gym)).failure
    assert (failure.kind, failure.stage) == ("agent_timeout", "agent")
    assert key in failure.message


async def test_a_service_that_never_ends_is_stopped(open_service: Any, calling: Any) -> None:
    """The number of calls is bounded, whether they are open or its own."""
    own = [calling("search", "{}", "own"), {"type": "function_call_output", "call_id": "own", "output": "found"}]
    for output in ([calling("put", '{"thing": "a"}')], own):
        service = Service({"output": output})
        async with open_service(service, max_steps=4) as gym:
            result = (await outcome_of(gym)).unwrap()[1]
        assert len(service.requests) == 4
        assert result["response"]["incomplete_details"] == {"reason": "max_steps"}


async def test_only_so_many_rollouts_are_with_the_service(open_service: Any, saying: Any) -> None:
    """`concurrency` bounds what the service sees at once."""
    busy, most = 0, 0

    class Counting(Service):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            nonlocal busy, most
            if scope["type"] != "http":
                return await super().__call__(scope, receive, send)
            busy += 1
            most = max(most, busy)
            await trio.sleep(0.01)
            await super().__call__(scope, receive, send)
            busy -= 1

    service = Counting({"output": [saying("x")]})
    async with open_service(service, concurrency=3) as gym, gym.run_examples([ROW] * 12) as rollouts:
        assert len([outcome.unwrap() async for outcome in rollouts]) == 12
    assert most == 3


@pytest.mark.parametrize(
    "url", ["localhost:80", "ftp://x", "http://", "http://x/?a=1", "http://x/#f", "http://u:p@x/", "http://x?"]
)
def test_a_base_url_that_cannot_be_one_is_refused(url: str) -> None:
    """The refusal names the key, and never repeats credentials."""
    with pytest.raises(ConfigError, match="agent_base_url") as caught:
        RemoteAgent(name="agent", config={"agent_base_url": url})
    assert "u:p" not in str(caught.value)
