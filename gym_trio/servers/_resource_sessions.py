"""The sessions of an environment: one state per rollout, made at seed and disposed of, once, at close.

A plain rollout's session is found by its cookie alone, whose id the server made. An episode's session has an id that
its owner chose, and answers repeated seeds and closes alike; its cookie leads tools and verifier to it too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from ..errors import RequestRefused, SessionConflict, SessionsDraining, SessionSetupError
from ..sessions import ConflictReason, SessionPhase, SessionUse
from ._authored import authored, pending
from ._body import RequestBody
from ._session_forms import ResourcesClose, ResourcesSeed, check_form, fingerprint
from ._signed_cookie import SignedCookie

if TYPE_CHECKING:
    from ._resources import ResourcesServer

__all__ = ["ResourceSessions"]

COOKIE = "session_id"
TYPED_KEY = "resources_session_id"
KEY_HEADER = "x-ng-session-key"
LAST_HEADER = "x-ng-session-last"  # on a verification: nothing but the close of the session follows
_KEY = re.compile(r"[A-Za-z0-9_-]{20,64}")
OTHER_COOKIE = "resources_session_id does not match the session cookie"

_DETAILS: Mapping[str, str] = {
    ConflictReason.OTHER_SEED: "resources_session_id is already bound to another seed request",
    ConflictReason.OTHER_EPISODE: "episode_id does not match the seeded resources session",
    ConflictReason.CLOSING: "Resources session is closing",
    ConflictReason.CLOSED: "Resources session is already closed",
    ConflictReason.UNKNOWN: "the request's cookie names no live session; seed one first",
}


@attrs.define(eq=False)
class ResourceSession:
    """What the registry keeps: the environment's own state, and what its seed answered."""

    state: Any
    answer: dict[str, Any] = attrs.field(factory=dict)


def _drawn_key(request: RequestBody) -> str | None:
    """The key that the client has drawn for its session, where it is one that nobody can guess."""
    key = request.header(KEY_HEADER)
    return key if key is not None and _KEY.fullmatch(key) else None


def _answer_of(seeded: Any) -> dict[str, Any]:
    if seeded is not None and not isinstance(seeded, Mapping):
        raise TypeError(f"seed_session returned {seeded!r:.200}, which is neither None nor an object")
    return dict(seeded or {})


class ResourceSessions:
    """The session routes of one environment server, over the server's registry."""

    def __init__(self, server: ResourcesServer) -> None:
        self._server = server
        self._cookie = SignedCookie(COOKIE)

    def _named_by(self, request: RequestBody) -> str | None:
        """The id in the request's cookie; an empty cookie is one that was taken back."""
        sent = request.sent_cookies
        return self._cookie.read(sent) if sent.get(COOKIE) else None

    def seed(self, request: RequestBody) -> Awaitable[dict[str, Any]]:
        """Open a session and set its cookie: for the row ``request``, or in the typed form for an episode."""
        return self._seed_typed(request) if TYPED_KEY in request else self._seed_plain(request)

    async def _seed_plain(self, request: RequestBody) -> dict[str, Any]:
        session_id, state = await self._open_plain(_drawn_key(request))
        try:
            answer = _answer_of(await pending(self._server.seed_session(state, request)))
        except BaseException:
            # Nobody has learnt the id: the session must end here. The registry closes it, whatever cut this task.
            self._server.sessions.release_soon(session_id)
            raise
        request.cookies[COOKIE] = self._cookie.sign(session_id)
        return {**answer, "mcp": self._server.mcp.access(session_id)} if self._server.mcp else answer

    async def _open_plain(self, drawn: str | None = None) -> tuple[str, Any]:
        registry = self._server.sessions
        registry.admit()
        try:
            state = await pending(self._server.create_session())
        except SessionSetupError as error:
            registry.release_soon(await self._register(error.state))
            raise
        return await self._register(state, drawn), state

    async def _register(self, state: Any, drawn: str | None = None) -> str:
        try:
            return self._server.sessions.open_nowait(ResourceSession(state), self._closer(state), session_id=drawn)
        except (SessionsDraining, SessionConflict):
            # The server began to shut down while the state was made, or the client has left and closed it already.
            with trio.move_on_after(self._server.sessions.timeouts.session_close_timeout_seconds, shield=True):
                await authored(self._server.dispose_session, state)
            raise

    def _closer(self, state: Any) -> Any:
        # Most states hold nothing: then there is nothing to run, and a rollout's close costs no task.
        return self._dispose if self._server.holds_resources(state) else None

    async def _seed_typed(self, request: RequestBody) -> dict[str, Any]:
        form = check_form(ResourcesSeed, request)
        session_id = form.resources_session_id
        named = self._named_by(request)
        if named is not None and named != session_id:
            raise RequestRefused(409, OTHER_COOKIE)
        row = RequestBody(form.task_data, headers=(), cookies={}, rollout_id=form.episode_id.key)

        async def open_session() -> ResourceSession:
            session = ResourceSession(await authored(self._server.create_session))
            try:
                session.answer = _answer_of(await authored(self._server.seed_session, session.state, row))
            except (Exception, trio.Cancelled) as error:
                raise SessionSetupError(session) from error
            return session

        try:
            session = await self._server.sessions.seed(
                session_id,
                fingerprint=fingerprint(form),
                episode=form.episode_id.key,
                open=open_session,
                close=self._dispose,
            )
        except SessionConflict as error:
            raise RequestRefused(409, _DETAILS[error.reason]) from None
        except SessionSetupError as error:
            raise (error.__cause__ if isinstance(error.__cause__, Exception) else error) from None
        request.cookies[COOKIE] = self._cookie.sign(session_id)
        answer = {TYPED_KEY: session_id, **session.answer}
        if self._server.mcp:
            answer["resources_tools"] = {**self._server.mcp.access(session_id), "tools": self._server.definitions}
        return answer

    async def _dispose(self, session: Any) -> None:
        state = session.state if isinstance(session, ResourceSession) else session
        await authored(self._server.dispose_session, state)

    def using(self, request: RequestBody) -> SessionUse[ResourceSession]:
        """A context manager around the request's session, which is not idle for as long as it runs.

        **Errors**: `RequestRefused` (409), raised by this call, when the request's cookie names no live session.
        """
        session_id = self._named_by(request)
        if session_id is None:
            raise RequestRefused(409, _DETAILS[ConflictReason.UNKNOWN])
        return self.using_id(session_id)

    def id_of(self, request: RequestBody) -> str | None:
        """The id of the request's session; None without a cookie.

        **Errors**: `RequestRefused` (409) when the cookie names none.
        """
        session_id = self._named_by(request)
        if session_id is None and COOKIE in request.sent_cookies:
            raise RequestRefused(409, _DETAILS[ConflictReason.UNKNOWN])
        return session_id

    def using_id(self, session_id: str) -> SessionUse[ResourceSession]:
        """As `using`, for a session that is known by its id."""
        try:
            return self._server.sessions.using(session_id)
        except SessionConflict as error:
            raise RequestRefused(409, _DETAILS[error.reason]) from None

    @contextlib.asynccontextmanager
    async def passing(self) -> AsyncIterator[Any]:
        """A fresh session that ends with the block."""
        session_id, state = await self._open_plain()
        try:
            yield state
        finally:
            self._server.sessions.release_soon(session_id)

    @contextlib.asynccontextmanager
    async def begun(self, request: RequestBody) -> AsyncIterator[Any]:
        """The state of the request's live session, else of a new one whose cookie the answer sets.

        A new session is given up when the block raises or is cancelled: nobody has learnt its id.
        """
        session_id = self._named_by(request)
        if session_id is not None and self._server.sessions.phase(session_id) is SessionPhase.READY:
            with self.using_id(session_id) as session:
                yield session.state
            return
        session_id, state = await self._open_plain(_drawn_key(request))
        try:
            yield state
        except BaseException:
            self._server.sessions.release_soon(session_id)
            raise
        request.cookies[COOKIE] = self._cookie.sign(session_id)

    async def end(self, request: RequestBody) -> None:
        """Dispose of the request's session, of either kind; the owner of a typed one gets its receipt as ever."""
        session_id = self._named_by(request)
        if session_id is not None:
            await self._server.sessions.release(session_id)

    def end_with(self, request: RequestBody, session_id: str) -> None:
        """End the session of a ``request`` that says it is the last, if nothing has to be disposed of.

        The answer takes the cookie back, which tells the agent that it need not ask for the close: one request of a
        rollout less. A session with something to dispose of is left to that: its close may take long, and can fail.
        """
        if request.header(LAST_HEADER) is not None and self._server.sessions.release_nowait(session_id):
            request.cookies[COOKIE] = ""

    async def close(self, request: RequestBody) -> dict[str, Any]:
        """Dispose of the session; closing twice is no error."""
        if TYPED_KEY in request:
            return await self._close_typed(request)
        session_id = self._named_by(request)
        if session_id is not None:
            await self._server.sessions.release(session_id)
            return {}
        drawn = _drawn_key(request)
        if drawn is not None:
            # Whoever never heard the answer of its seed closes by the key it sent. A seed that is late is refused then.
            try:
                await self._server.sessions.close(drawn)
            except SessionConflict as error:
                raise RequestRefused(409, _DETAILS[error.reason]) from None
        return {}

    async def _close_typed(self, request: RequestBody) -> dict[str, Any]:
        form = check_form(ResourcesClose, request)
        session_id = form.resources_session_id
        registry = self._server.sessions
        named = self._named_by(request)
        if named is not None and named != session_id:
            raise RequestRefused(409, OTHER_COOKIE)
        if named is not None and not registry.knows(session_id):
            raise RequestRefused(409, "Resources close receipt has expired")
        try:
            await registry.close(session_id, episode=form.episode_id.key)
        except SessionConflict as error:
            raise RequestRefused(409, _DETAILS[error.reason]) from None
        request.cookies[COOKIE] = self._cookie.sign(session_id)
        return {TYPED_KEY: session_id}
