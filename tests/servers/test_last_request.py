"""The verification as an agent's last request: a session that holds nothing ends with it, and the answer is brief."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio

from gym_trio.http import MemoryTransport, ServerClient
from gym_trio.http._lifespan import open_lifespan
from gym_trio.models.scripted_model import ScriptedModelServer
from gym_trio.servers import AgentServer, ResourcesServer, tool

ROW = {"responses_create_params": {"input": "hi"}, "_ng_rollout_id": "7-0"}
BLOCK = {
    "resources_server": {"type": "resources_servers", "name": "env"},
    "model_server": {"type": "responses_api_models", "name": "model"},
}


class Plain(ResourcesServer):
    @tool
    async def look(self, session: Any) -> str:
        """Look."""
        return "nothing"

    async def verify(self, session: Any, request: Any) -> float:
        if request["responses_create_params"]["input"] == "raise":
            raise RuntimeError("no")
        return 1.0


class Holding(Plain):
    """Has something to dispose of."""

    disposed = 0

    def holds_resources(self, session: Any) -> bool:
        return True

    async def dispose_session(self, session: Any) -> None:
        type(self).disposed += 1


class Other(Plain):
    """An environment of other make: it does not know the headers."""

    async def _verify(self, request: Any) -> Any:
        request._headers = [pair for pair in request._headers if not pair[0].startswith((b"x-ng-session", b"x-ng-ver"))]
        return await super()._verify(request)


class Selective(Other):
    """One that does not send everything back, and changes what it was sent."""

    async def _verify(self, request: Any) -> Any:
        answer = dict(await super()._verify(request))
        del answer["long"]
        return {**answer, "response": {**answer["response"], "seen": True}}


class Parts:
    """An agent, a model and an environment, and what was asked of the latter."""

    def __init__(self, environment: ResourcesServer, client: ServerClient) -> None:
        self.environment = environment
        self.client = client
        self.asked: list[str] = []
        self.agent = AgentServer(name="agent", config=BLOCK, client=client)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """A rollout can be cut before each request to the environment, and between what that does and its answer."""
        self.asked.append(scope["path"])
        await trio.lowlevel.checkpoint()
        await self.environment.app(scope, receive, send)
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_parts(make: type[ResourcesServer]) -> AsyncIterator[Parts]:
    client = ServerClient()
    parts = Parts(make(name="env"), client)
    model = ScriptedModelServer(
        name="model", config={"replies": [[{"type": "message", "role": "assistant", "content": "hello"}]]}
    )
    async with AsyncExitStack() as stack:
        for name, app, server in (
            ("env", parts.app, parts.environment),
            ("model", model.app, model),
            ("agent", parts.agent.app, parts.agent),
        ):
            await stack.enter_async_context(open_lifespan(server.app, server=name))
            client.register(name, MemoryTransport(app), f"http://{name}")
        yield parts


def live(parts: Parts) -> int:
    statistics = parts.environment.sessions.statistics()
    return statistics.ready + statistics.closing + statistics.seeding


@pytest.mark.parametrize(("make", "closes"), [(Plain, []), (Holding, ["/close_session"]), (Other, ["/close_session"])])
async def test_a_rollout(make: type[ResourcesServer], closes: list[str]) -> None:
    """Whoever closes the session, it is closed when the rollout is over."""
    Holding.disposed = 0
    async with open_parts(make) as parts:
        result = await parts.client.post("agent", "/run", json=ROW)
        assert result.json()["reward"] == 1.0
        assert parts.asked == ["/seed_session", "/verify", *closes]
        assert live(parts) == 0
        assert Holding.disposed == (make is Holding)


async def test_the_result_is_the_same_whoever_has_the_row() -> None:
    """An environment that knows the header sends its verdict alone; what it leaves out the agent has."""
    results = []
    for make in (Plain, Other):
        async with open_parts(make) as parts:
            result = (await parts.client.post("agent", "/run", json={**ROW, "long": "x" * 1000})).json()
            assert result.pop("ng_perf")
            results.append(result)
    first, second = results
    assert first == {**second, "response": {**second["response"], "created_at": first["response"]["created_at"]}}
    assert list(first) == list(second)
    assert (first["long"], first["reward"]) == ("x" * 1000, 1.0)
    assert not any("verdict" in key for key in first)


async def test_what_an_environment_leaves_out_or_changes_stays_so() -> None:
    """One that answers with everything is taken at its word."""
    async with open_parts(Selective) as parts:
        result = (await parts.client.post("agent", "/run", json={**ROW, "long": "x" * 1000})).json()
    assert "long" not in result
    assert (result["reward"], result["response"]["seen"]) == (1.0, True)


async def test_a_verdict_alone_is_sent_to_who_asks_for_it() -> None:
    """To nobody else: other agents rely on the row and the response in the answer."""
    async with open_parts(Plain) as parts:
        body = {**ROW, "response": {"output": []}}
        whole = await parts.client.post("env", "/verify", json=body)
        assert whole.json() == {**body, "reward": 1.0}
        brief = await parts.client.post("env", "/verify", json=body, headers={"x-ng-verdict-only": "1"})
        assert brief.json() == {"_ng_verdict_only": True, "reward": 1.0}


@pytest.mark.parametrize("make", [Plain, Holding, Other])
async def test_a_verification_that_fails_ends_nothing(make: type[ResourcesServer]) -> None:
    """The agent closes the session, as ever."""
    async with open_parts(make) as parts:
        row = {**ROW, "responses_create_params": {"input": "raise"}}
        assert (await parts.client.post("agent", "/run", json=row)).status == 500
        assert parts.asked == ["/seed_session", "/verify", "/close_session"]
        assert live(parts) == 0


async def test_only_what_says_that_it_is_the_last_ends_the_session() -> None:
    """Afterwards the cookie is of no use: no request slips into a session of its own."""
    async with open_parts(Plain) as parts:
        post = parts.client.post
        cookies = (await post("env", "/seed_session", json=ROW)).cookies()
        body = {**ROW, "response": {"output": []}}
        for _ in range(2):
            answer = await post("env", "/verify", json=body, cookies=cookies)
            assert (answer.status, answer.cookies()) == (200, {})
        answer = await post("env", "/verify", json=body, cookies=cookies, headers={"x-ng-session-last": "1"})
        assert (answer.status, answer.cookies()) == (200, {"session_id": ""})
        for path, sent in (("/look", cookies), ("/verify", cookies), ("/look", {"session_id": ""})):
            assert (await post("env", path, json=body if path == "/verify" else {}, cookies=sent)).status == 409
        assert (await post("env", "/close_session", json={}, cookies=cookies)).status == 200


async def test_a_session_that_another_request_uses_does_not_end() -> None:
    """A tool that still runs keeps its state."""
    go, began = trio.Event(), trio.Event()

    class Slow(Plain):
        @tool
        async def wait(self, session: Any) -> str:
            """Wait."""
            began.set()
            await go.wait()
            return "done"

    async with open_parts(Slow) as parts, trio.open_nursery() as nursery:
        post = parts.client.post
        cookies = (await post("env", "/seed_session", json=ROW)).cookies()

        async def use() -> None:
            assert (await post("env", "/wait", json={}, cookies=cookies)).status == 200

        nursery.start_soon(use)
        await began.wait()
        body = {**ROW, "response": {"output": []}}
        answer = await post("env", "/verify", json=body, cookies=cookies, headers={"x-ng-session-last": "1"})
        assert (answer.status, answer.cookies()) == (200, {})
        assert live(parts) == 1
        go.set()


@pytest.mark.parametrize("parked", [True, False])
async def test_cancellation_at_every_step_leaves_no_session(cancel_at_step: Any, parked: bool) -> None:
    """Wherever the rollout is cut, between the verdict and its answer too."""
    for make in (Plain, Holding, Other):
        step = 1
        while True:
            async with open_parts(make) as parts:
                with cancel_at_step(step, parked=parked) as cancelling:
                    await parts.client.post("agent", "/run", json=ROW)
                assert live(parts) == 0
            if not cancelling.scope.cancelled_caught:
                break
            step += 1
        assert step > 5


class Says(Plain):
    """Its verdict has what an author put there."""

    said: Any = None

    async def verify(self, session: Any, request: Any) -> Any:
        return self.said


class OtherSays(Other, Says):
    """The same, of other make."""


class Dropping(Other):
    """An environment of other make that does not send back what is long."""

    async def _verify(self, request: Any) -> Any:
        answer = dict(await super()._verify(request))
        del answer["long"]
        return answer


@pytest.mark.parametrize("own", [{}, *({"_ng_verdict_only": value} for value in (True, False, "x"))])
@pytest.mark.parametrize(
    "said",
    [
        0.5,
        {"format": 0.5, "answer": 1, "mask_sample": True, "mask_reason": "why"},
        {"reward": 1, "response": {"other": 1}, "long": "short", "new": None, "ng_perf": {"mine": 1}},
        {"reward": 1, "_ng_rollout_id": "8-0", "responses_create_params": {}},
        {"reward": 1, "ng_agent_observations": {"tool_calls": 5}},
    ],
)
async def test_a_result_is_the_same_whatever_row_and_verdict_say(own: Any, said: Any, monkeypatch: Any) -> None:
    """Values, and the order of the keys, also of a row that has the key by which a verdict alone is known."""
    monkeypatch.setattr(Says, "said", said)
    row = {"reward": 7, **own, **ROW, "long": "x" * 1000, "new": 1}
    results = []
    for make in (Says, OtherSays):
        async with open_parts(make) as parts:
            result = (await parts.client.post("agent", "/run", json=row)).json()
            result["response"].pop("created_at", None)
            result["ng_perf"] = list(result["ng_perf"])
            results.append(result)
    assert results[0] == results[1]
    assert list(results[0]) == list(results[1])
    assert {key: result[key] for result in results for key in own} == own
    async with open_parts(Dropping) as parts:
        result = (await parts.client.post("agent", "/run", json=row)).json()
    assert "long" not in result
    assert {key: result[key] for key in own} == own


@pytest.mark.parametrize("flag", [False, "x"])
async def test_a_verdict_cannot_unsay_that_it_is_one(flag: Any, monkeypatch: Any) -> None:
    """The row is in the result, whatever an author puts under the key."""
    monkeypatch.setattr(Says, "said", {"reward": 1, "_ng_verdict_only": flag})
    async with open_parts(Says) as parts:
        result = (await parts.client.post("agent", "/run", json={**ROW, "long": "x"})).json()
    assert (result["long"], result["reward"]) == ("x", 1.0)


def meddle(request: Any) -> float:
    """Change what came, within its values and without."""
    request["response"]["output"].append({"type": "seen"})
    request["nested"]["list"][0]["deep"] = 2
    request["new"] = 1
    del request["long"]
    return 0.5


class Meddles(Plain):
    async def verify(self, session: Any, request: Any) -> Any:
        return meddle(request)


class MeddlesInAThread(Plain):
    verify_in_process = False

    def verify(self, session: Any, request: Any) -> Any:  # type: ignore[override]
        return meddle(request)


class MeddlesThenDeletes(Plain):
    async def verify(self, session: Any, request: Any) -> Any:
        meddle(request)
        del request["nested"], request["response"]
        return {"reward": 0.5, "_ng_verdict_only": True}


@pytest.mark.parametrize("kind", [Meddles, MeddlesInAThread, MeddlesThenDeletes])
async def test_what_a_verifier_changes_is_not_in_the_result(kind: Any) -> None:
    """Nor in the answer to who does not ask for the verdict alone: the row is the one that came."""
    results = []
    for make in (kind, type("Stripped", (kind, Other), {"_verify": Other._verify})):
        async with open_parts(make) as parts:
            row = {**ROW, "long": "x", "nested": {"list": [{"deep": 1}]}}
            result = (await parts.client.post("agent", "/run", json=row)).json()
            result["response"].pop("created_at", None)
            result.pop("ng_perf")
            results.append(result)
    for result in results:
        assert result["response"]["output"][-1]["type"] == "message"
        assert (result["nested"], result["long"], result["reward"]) == ({"list": [{"deep": 1}]}, "x", 0.5)
        assert "new" not in result
    first, second = ({key: value for key, value in result.items() if "verdict" not in key} for result in results)
    assert first == second
    assert list(first) == list(second)
