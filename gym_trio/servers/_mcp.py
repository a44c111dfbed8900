"""``/mcp``: an environment's tools over the Model Context Protocol, in the session that each request's token names."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from ..errors import FailureKind, MissingExtraError, RequestRefused, RolloutFailure, Stage
from ._authored import authored
from ._body import Receive, Scope, Send, send_json
from ._failures import failure_of, failure_to_wire
from ._signed_cookie import SignedCookie

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from ._resources import ResourcesServer

__all__ = ["MCP_PATH", "TOKEN_HEADER", "McpExposure"]

MCP_PATH = "/mcp"
TOKEN_HEADER = "X-NeMo-Gym-Session-Token"
FAILURE_KEY = "gym_trio/failure"  # in a result's ``_meta``: the tool broke, and with it the rollout

_RAW_HEADER = TOKEN_HEADER.lower().encode("ascii")
_MISSING_TOKEN = f"the header {TOKEN_HEADER} is missing or not one of this server's; the seed's answer has it"


def package() -> tuple[Any, Any, Any]:
    """The parts of the ``mcp`` package that serve. **Errors**: `MissingExtraError`."""
    try:
        import mcp_types
        from mcp.server.lowlevel import Server
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    except ImportError as error:
        raise MissingExtraError(f"expose_tools_over_mcp ({error})", extra="mcp") from None
    return mcp_types, Server, StreamableHTTPSessionManager


class McpExposure:
    """The MCP side of one environment server, for one that opted in.

    No state of MCP's own is kept: every request stands for itself, and belongs to the environment's session that its
    token names. The token is signed like a cookie, and is as good as the session's cookie.
    """

    def __init__(self, server: ResourcesServer) -> None:
        self._server = server
        self._token = SignedCookie(TOKEN_HEADER)
        self._types, server_type, self._manager_type = package()
        self._mcp = server_type(server.name, on_list_tools=self._list_tools, on_call_tool=self._call_tool)
        self._manager: Any = None

    def access(self, session_id: str) -> dict[str, Any]:
        """What a client needs to reach the tools in a session."""
        return {
            "server_name": self._server.name,
            "url_path": MCP_PATH,
            "transport": "http",
            "headers": {TOKEN_HEADER: self._token.sign(session_id)},
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Requests are served inside the block. Leaving it cancels those that are not done."""
        self._manager = self._manager_type(self._mcp, json_response=True, stateless=True)
        failure: Exception | None = None
        async with self._manager.run():
            # What is raised in here is raised again outside, where no task group wraps it.
            try:
                yield
            except Exception as error:  # noqa: BLE001  raised again below
                failure = error
        self._manager = None
        if failure is not None:
            raise failure

    def route(self) -> BaseRoute:
        from starlette.routing import Route

        # A class, and not a function, is what starlette takes for an application.
        return Route(MCP_PATH, endpoint=_Endpoint(self), methods=["GET", "POST", "DELETE"])

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request of MCP, in the session that its token names."""
        try:
            session_id = self._session_id(scope)
            session = self._server.resource_sessions.using_id(session_id)
        except RequestRefused as refused:
            await send_json(send, refused.status, {"detail": refused.detail})
            return
        if self._manager is None:
            await send_json(send, 503, {"detail": f"{self._server.name} is not running"})
            return
        # The session is not idle, and its state is there, until the answer has been given.
        with session as used:
            scope["gym_trio.session"] = used.state
            await self._manager.handle_request(scope, receive, send)

    def _session_id(self, scope: Scope) -> str:
        tokens = [value.decode("latin-1") for name, value in scope["headers"] if name == _RAW_HEADER]
        try:
            session_id = self._token.read({TOKEN_HEADER: tokens[0]}) if len(tokens) == 1 else None
        except RequestRefused:
            session_id = None
        if session_id is None:
            raise RequestRefused(401, _MISSING_TOKEN)
        return session_id

    async def _list_tools(self, context: Any, params: Any) -> Any:
        tools = [
            self._types.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters))
            for tool in self._server.tools.values()
        ]
        return self._types.ListToolsResult(tools=tools)

    async def _call_tool(self, context: Any, params: Any) -> Any:
        session = context.request.scope["gym_trio.session"]
        try:
            tool = self._server.find_tool(params.name)
            encoded = await authored(self._server.tool_calls.call, tool, session, params.arguments or {})
        except RequestRefused as refused:
            return self._result(orjson.dumps({"detail": refused.detail}, default=repr), is_error=True)
        except RolloutFailure as failure:
            return self._broken(failure)
        except Exception as error:  # noqa: BLE001  it goes to the caller, typed, as from the tool's own route
            return self._broken(failure_of(error, kind=FailureKind.AGENT_RUN_ERROR, stage=Stage.AGENT))
        return self._result(encoded)

    def _broken(self, failure: RolloutFailure) -> Any:
        form = failure_to_wire(failure)[1]
        return self._result(orjson.dumps({"detail": failure.message}), is_error=True, meta={FAILURE_KEY: form})

    def _result(self, encoded: bytes, *, is_error: bool = False, meta: Mapping[str, Any] | None = None) -> Any:
        found = orjson.loads(encoded)
        return self._types.CallToolResult(
            content=[self._types.TextContent(type="text", text=encoded.decode())],
            structured_content=found if isinstance(found, dict) and not is_error else None,
            is_error=is_error,
            _meta=None if meta is None else dict(meta),
        )


class _Endpoint:
    def __init__(self, exposure: McpExposure) -> None:
        self._exposure = exposure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._exposure.answer(scope, receive, send)
