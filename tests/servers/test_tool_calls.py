"""Tools that block, hang, or return what JSON cannot carry."""

from __future__ import annotations

import threading
from typing import Any

import attrs
import pytest
import trio

from gym_trio.servers import ResourcesServer, Session, tool


@attrs.define
class Point:
    x: int


class Tools(ResourcesServer):
    @tool(isolated=False)
    def thread_of(self, session: Session) -> int:
        """The thread that a plain tool runs in."""
        return threading.get_ident()

    @tool(isolated=False)
    def block(self, session: Session) -> None:
        """Block until it is let go."""
        self.config["gate"].wait(20)

    @tool
    async def hang(self, session: Session) -> None:
        """Never end."""
        await trio.sleep_forever()

    @tool
    async def odd(self, session: Session, which: str) -> Any:
        """What JSON cannot carry, and what it can."""
        return {
            "nan": [1.0, {"deep": float("nan")}],
            "infinity": float("-inf"),
            "object": object(),
            "null": None,
            "nulls": [None, 1.5, {"a": None}],
            "attrs": Point(3),
            "text": "nan",
        }[which]


async def called(gym: Any, name: str, **arguments: Any) -> Any:
    seeded = await gym.client.post("env", "/seed_session", json={})
    return await gym.client.post("env", f"/{name}", json=arguments, cookies=seeded.cookies())


async def test_a_plain_tool_may_run_in_a_thread(open_servers: Any) -> None:
    """It may block: the loop goes on without it."""
    async with open_servers((Tools, "env", {})) as gym:
        assert (await called(gym, "thread_of")).json() != threading.get_ident()


async def test_a_hundred_tools_may_block_at_once(open_servers: Any) -> None:
    """They wait side by side, and other requests are answered meanwhile."""
    gate = threading.Event()
    async with open_servers((Tools, "env", {"gate": gate})) as gym, trio.open_nursery() as nursery:
        try:
            for _ in range(99):
                nursery.start_soon(called, gym, "block")
            assert (await called(gym, "thread_of")).status == 200
        finally:
            gate.set()


@pytest.mark.parametrize("name", ["hang", "block"])
async def test_a_tool_that_hangs_fails_its_rollout_in_time(open_servers: Any, name: str) -> None:
    """The failure names the tool and the setting, and the session lives on."""
    gate = threading.Event()
    async with open_servers((Tools, "env", {"gate": gate, "tool_timeout_seconds": 0.05})) as gym:
        failure = (await called(gym, name)).json()["failure"]
        gate.set()
    assert (failure["failure_kind"], failure["stage"]) == ("agent_timeout", "agent")
    assert name in failure["failure_reason"]
    assert "tool_timeout_seconds" in failure["failure_reason"]


@pytest.mark.parametrize("which", ["nan", "infinity", "object"])
async def test_what_json_cannot_carry_is_a_failure(open_servers: Any, which: str) -> None:
    """It never reaches the model as a null."""
    async with open_servers((Tools, "env", {})) as gym:
        failure = (await called(gym, "odd", which=which)).json()["failure"]
        assert (failure["failure_kind"], failure["stage"]) == ("agent_run_error", "agent")
        assert "odd" in failure["failure_reason"]


async def test_nulls_texts_and_records_are_fine(open_servers: Any) -> None:
    """What has a form in JSON is written in it."""
    async with open_servers((Tools, "env", {})) as gym:
        for which, value in (("null", None), ("nulls", [None, 1.5, {"a": None}]), ("attrs", {"x": 3}), ("text", "nan")):
            assert (await called(gym, "odd", which=which)).json() == value
