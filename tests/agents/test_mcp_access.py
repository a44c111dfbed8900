"""Agent sessions whose tools come over MCP."""

from __future__ import annotations

from typing import Any

import pytest

from gym_trio.agents.simple_agent import SimpleAgent
from gym_trio.models.scripted_model import ScriptedModelServer
from gym_trio.servers import EnvironmentServer, RequestBody, ResourcesServer, Session, tool

EPISODE = {"rollout_id": "0-0", "attempt": 0}
TASK = {"taskset": "t", "task_id": "1"}


class Shop(ResourcesServer):
    expose_tools_over_mcp = True

    @tool
    async def buy(self, session: Session, what: str) -> str:
        """Buy a thing."""
        session.bought = what  # type: ignore[attr-defined]
        return f"bought {what}"

    async def verify(self, session: Session, request: RequestBody) -> float:
        return float(getattr(session, "bought", None) == "tea")


def servers(replies: Any) -> Any:
    return (
        (Shop, "env", {}),
        (Shop, "shop", {}),
        (ScriptedModelServer, "policy_model", {"replies": replies}),
        (SimpleAgent, "agent", {}),
    )


async def access_to(gym: Any, name: str, **change: Any) -> dict[str, Any]:
    found = (await gym.client.post(name, "/seed_session", json={})).json()["mcp"]
    url = gym.client.base_url(name) + found["url_path"]
    connection = {"transport": "streamable_http", "url": url, "headers": found["headers"], **change}
    return {"kind": "mcp", "name": name, "required": True, "connection": connection}


async def respond(gym: Any, accesses: Any) -> Any:
    cookies: dict[str, str] = {}
    body = {"agent_session_id": "as-1", "episode_id": EPISODE, "task_id": TASK, "tool_accesses": accesses}
    seeded = await gym.client.post("agent", "/v1/agent_sessions", json=body)
    assert seeded.status == 200, seeded.body
    cookies.update(seeded.cookies())
    response = await gym.client.post("agent", "/v1/responses", json={"input": "go"}, cookies=cookies)
    closed = await gym.client.post(
        "agent", "/v1/agent_sessions/close", json={"agent_session_id": "as-1", "episode_id": EPISODE}, cookies=cookies
    )
    assert closed.status == 200
    return response


async def test_the_model_is_offered_the_tools_and_calls_them(open_servers: Any, saying: Any, calling: Any) -> None:
    """A session's MCP server is connected to, its tools offered, and the call acts on its session."""
    made = servers([[calling("buy", '{"what": "tea"}')], [saying("done")]])
    async with open_servers(*made, serve="sockets") as gym:
        answer = (await respond(gym, [await access_to(gym, "shop")])).json()
        assert [one["name"] for one in answer["tools"]] == ["buy"]
        assert answer["output"][1]["output"] == '"bought tea"'
        kinds = (await gym.client.get("agent", "/v1/agent_sessions/capabilities")).json()["tool_accesses"]
        assert kinds == ["direct_http", "mcp"]


@pytest.mark.parametrize("required", [True, False])
async def test_a_server_that_cannot_be_reached(open_servers: Any, saying: Any, required: bool) -> None:
    """One that is required fails the rollout by its name; another is left out."""
    async with open_servers(*servers([[saying("done")]]), serve="sockets") as gym:
        access = {**(await access_to(gym, "shop", url="http://127.0.0.1:9/mcp")), "required": required}
        response = await respond(gym, [access])
    if required:
        assert response.json()["failure"]["failure_kind"] == "transport_unreachable"
        assert "shop" in response.json()["detail"]
    else:
        assert response.status == 200


async def test_an_episode_with_tools_over_mcp(open_servers: Any, saying: Any, calling: Any) -> None:
    """An environment that exposes its tools over MCP still hands them to agents that call its routes."""
    made = (
        *servers([[calling("buy", '{"what": "tea"}')], [saying("done")]]),
        (
            EnvironmentServer,
            "episodes",
            {
                "resources_server": {"type": "resources_servers", "name": "env"},
                "agent_server": {"type": "responses_api_agents", "name": "agent"},
            },
        ),
    )
    task = {"task_id": TASK, "task_input": {"responses_create_params": {"input": "go"}, "task_data": {}}}
    async with open_servers(*made, serve="sockets") as gym:
        answer = (await gym.client.post("episodes", "/run", json={"episode_id": EPISODE, "task": task})).json()
    assert answer["result"]["reward"] == 1.0, answer
