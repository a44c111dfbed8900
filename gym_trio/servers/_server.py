"""`Server`: what all servers share: a name, settings, a client for the other servers, an ASGI app and its lifetime."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .. import errors
from ..config import BLOCK_KEYS, structure
from ..http import CancelOnDisconnect
from ..sessions import SessionRegistry, check_seconds, open_session_registry
from ._body import JsonEndpoint, Receive, RequestBody, Scope, Send, send_json
from ._endpoints import Endpoints
from ._status import report_status

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from ..http import ServerClient

__all__ = ["COMMON_KEYS", "Server"]

Handler = Callable[[RequestBody], Awaitable[Any]]

# Keys that a block may have besides those of its class's settings.
SESSION_KEYS = (
    "session_close_timeout_seconds",
    "session_close_retry_window_seconds",
    "idle_ttl_seconds",
    "absolute_ttl_seconds",
    "minted_idle_ttl_seconds",
    "minted_absolute_ttl_seconds",
)
# Keys that bound an environment's verifier and tools.
LIMIT_KEYS = (
    "verify_timeout_seconds",
    "verify_processes",
    "verify_memory_bytes",
    "tool_timeout_seconds",
    "tool_processes",
    "tool_memory_bytes",
)
_OTHERS = ("agent_server", "model_server", "resources_server", "expose_tools_over_mcp")
COMMON_KEYS = BLOCK_KEYS | {*_OTHERS, *SESSION_KEYS, *LIMIT_KEYS}

HEALTH_PATHS = ("/", "/health", "/healthz", "/livez", "/readyz")


class Server:
    """One agent, environment or model server.

    ``name`` is the instance's name in a configuration, ``config`` the keys of its block, ``client`` finds the other
    servers by name. `app` is a plain ASGI application: hypercorn, `open_server` and the in-memory transport all serve
    it. Sub-classes add routes (`routes`) and whatever lives as long as the server (`lifespan`).

    **Errors**: `ConfigError` from the constructor when ``config`` does not fit ``settings_type``.

    **Ownership**: the server does not own ``client``; whoever made it closes it.
    """

    server_type: ClassVar[str] = ""
    # Whether a second worker process of the same server would lack what the first one knows.
    keeps_sessions: ClassVar[bool] = True
    settings_type: ClassVar[type | None] = None
    # How long closing a session, and closing them all at shutdown, may take; the block's own key comes before it.
    session_close_timeout_seconds: ClassVar[float | None] = None

    def __init__(
        self, *, name: str | None = None, config: Mapping[str, Any] | None = None, client: ServerClient | None = None
    ) -> None:
        self.name = name or type(self).__name__
        self.config: Mapping[str, Any] = dict(config or {})
        self._client = client
        self._sessions: SessionRegistry[Any] | None = None
        self.settings: Any = self._structure_settings()
        self.session_bounds()  # wrong ones are refused here, not when the server starts

    def _structure_settings(self) -> Any:
        if self.settings_type is None:
            return None
        return structure(self.settings_type, self.config, key=self.name, ignore=COMMON_KEYS)

    @functools.cached_property
    def client(self) -> ServerClient:
        """The client that reaches the other servers.

        **Errors**: `ConfigError` when the server was made without one.
        """
        if self._client is None:
            raise errors.ConfigError("this server was made without a client and cannot reach others", key=self.name)
        return self._client

    def reference(self, key: str) -> str:
        """The name of the server that this one's ``key`` refers to (``{type: ..., name: ...}`` in the block).

        **Errors**: `ConfigError` when the block has no such reference.
        """
        value = self.config.get(key)
        name = value.get("name") if isinstance(value, (dict, Mapping)) else value
        if not isinstance(name, str):
            raise errors.ConfigError(
                "a reference {type: ..., name: ...} to another server is missing", key=f"{self.name}.{key}"
            )
        return name

    @functools.cached_property
    def app(self) -> Any:
        """The ASGI application, made once. A client that leaves cancels its handler."""
        from starlette.routing import Router

        @contextlib.asynccontextmanager
        async def lifespan(_: Any) -> AsyncIterator[None]:
            async with self.lifespan():
                yield

        status = self.route("GET", "/status", functools.partial(report_status, self))
        routes = [*self.routes(), status, *(self.route("GET", path, _answer_ok) for path in HEALTH_PATHS)]
        router = Router(routes, lifespan=lifespan, default=_not_found, redirect_slashes=False)
        return CancelOnDisconnect(Endpoints(router))

    @property
    def sessions(self) -> SessionRegistry[Any]:
        """The registry that owns the server's sessions. After the lifespan's shutdown it takes no new ones.

        **Errors**: `RequestRefused` (503) before the lifespan's startup.
        """
        if self._sessions is None:
            raise errors.RequestRefused(503, f"{self.name} is not running: its lifespan has not started")
        return self._sessions

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """What lives exactly as long as the server; entered before the first request, left after the last.

        **Cancellation**: leaving runs inside the serving side's own shutdown bound. Sessions are drained here.
        """
        async with open_session_registry(name=self.name, **self.session_bounds()) as registry:
            # It stays reachable afterwards: it refuses new sessions, and what it could not close can be tried again.
            self._sessions = registry
            yield

    def session_bounds(self) -> dict[str, Any]:
        """The bounds of the server's sessions, for `open_session_registry`: the block's, else the class's own.

        **Errors**: `ConfigError` for one that is not a finite number of seconds, or is negative.
        """
        bounds = {key: self.config[key] for key in SESSION_KEYS if key in self.config}
        if self.session_close_timeout_seconds is not None:
            bounds.setdefault("session_close_timeout_seconds", self.session_close_timeout_seconds)
        for key, value in bounds.items():
            if value is not None or not key.endswith("_ttl_seconds"):  # null switches a time to live off
                check_seconds(f"{self.name}.{key}", value)
        return bounds

    def running_rollouts(self) -> list[dict[str, Any]]:
        """For ``/status``: the rollouts under way, the oldest first, each with ``rollout_id``, ``stage`` and age."""
        return []

    def routes(self) -> list[BaseRoute]:
        """The routes, most used first."""
        return []

    def route(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        stage: str = errors.Stage.AGENT,
        kind: str = errors.FailureKind.AGENT_RUN_ERROR,
    ) -> BaseRoute:
        """A route that answers ``method path`` with ``handler(request)`` as JSON."""
        from starlette.routing import Route

        endpoint = JsonEndpoint(handler, server=self.name, stage=stage, kind=kind)
        return Route(path, endpoint=endpoint, methods=[method])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


async def _answer_ok(_: RequestBody) -> dict[str, str]:
    return {"status": "ok"}


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send_json(send, 404, {"detail": f"no route {scope['method']} {scope['path']}"})
    else:
        await send({"type": "websocket.close"})
