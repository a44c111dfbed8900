"""An environment's routes: tools, sessions, rewards, and what a broken one answers."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from gym_trio.errors import ToolError
from gym_trio.servers import RequestBody, ResourcesServer, tool

RESPONSE = {"output": []}


@attrs.define
class Ledger:
    entries: list[str] = attrs.Factory(list)
    closed: list[str] = attrs.Factory(list)

    async def aclose(self) -> None:
        self.closed.append("closed")


class Shop(ResourcesServer):
    session_type = Ledger

    async def seed_session(self, session: Ledger, row: RequestBody) -> dict[str, Any]:
        session.entries.append(row.get("start", "empty"))
        return {"greeting": "hello"}

    @tool
    async def buy(self, session: Ledger, what: str) -> list[str]:
        """Buy something."""
        if what == "dragon":
            raise ToolError("we are out of dragons")
        if what == "bomb":
            raise ZeroDivisionError("bang")
        session.entries.append(what)
        return session.entries

    async def verify(self, session: Ledger, request: RequestBody) -> Any:
        return request["answer"]


SHOP = (Shop, "shop", {})


async def seeded(gym: Any, **row: Any) -> dict[str, str]:
    response = await gym.post("shop", "/seed_session", json=row)
    assert response.status == 200, response.body
    assert response.json()["greeting"] == "hello"
    cookies: dict[str, str] = response.cookies()
    return cookies


async def call(gym: Any, path: str, body: Any, cookies: dict[str, str]) -> Any:
    return await gym.client.post("shop", path, json=body, cookies=cookies)


@pytest.mark.parametrize("serve", ["memory", "sockets"])
async def test_each_session_has_its_own_state(open_servers: Any, serve: str) -> None:
    """Two sessions of one environment do not see each other's state."""
    async with open_servers(SHOP, serve=serve) as gym:
        one, two = await seeded(gym, start="a"), await seeded(gym)
        assert one != two
        assert (await call(gym, "/buy", {"what": "milk"}, one)).json() == ["a", "milk"]
        assert (await call(gym, "/buy", {"what": "eggs"}, two)).json() == ["empty", "eggs"]
        assert (await call(gym, "/buy", {"what": "tea"}, one)).json() == ["a", "milk", "tea"]


async def test_the_seed_lists_the_tools(open_servers: Any) -> None:
    """An agent whose row names no tools finds them in the seed's answer."""
    async with open_servers(SHOP) as gym:
        answer = (await gym.post("shop", "/seed_session", json={})).json()
        assert [one["name"] for one in answer["resources_tools"]] == ["buy"]


async def test_a_tool_call_without_a_session_is_refused(open_servers: Any) -> None:
    """No cookie, or a guessed one, is no way into a session."""
    async with open_servers(SHOP) as gym:
        for cookies in ({}, {"session_id": "guessed"}):
            response = await call(gym, "/buy", {"what": "milk"}, cookies)
            assert response.status == 409, response.body


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"what": "dragon"}, 400, "out of dragons"),
        ({"what": 3}, 422, "what"),
        ({}, 422, "what"),
        ({"what": "bomb"}, 500, "ZeroDivisionError"),
    ],
)
async def test_what_a_tool_refuses_or_breaks_on(open_servers: Any, body: Any, status: int, said: str) -> None:
    """A tool's refusal is a client's status, its crash a failure with a kind; the session lives on."""
    async with open_servers(SHOP) as gym:
        cookies = await seeded(gym)
        response = await call(gym, "/buy", body, cookies)
        assert (response.status, said in response.text) == (status, True), response.body
        if status == 500:
            assert response.json()["failure"]["failure_kind"] == "agent_run_error"
        assert (await call(gym, "/buy", {"what": "milk"}, cookies)).status == 200


@pytest.mark.parametrize(
    ("answer", "reward", "rest"),
    [
        (1, 1.0, {}),
        (0.25, 0.25, {}),
        (True, 1.0, {}),
        ({"format": 0.5, "answer": 1}, 1.5, {"reward_components": {"format": 0.5, "answer": 1.0}}),
        ({"reward": 0.0, "mask_sample": True, "why": "x"}, 0.0, {"mask_sample": True, "why": "x"}),
        ({"a": 0.5, "mask_sample": True}, 0.5, {"mask_sample": True, "reward_components": {"a": 0.5}}),
    ],
)
async def test_what_verify_may_return(open_servers: Any, answer: Any, reward: float, rest: Any) -> None:
    """A number, named rewards, or a whole verify response: the row comes back with the reward."""
    async with open_servers(SHOP) as gym:
        cookies = await seeded(gym)
        row = {"task": 7, "answer": answer, "response": RESPONSE}
        response = await call(gym, "/verify", row, cookies)
        assert response.status == 200, response.body
        assert response.json() == {**row, "reward": reward, **rest}


@pytest.mark.parametrize("answer", [None, "1", [1], {}, {"reward": None}, {"a": "b"}, {"mask_sample": True}])
async def test_a_reward_that_is_no_number_is_a_verifier_error(open_servers: Any, answer: Any) -> None:
    """What is no finite number never becomes a reward, not even zero."""
    async with open_servers(SHOP) as gym:
        cookies = await seeded(gym)
        response = await call(gym, "/verify", {"answer": answer, "response": RESPONSE}, cookies)
        assert response.status == 500
        failure = response.json()["failure"]
        assert (failure["failure_kind"], failure["stage"]) == ("verifier_error", "verification")


async def test_nan_and_infinity_are_verifier_errors(open_servers: Any) -> None:
    """JSON cannot carry them in, so the verifier itself makes them."""

    class Nan(Shop):
        async def verify(self, session: Ledger, request: RequestBody) -> Any:
            return float(request["answer"])

    async with open_servers((Nan, "shop", {})) as gym:
        cookies = await seeded(gym)
        for answer in ("nan", "inf", "-inf"):
            response = await call(gym, "/verify", {"answer": answer, "response": RESPONSE}, cookies)
            assert response.json()["failure"]["failure_kind"] == "verifier_error", answer


async def test_an_unknown_tool_names_those_there_are(open_servers: Any) -> None:
    """A model that invents a tool is told which exist."""
    async with open_servers(SHOP) as gym:
        response = await call(gym, "/sell", {}, await seeded(gym))
        assert response.status == 404
        assert "buy" in response.text


@pytest.mark.parametrize(
    ("content", "status"), [(b"{", 400), (b"[1]", 422), (b"3", 422), (b'"a"', 422), (b"\xff", 400)]
)
async def test_a_body_that_is_no_object_is_refused(open_servers: Any, content: bytes, status: int) -> None:
    """Malformed bodies are a client's mistake on every route."""
    async with open_servers(SHOP) as gym:
        for path in ("/seed_session", "/verify", "/buy"):
            assert (await gym.client.post("shop", path, content=content)).status == status


async def test_the_health_routes_answer(open_servers: Any) -> None:
    """Every server says that it is there, on each of the five paths."""
    async with open_servers(SHOP) as gym:
        for path in ("/", "/health", "/healthz", "/livez", "/readyz"):
            assert (await gym.client.get("shop", path)).json() == {"status": "ok"}


async def test_closing_disposes_of_the_state_once(open_servers: Any) -> None:
    """After the close the session is gone; a second close is no error and disposes of nothing again."""
    disposed: list[Ledger] = []

    class Watched(Shop):
        async def dispose_session(self, session: Ledger) -> None:
            await super().dispose_session(session)
            disposed.append(session)

    async with open_servers((Watched, "shop", {})) as gym:
        cookies = await seeded(gym)
        assert (await call(gym, "/close_session", {}, cookies)).status == 200
        assert (await call(gym, "/close_session", {}, cookies)).status == 200
        assert (await call(gym, "/buy", {"what": "milk"}, cookies)).status == 409
    assert [one.closed for one in disposed] == [["closed"]]


async def test_sessions_left_open_are_disposed_of_at_shutdown(open_servers: Any) -> None:
    """Whatever the client forgot is released when the server ends."""
    disposed: list[Ledger] = []

    class Watched(Shop):
        async def dispose_session(self, session: Ledger) -> None:
            disposed.append(session)

    async with open_servers((Watched, "shop", {})) as gym:
        for _ in range(5):
            await seeded(gym)
        assert disposed == []
    assert len(disposed) == 5
