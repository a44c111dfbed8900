"""`open_mcp`: another server's tools over the Model Context Protocol, for agents."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import attrs
import orjson
import trio

from ..errors import FailureKind, MissingExtraError, RolloutFailure, Stage
from ._failures import failure_from_wire
from ._mcp import FAILURE_KEY

__all__ = ["McpTools", "mcp_accesses_of", "open_mcp", "open_mcp_accesses"]

logger = logging.getLogger("gym_trio.servers")

CONNECT_SECONDS = 30.0
CALL_SECONDS = 600.0
MOST_PAGES = 100


@attrs.frozen(eq=False)
class McpTools:
    """The tools of one MCP server, while `open_mcp`'s block runs. ``definitions`` are in the Responses form."""

    name: str
    definitions: tuple[dict[str, Any], ...]
    _client: Any
    _call_seconds: float

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """The tool's output as text; what a tool refuses is an output too.

        **Errors**: `RolloutFailure` (stage ``agent``): no answer within the call's time, a lost connection, and a tool
        that broke on a server of gym_trio.
        """
        from mcp import MCPError

        with trio.move_on_after(self._call_seconds):
            try:
                result = await self._client.call_tool(tool, dict(arguments))
            except MCPError as error:
                return orjson.dumps({"error": str(error)}).decode()
            return self._text_of(result)
        raise RolloutFailure(
            FailureKind.AGENT_TIMEOUT,
            f"MCP server {self.name}: the tool {tool} took over {self._call_seconds:g} s",
            stage=Stage.AGENT,
        )

    def _text_of(self, result: Any) -> str:
        broken = (result.meta or {}).get(FAILURE_KEY)
        if broken is not None:
            failure = failure_from_wire(self.name, 500, orjson.dumps(broken))
            if failure is not None:
                raise failure
        texts = [part.text for part in result.content if part.type == "text"]
        if not texts and result.structured_content is not None:
            return orjson.dumps(result.structured_content).decode()
        return "\n".join(texts)


@contextlib.asynccontextmanager
async def open_mcp(
    access: Mapping[str, Any], *, connect_seconds: float = CONNECT_SECONDS, call_seconds: float = CALL_SECONDS
) -> AsyncIterator[McpTools]:
    """The tools of ``access``, one of kind ``mcp`` in an agent session's ``tool_accesses``, while the block runs.

    ``connect_seconds`` bounds connecting and listing the tools, ``call_seconds`` each call.

    **Cancellation**: ends what runs; leaving the block ends the connection, and a process that was started for it.

    **Errors**: `RolloutFailure` (stage ``agent``) that names the access when it cannot be reached, or not in time;
    `MissingExtraError`.
    """
    name, connection = access["name"], access["connection"]
    connect = _connector(connection, connect_seconds, call_seconds)
    failure: Exception | None = None
    tools: McpTools | None = None
    try:
        with trio.CancelScope(deadline=trio.current_time() + connect_seconds) as scope:
            async with connect() as client:
                tools = McpTools(name, await _definitions(client), client, call_seconds)
                scope.deadline = math.inf
                # What is raised in here is raised again outside, where no task group wraps it.
                try:
                    yield tools
                except Exception as error:  # noqa: BLE001  raised again below
                    failure = error
    except Exception as error:  # noqa: BLE001  named, and raised
        # What the connection has to say counts only as long as there was none.
        if tools is None:
            raise _unreachable(name, _root(error)) from None
        failure = failure or _unreachable(name, _root(error))
    if failure is not None:
        raise failure
    if tools is None:
        raise _unreachable(name, f"not within {connect_seconds:g} s")


@contextlib.asynccontextmanager
async def open_mcp_accesses(
    accesses: Sequence[Mapping[str, Any]], *, call_seconds: float = CALL_SECONDS
) -> AsyncIterator[list[McpTools]]:
    """`open_mcp` for each of ``accesses``. One that is not ``required`` and cannot be reached is logged and left out.

    **Cancellation** and **Errors**: as for `open_mcp`.
    """
    opened: list[McpTools] = []
    async with contextlib.AsyncExitStack() as stack:
        for access in accesses:
            try:
                opened.append(await stack.enter_async_context(open_mcp(access, call_seconds=call_seconds)))
            except RolloutFailure as failure:
                if access.get("required", True):
                    raise
                logger.warning("left out: %s", failure)
        yield opened


def mcp_accesses_of(session: Any) -> list[Mapping[str, Any]]:
    """The accesses of kind ``mcp`` in an agent session's seed, without those to tools that it has directly too."""
    if session is None:
        return []
    found = session.get("tool_accesses") if isinstance(session, Mapping) else None
    accesses = [one for one in found or () if isinstance(one, Mapping)]
    direct = [one["base_url"].rstrip("/") + "/" for one in accesses if one.get("kind") == "direct_http"]
    return [
        one
        for one in accesses
        if one.get("kind") == "mcp" and not str(one["connection"].get("url", "")).startswith(tuple(direct))
    ]


def _connector(connection: Mapping[str, Any], connect_seconds: float, call_seconds: float) -> Any:
    try:
        import httpx2
        from mcp import Client, StdioServerParameters
        from mcp.client.streamable_http import streamable_http_client
    except ImportError as error:
        raise MissingExtraError(f"tools over MCP ({error})", extra="mcp") from None

    @contextlib.asynccontextmanager
    async def connected() -> AsyncIterator[Any]:
        if connection["transport"] == "stdio":
            keys = ("command", "args", "env", "cwd")
            parameters = {key: connection[key] for key in keys if connection.get(key)}
            async with Client(StdioServerParameters(**parameters), cache=None) as client:
                yield client
            return
        # The call's own deadline is the caller's; this one only lets go of a server that fell silent.
        bounds = httpx2.Timeout(connect_seconds, read=call_seconds + 5)
        headers = dict(connection.get("headers") or {})
        async with httpx2.AsyncClient(headers=headers, timeout=bounds) as http:
            transport = streamable_http_client(connection["url"], http_client=http)
            async with Client(transport, cache=None) as client:
                yield client

    return connected


async def _definitions(client: Any) -> tuple[dict[str, Any], ...]:
    found: list[dict[str, Any]] = []
    cursor = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.input_schema,
                "strict": False,
            }
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(found)


def _root(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _unreachable(name: str, why: str) -> RolloutFailure:
    return RolloutFailure(
        FailureKind.TRANSPORT_UNREACHABLE, f"MCP server {name} cannot be reached: {why}", stage=Stage.AGENT
    )
