"""The sessions of an environment: one state object per cookie, made at seed and disposed of at close."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ..errors import RequestRefused
from ._body import RequestBody

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from ._resources import ResourcesServer

__all__ = ["ResourceSessions"]

COOKIE = "session_id"


class ResourceSessions:
    """The live sessions of one environment server, by unguessable cookie."""

    def __init__(self, server: ResourcesServer) -> None:
        self._server = server
        self._states: dict[str, Any] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Own the sessions for the length of the block; what is still open at its end is disposed of."""
        yield
        while self._states:
            _, state = self._states.popitem()
            await self._server.dispose_session(state)

    def routes(self) -> list[BaseRoute]:
        return []

    async def seed(self, request: RequestBody) -> dict[str, Any]:
        """Open a session for the row ``request`` and set its cookie."""
        state = await self._server.create_session()
        key = secrets.token_urlsafe(16)
        self._states[key] = state
        request.cookies[COOKIE] = key
        return dict(await self._server.seed_session(state, request) or {})

    def get(self, request: RequestBody) -> Any:
        """The state of the request's session.

        **Errors**: `RequestRefused` (409) when its cookie names no live session.
        """
        state = self._states.get(request.cookies.get(COOKIE, ""))
        if state is None:
            raise RequestRefused(409, "the request's cookie names no live session; seed one first")
        return state

    async def get_or_new(self, request: RequestBody) -> Any:
        """The state of the request's session, or a fresh one where the request has no session cookie."""
        if COOKIE in request.cookies:
            return self.get(request)
        return await self._server.create_session()

    async def close(self, request: RequestBody) -> dict[str, Any]:
        """Dispose of the request's session; closing twice is no error."""
        state = self._states.pop(request.cookies.get(COOKIE, ""), None)
        if state is not None:
            await self._server.dispose_session(state)
        return {}
