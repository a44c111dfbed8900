"""An environment's tools over MCP, with the official client over sockets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import attrs
import httpx2
import pytest
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import gym_trio
from gym_trio.errors import RolloutFailure, ToolError
from gym_trio.servers import ResourcesServer, open_mcp, tool
from gym_trio.servers._mcp import TOKEN_HEADER


@attrs.define
class Bag:
    things: list[str] = attrs.Factory(list)


class Tools(ResourcesServer):
    session_type = Bag
    expose_tools_over_mcp = True

    @tool
    async def put(self, session: Bag, thing: str) -> dict[str, Any]:
        """Put a thing in."""
        session.things.append(thing)
        return {"things": session.things}

    @tool
    async def refuse(self, session: Bag) -> None:
        """Refuse."""
        raise ToolError("not today")

    @tool
    async def crash(self, session: Bag) -> None:
        """Break."""
        raise ZeroDivisionError("bang")

    @tool
    async def hang(self, session: Bag) -> None:
        """Never end."""
        await trio.sleep_forever()

    @tool
    async def count(self, session: Bag) -> int:
        """How many."""
        return len(session.things)


@pytest.fixture
def open_tools(open_servers: Any) -> Any:
    @contextlib.asynccontextmanager
    async def opened(**config: Any) -> AsyncIterator[Any]:
        async with open_servers((Tools, "env", config), serve="sockets") as gym:
            yield gym

    return opened


async def seed(gym: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """The cookies of a new session, and the access to its tools."""
    response = await gym.client.post("env", "/seed_session", json={})
    found = response.json()["mcp"]
    url = gym.client.base_url("env") + found["url_path"]
    connection = {"transport": "streamable_http", "url": url, "headers": found["headers"]}
    return response.cookies(), {"kind": "mcp", "name": "tools", "required": True, "connection": connection}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_finds_and_calls_the_tools(open_tools: Any, mode: Any) -> None:
    """Names, descriptions and schemas are those of the tools; calls act on the token's session and no other."""
    async with open_tools() as gym:
        cookies, access = await seed(gym)
        other, _ = await seed(gym)
        connection = access["connection"]
        async with httpx2.AsyncClient(headers=connection["headers"]) as http:
            transport = streamable_http_client(connection["url"], http_client=http)
            async with Client(transport, mode=mode) as client:
                tools = {one.name: one for one in (await client.list_tools()).tools}
                assert set(tools) == {"put", "refuse", "crash", "hang", "count"}
                assert tools["put"].description == "Put a thing in."
                assert tools["put"].input_schema["required"] == ["thing"]
                result = await client.call_tool("put", {"thing": "a"})
                assert (result.is_error, result.structured_content) == (False, {"things": ["a"]})
                assert (await client.call_tool("count", {})).content[0].text == "1"
        for session, number in ((cookies, 1), (other, 0)):
            assert (await gym.client.post("env", "/count", json={}, cookies=session)).json() == number


async def test_a_token_is_needed_and_dies_with_its_session(open_tools: Any) -> None:
    """None, two, a guess, and one of a closed session open nothing."""
    async with open_tools() as gym:
        cookies, access = await seed(gym)
        token = access["connection"]["headers"][TOKEN_HEADER]
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}

        async def status(headers: dict[str, str]) -> int:
            response = await gym.client.post("env", "/mcp", json=body, headers={**accept, **headers})
            return int(response.status)

        assert await status({TOKEN_HEADER: token}) == 200
        for headers in ({}, {TOKEN_HEADER: ""}, {TOKEN_HEADER: "x.y"}, {TOKEN_HEADER: cookies["session_id"]}):
            assert await status(headers) == 401, headers
        await gym.client.post("env", "/close_session", json={}, cookies=cookies)
        assert await status({TOKEN_HEADER: token}) == 409


async def test_the_agents_helper(open_tools: Any) -> None:
    """Definitions in the Responses form; refusals and wrong arguments are outputs, a broken tool is the failure."""
    async with open_tools() as gym:
        _, access = await seed(gym)
        async with open_mcp(access) as tools:
            assert {one["name"] for one in tools.definitions} == {"put", "refuse", "crash", "hang", "count"}
            assert all(one["type"] == "function" for one in tools.definitions)
            assert await tools.call("put", {"thing": "a"}) == '{"things":["a"]}'
            assert "not today" in await tools.call("refuse", {})
            assert "thing" in await tools.call("put", {"thing": 3})
            assert "there is no tool" in await tools.call("steal", {})
            with pytest.raises(RolloutFailure, match="bang") as caught:
                await tools.call("crash", {})
            assert (caught.value.kind, caught.value.stage) == ("agent_run_error", "agent")
            assert await tools.call("count", {}) == "1"


async def test_what_the_block_raises_comes_out_as_it_is(open_tools: Any) -> None:
    """No group of exceptions is wrapped around it."""
    async with open_tools() as gym:
        _, access = await seed(gym)
        with pytest.raises(ZeroDivisionError):
            async with open_mcp(access):
                raise ZeroDivisionError


async def test_a_call_has_its_own_time(open_tools: Any) -> None:
    """A tool that hangs is given up by the client; the connection still serves the next call."""
    async with open_tools() as gym:
        _, access = await seed(gym)
        async with open_mcp(access, call_seconds=0.3) as tools:
            with pytest.raises(RolloutFailure, match="hang") as caught:
                await tools.call("hang", {})
            assert (caught.value.kind, caught.value.stage) == ("agent_timeout", "agent")
            with trio.fail_after(20):
                assert await tools.call("count", {}) == "0"


async def test_a_tool_that_hangs_is_bounded_by_the_server_too(open_tools: Any) -> None:
    """The environment's own bound of a tool holds over MCP as well."""
    async with open_tools(tool_timeout_seconds=0.05) as gym:
        _, access = await seed(gym)
        async with open_mcp(access) as tools:
            with pytest.raises(RolloutFailure, match="tool_timeout_seconds"):
                await tools.call("hang", {})


async def silent(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        while (await receive())["type"] != "http.disconnect":
            pass


async def test_connecting_has_its_own_time() -> None:
    """A server that says nothing, and one that is not there, are named within the time for connecting."""
    async with gym_trio.open_server(silent) as served:
        access = {"name": "quiet", "connection": {"transport": "streamable_http", "url": served.url, "headers": {}}}
        with pytest.raises(RolloutFailure, match="quiet") as caught:
            async with open_mcp(access, connect_seconds=0.3):
                raise AssertionError("there is nothing to connect to")
        assert (caught.value.kind, caught.value.stage) == ("transport_unreachable", "agent")
    with pytest.raises(RolloutFailure, match="quiet"):
        async with open_mcp(access, connect_seconds=10):
            raise AssertionError("there is nothing to connect to")


async def test_cancelling_ends_a_call_and_the_session_lives_on(open_tools: Any) -> None:
    """A client that leaves in the middle of a call leaves nothing behind."""
    async with open_tools() as gym:
        cookies, access = await seed(gym)
        with trio.move_on_after(1) as scope:
            async with open_mcp(access) as tools:
                await tools.call("hang", {})
        assert scope.cancelled_caught
        assert (await gym.client.post("env", "/count", json={}, cookies=cookies)).json() == 0


async def test_without_opting_in_there_is_no_mcp(open_servers: Any) -> None:
    """The route is not there, and the seed hands out no token."""
    async with open_servers((Tools, "env", {"expose_tools_over_mcp": False})) as gym:
        response = await gym.client.post("env", "/seed_session", json={})
        assert "mcp" not in response.json()
        answer = await gym.client.post("env", "/mcp", json={}, cookies=response.cookies())
        assert answer.status == 404


async def test_a_typed_seed_hands_out_the_access(open_tools: Any) -> None:
    """An episode's environment answers how to reach its tools over MCP, and which they are."""
    async with open_tools() as gym:
        body = {
            "resources_session_id": "rs-1",
            "episode_id": {"rollout_id": "0-0", "attempt": 0},
            "task_id": {"taskset": "t", "task_id": "1"},
            "task_data": {},
        }
        found = (await gym.client.post("env", "/seed_session", json=body)).json()["resources_tools"]
        assert found["url_path"] == "/mcp"
        assert len(found["tools"]) == 5
        url = gym.client.base_url("env") + "/mcp"
        connection = {"transport": "streamable_http", "url": url, "headers": found["headers"]}
        async with open_mcp({"name": "x", "connection": connection}) as tools:
            assert await tools.call("count", {}) == "0"
