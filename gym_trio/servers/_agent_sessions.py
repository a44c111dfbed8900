"""The sessions of an agent: their routes and wire forms, the running rollouts, and how both are found and stopped."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import orjson
import trio

from ..errors import FailureKind, RequestRefused, RolloutFailure, SessionConflict, SessionSetupError, Stage
from ..sessions import ConflictReason, SessionPhase
from ._authored import authored, pending
from ._body import JsonEndpoint, Reply, RequestBody
from ._failures import failure_to_wire
from ._session_forms import AgentClose, AgentSeed, as_body, check_form, claim_key, fingerprint
from ._signed_cookie import CookieEndpoint, SignedCookie

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from ._agent import AgentServer

__all__ = ["AgentSessions"]

logger = logging.getLogger("gym_trio.servers")

COOKIE = "agent_session_id"
OTHER_COOKIE = "agent_session_id does not match the session cookie"

_DETAILS: Mapping[str, str] = {
    ConflictReason.OTHER_SEED: "agent_session_id is already bound to another seed request",
    ConflictReason.OTHER_EPISODE: "episode_id does not match the seeded agent session",
    ConflictReason.CLOSING: "Agent session is closing",
    ConflictReason.CLOSED: "Agent session is already closed",
    ConflictReason.UNKNOWN: "Unknown or closing agent_session_id",
}


@attrs.define(eq=False)
class OpenAgentSession:
    """What an agent's session holds: the agent's own state, and the cookies of the tools it was given."""

    cookies: dict[str, str]
    state: Any = None


class AgentSessions:
    """The session routes of one agent server, over the server's registry."""

    def __init__(self, server: AgentServer) -> None:
        self._server = server
        self._cookie = SignedCookie(COOKIE)
        self._numbers = itertools.count()
        self._running: dict[int, RequestBody] = {}  # the oldest first

    def routes(self) -> list[BaseRoute]:
        prefixes = ("", "/ng-rollout/{rollout_id}", "/ng-rollout/{rollout_id}/training-token-capture")
        return [
            *(self._route(f"{prefix}/v1/responses", self.responses, only_if_sent=True) for prefix in prefixes),
            self._route("/v1/agent_sessions", self.seed, stage=Stage.SEED),
            self._route("/v1/agent_sessions/close", self.close, stage=Stage.CLEANUP),
            self._server.route("GET", "/v1/agent_sessions/capabilities", self.capabilities),
            self._server.route("POST", "/rollouts/{rollout_id}/stop", self.stop),
        ]

    def _route(self, path: str, handler: Any, *, stage: str = Stage.AGENT, only_if_sent: bool = False) -> BaseRoute:
        from starlette.routing import Route

        endpoint = JsonEndpoint(handler, server=self._server.name, stage=stage)
        return Route(path, endpoint=CookieEndpoint(endpoint, self._cookie, only_if_sent=only_if_sent), methods=["POST"])

    async def seed(self, request: RequestBody) -> dict[str, Any]:
        """Open the session that the caller names; the same body again gives the same answer."""
        form = check_form(AgentSeed, request)
        session_id = form.agent_session_id
        registry = self._server.sessions
        if self._caller_has_cookie_of(session_id, request) and not registry.knows(session_id):
            raise RequestRefused(409, "Agent session cookie has expired")
        session = OpenAgentSession(form.resources_cookies)

        async def open_session() -> OpenAgentSession:
            seed = RequestBody(as_body(form), cookies=session.cookies, rollout_id=form.episode_id.key)
            session.state = await authored(self._server.open_session, seed)
            return session

        async def close_session(made: Any) -> bytes:
            # A partial state comes bare, as its maker handed it over.
            state = made.state if made is session else made
            observations = await authored(self._server.close_session, state)
            return self._closed(session_id, observations, session.cookies)

        try:
            await registry.seed(
                session_id,
                fingerprint=fingerprint(form),
                episode=form.episode_id.key,
                open=open_session,
                close=close_session,
            )
        except SessionConflict as error:
            raise RequestRefused(409, _DETAILS[error.reason]) from None
        except SessionSetupError as error:
            raise (error.__cause__ if isinstance(error.__cause__, Exception) else error) from None
        request.cookies[COOKIE] = self._cookie.sign(session_id)
        return {"agent_session_id": session_id}

    async def close(self, request: RequestBody) -> Reply:
        """Close the session and give its receipt, the same one for as long as it is kept."""
        form = check_form(AgentClose, request)
        session_id = form.agent_session_id
        registry = self._server.sessions
        if self._caller_has_cookie_of(session_id, request) and not registry.knows(session_id):
            raise RequestRefused(409, "Agent close receipt has expired")
        try:
            receipt = await registry.close(session_id, episode=form.episode_id.key)
        except SessionConflict as error:
            raise RequestRefused(409, _DETAILS[error.reason]) from None
        # It stays set after the close, so that a stale request cannot pass for one without a session.
        request.cookies[COOKIE] = self._cookie.sign(session_id)
        return Reply(receipt.value if receipt.had_state else self._closed(session_id, None, None))

    def _caller_has_cookie_of(self, session_id: str, request: RequestBody) -> bool:
        named = self._cookie.read(request.sent_cookies)
        if named is not None and named != session_id:
            raise RequestRefused(409, OTHER_COOKIE)
        return named is not None

    def _closed(self, session_id: str, observations: Any, cookies: Mapping[str, str] | None) -> bytes:
        # Encoded once, so that no later change to an object of the agent's can make a repeated answer differ.
        answer = {"agent_session_id": session_id, "agent_observations": observations, "resources_cookies": cookies}
        try:
            return orjson.dumps(answer, option=orjson.OPT_NON_STR_KEYS, default=_mapping)
        except TypeError as error:
            # The session is closed all the same; a close that can never be answered would be tried for ever.
            logger.error("agent %s: the observations of session %s are lost: %s", self._server.name, session_id, error)
            return orjson.dumps({**answer, "agent_observations": None})

    async def responses(self, request: RequestBody) -> Any:
        """The agent's loop; with a session's cookie in that session, which is not idle meanwhile."""
        session_id = self._cookie.read(request.sent_cookies)
        if session_id is None:
            return await pending(self._server.responses(request))
        registry = self._server.sessions
        if registry.phase(session_id) is not SessionPhase.READY:
            raise RequestRefused(409, _DETAILS[ConflictReason.UNKNOWN])
        with registry.using(session_id) as session:
            # The tools' cookies stay here; they go back to the session's owner at close.
            inner = request.within(session.state, session.cookies)
            try:
                return await pending(self._server.responses(inner))
            finally:
                session.cookies.update(inner.cookies)

    async def run(self, request: RequestBody) -> Any:
        """``/run``, claimed under its rollout id so that it can be stopped."""
        key = claim_key(request, request.rollout_id)
        stages = request.stages
        stages.began_at = stages.now()
        number = next(self._numbers)
        self._running[number] = request
        try:
            if key is None:
                return await pending(self._server.run(request))
            with self._server.sessions.claims.run(key):
                return await pending(self._server.run(request))
        finally:
            del self._running[number]
        stopped = RolloutFailure(FailureKind.CANCELLED, f"rollout {key} was stopped", stage=Stage.AGENT)
        return Reply(failure_to_wire(stopped)[1], status=409)

    def running(self, most: int = 100) -> list[dict[str, Any]]:
        """The rollouts under way, the oldest first: id, stage and age. ``agent``: between two stages."""
        now = trio.current_time()
        return [
            {
                "rollout_id": request.rollout_id,
                "stage": request.stages.stage or "agent",
                "age_seconds": round(now - (request.stages.began_at or now), 3),
            }
            for request in itertools.islice(self._running.values(), most)
        ]

    async def stop(self, request: RequestBody) -> dict[str, bool]:
        """Cancel the running ``/run`` of a rollout attempt. False when it has ended or was asked before."""
        return {"stopped": self._server.sessions.claims.stop(request.path_params["rollout_id"])}

    async def capabilities(self, request: RequestBody) -> dict[str, Any]:
        """What a caller may rely on."""
        timeouts = self._server.sessions.timeouts
        return {
            "agent_sessions": True,
            "idempotent_seed": True,
            "stop_rollout": True,
            "drain_at_shutdown": True,
            "tool_accesses": list(self._server.tool_access_kinds),
            "session_close_timeout_seconds": timeouts.session_close_timeout_seconds,
            "session_close_retry_window_seconds": timeouts.session_close_retry_window_seconds,
        }


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
