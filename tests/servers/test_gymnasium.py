"""The routes of an environment that is stepped: sessions, and what a broken one answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from gym_trio.servers import GymnasiumServer, RequestBody, ResetAnswer, StepAnswer

RESPONSE = {"output": [{"type": "message", "role": "assistant", "content": "go"}]}


@attrs.define
class Count:
    steps: int = 0
    closed: list[int] = attrs.Factory(list)

    def close(self) -> None:
        self.closed.append(self.steps)


class Stairs(GymnasiumServer):
    session_type = Count

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.made: list[Count] = []

    async def create_session(self) -> Count:
        self.made.append(Count())
        return self.made[-1]

    async def reset(self, session: Count, row: RequestBody) -> ResetAnswer:
        if row.get("broken"):
            raise ZeroDivisionError("bang")
        session.steps = row.get("start", 0)
        if "returned" in row:
            made: ResetAnswer = row["returned"] if isinstance(row["returned"], int) else tuple(row["returned"])
            return made
        return "go", {"floor": session.steps}

    async def step(self, session: Count, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        session.steps += 1
        if "answer" in row:
            answer: StepAnswer = tuple(row["answer"])
            return answer
        if row.get("raise"):
            raise ZeroDivisionError("bang")
        if row.get("nan"):
            return "x", float(row["nan"]), False, False, {}
        return f"step {session.steps}", 0.5, session.steps == 3, False, {}


STAIRS = (Stairs, "stairs", {})


async def call(gym: Any, path: str, body: Any, cookies: Any) -> Any:
    response = await gym.client.post("stairs", path, json=body, cookies=cookies)
    cookies.update(response.cookies())
    return response


@pytest.mark.parametrize("serve", ["memory", "sockets"])
async def test_an_episode_over_its_routes(open_servers: Any, serve: str) -> None:
    """Reset opens the session, steps count in it, the last one closes it, and a step after that is refused."""
    async with open_servers(STAIRS, serve=serve) as gym:
        cookies: dict[str, str] = {}
        first = await call(gym, "/reset", {"start": 0}, cookies)
        expected = {"observation": "go", "reward": 0.0, "terminated": False, "truncated": False, "info": {"floor": 0}}
        assert first.json() == expected
        for number in (1, 2, 3):
            answer = (await call(gym, "/step", {"response": RESPONSE}, cookies)).json()
            assert answer["observation"] == f"step {number}"
            assert (answer["reward"], answer["terminated"]) == (0.5, number == 3)
        assert (await call(gym, "/step", {"response": RESPONSE}, cookies)).status == 409
        assert (await gym.client.get("stairs", "/status")).json()["sessions"]["ready"] == 0


async def test_a_reset_of_a_live_session_starts_it_afresh(open_servers: Any) -> None:
    """The same session begins again; after its end another is opened, with a cookie of its own."""
    async with open_servers(STAIRS) as gym:
        cookies: dict[str, str] = {}
        await call(gym, "/reset", {}, cookies)
        before = dict(cookies)
        await call(gym, "/step", {"response": RESPONSE}, cookies)
        await call(gym, "/reset", {}, cookies)
        assert cookies == before
        for _ in range(3):
            answer = await call(gym, "/step", {"response": RESPONSE}, cookies)
        assert answer.json()["terminated"] is True
        await call(gym, "/reset", {}, cookies)
        assert cookies != before


async def test_a_broken_reset_leaves_no_session(open_servers: Any) -> None:
    """Its failure is one of the seed, and what it had made is disposed of."""
    async with open_servers(STAIRS) as gym:
        response = await call(gym, "/reset", {"broken": True}, {})
        assert response.json()["failure"]["stage"] == "seed"
        await call(gym, "/reset", {}, {})
        assert (await gym.client.get("stairs", "/status")).json()["sessions"]["ready"] == 1


@pytest.mark.parametrize("returned", [5, ["a", 5], ["a", {}, 1], [5, {}]])
async def test_a_reset_that_returns_what_it_must_not_leaves_no_session(open_servers: Any, returned: Any) -> None:
    """The failure is one of the seed, says what was returned, and nobody is left with the session."""
    async with open_servers(STAIRS) as gym:
        failure = (await call(gym, "/reset", {"returned": returned}, {})).json()["failure"]
        assert (failure["failure_kind"], failure["stage"]) == ("agent_run_error", "seed")
        assert "must be" in failure["failure_reason"]
        await call(gym, "/reset", {}, {})
        assert (await gym.client.get("stairs", "/status")).json()["sessions"]["ready"] == 1


@pytest.mark.parametrize(
    ("body", "kind", "stage"),
    [
        ({"raise": True}, "agent_run_error", "agent"),
        ({"nan": "nan"}, "verifier_error", "verification"),
        ({"nan": "-inf"}, "verifier_error", "verification"),
        ({"answer": ["x", "1", False, False, {}]}, "verifier_error", "verification"),
        ({"answer": ["x", None, False, False, {}]}, "verifier_error", "verification"),
        ({"answer": [3, 1, False, False, {}]}, "agent_run_error", "agent"),
        ({"answer": ["x", 1, False, False, None]}, "agent_run_error", "agent"),
        ({"answer": ["x", 1, False]}, "agent_run_error", "agent"),
        ({"answer": ["x", 1, False, False, {"tool_outputs": "x"}]}, "agent_run_error", "agent"),
        ({"answer": ["x", 1, False, False, {"tool_outputs": [1]}]}, "agent_run_error", "agent"),
    ],
)
async def test_a_broken_step_is_one_failure(open_servers: Any, body: Any, kind: str, stage: str) -> None:
    """What a step raises or wrongly returns has its kind and stage, and the session lives on."""
    async with open_servers(STAIRS) as gym:
        cookies: dict[str, str] = {}
        await call(gym, "/reset", {}, cookies)
        response = await call(gym, "/step", {"response": RESPONSE, **body}, cookies)
        assert response.status == 500
        failure = response.json()["failure"]
        assert (failure["failure_kind"], failure["stage"]) == (kind, stage)
        assert (await call(gym, "/step", {"response": RESPONSE}, cookies)).json()["observation"] == "step 2"


async def test_what_a_client_gets_wrong_is_refused(open_servers: Any) -> None:
    """A step without a session, a session without a response, and a verification that does not exist."""
    async with open_servers(STAIRS) as gym:
        cookies: dict[str, str] = {}
        assert (await call(gym, "/step", {"response": RESPONSE}, cookies)).status == 409
        await call(gym, "/reset", {}, cookies)
        assert (await call(gym, "/step", {}, cookies)).status == 422
        assert (await call(gym, "/verify", {"response": RESPONSE}, cookies)).status == 501
        assert (await gym.client.get("stairs", "/reverify_mode")).json() == {"reverify_mode": "unsupported"}
