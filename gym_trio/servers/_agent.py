"""`AgentServer`: carries out one rollout, ``POST /run``: seed → responses → verify → close."""

from __future__ import annotations

import functools
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .. import errors
from ..errors import RolloutFailure, Stage
from ._agent_sessions import AgentSessions
from ._aggregate import aggregate_through
from ._authored import pending
from ._body import RequestBody
from ._calls import call_server
from ._environment_link import EnvironmentLink
from ._server import Server

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["AgentServer"]

MODEL_PATH = "/v1/responses"


class AgentServer(Server):
    """The server that turns one row into one result.

    Override `responses` for an agent that is a loop over model and tools; override `run` for one that decides for
    itself what a rollout is. ``model_server`` and ``resources_server`` in the block name the servers it uses. What is
    overridden may be a plain ``def``; that too runs on the server's loop, and must not block.

    **Cancellation**: when the caller of ``/run`` leaves, `run` is cancelled; the environment's session is still closed,
    within ``cleanup_timeout_seconds``.

    **Errors**: what `run` raises is answered as a failure with its kind and stage; it never ends the server.
    """

    server_type = "responses_api_agents"
    cleanup_timeout_seconds: ClassVar[float] = 30
    # The kinds of a session's ``tool_accesses`` that the agent makes use of.
    tool_access_kinds: ClassVar[tuple[str, ...]] = ("direct_http",)

    async def run(self, request: RequestBody) -> Mapping[str, Any]:
        """One rollout of ``request``, a task row. Returns the verify response: the row, ``response``, ``reward``."""
        resources = self.reference("resources_server")
        row = dict(request)
        rollout_id = request.rollout_id
        link = EnvironmentLink(self, resources, rollout_id)
        cookies = link.cookies
        stages = request.stages
        try:
            seeded = await stages.measured("seed", link.open("/seed_session", row))
            params = RequestBody(self.parameters(row, seeded), (), None, cookies, rollout_id, stages)
            response = await pending(self.responses(params))
            cookies.update(params.cookies)
            body = {**row, "response": response}
            result = await stages.measured("verify", link.verify(body))
            observed = {"ng_agent_observations": {"tool_calls": stages.tool_calls}} if stages.tool_calls else {}
            return {**observed, **result, "ng_perf": {**(result.get("ng_perf") or {}), **stages.milliseconds()}}
        finally:
            await link.close()

    async def responses(self, request: RequestBody) -> Mapping[str, Any]:
        """The agent's own loop: from Responses parameters to a finished Responses object. Default: one model call.

        What it measures with ``request.stages`` goes into the result's ``ng_perf``.
        """
        return await request.stages.measured("model", self.call_model(request, rollout_id=request.rollout_id))

    def parameters(self, row: Mapping[str, Any], seeded: Mapping[str, Any]) -> dict[str, Any]:
        """What `responses` gets for ``row``, whose environment answered ``seeded``: its ``responses_create_params``,
        with the environment's tools where they name none.

        **Errors**: `RolloutFailure` (stage ``seed``) for a row without them.
        """
        return _parameters_of(row, seeded)

    async def open_session(self, seed: RequestBody) -> Any:
        """Make what one agent session needs and return it: its state, of any type.

        ``seed`` is the request that opens the session, ``agent_session_id``, ``episode_id``, ``task_id``,
        ``tool_accesses`` and ``sandbox_access`` among its keys. Requests in the session find the state as
        ``request.agent_session``. Default: the seed itself.

        **Cancellation**: when the caller leaves, when the session is closed meanwhile and when the server shuts down.

        **Errors**: raise `SessionSetupError` with what was half made, also when cancelled; it is closed like a whole
        one.
        """
        return seed

    async def close_session(self, state: Any) -> Any:
        """Release what `open_session` made; what is returned goes to the caller as ``agent_observations``.

        It runs once at a time, and again after it has failed. Default: nothing.

        **Cancellation**: by ``session_close_timeout_seconds`` alone; then, as when it raises, ``state`` is kept.
        """
        return None

    @functools.cached_property
    def agent_sessions(self) -> AgentSessions:
        return AgentSessions(self)

    @functools.cached_property
    def unclosing(self) -> set[str]:
        """The environments that did not close the last session they were asked to."""
        return set()

    def call_model(
        self, params: Mapping[str, Any], *, rollout_id: str | None = None, path: str = MODEL_PATH
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """One call of the ``model_server``, under the rollout's own prefix.

        **Errors**: `RolloutFailure` of stage ``agent`` with what the model server said.
        """
        prefix = f"/ng-rollout/{rollout_id}" if rollout_id else ""
        return self.call(self.reference("model_server"), prefix + path, params, {}, None)

    def call(
        self,
        server: str,
        path: str,
        body: Any,
        cookies: dict[str, str],
        rollout_id: str | None,
        *,
        stage: Stage = Stage.AGENT,
        headers: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """``POST path`` on another server; ``cookies`` are sent and brought up to date with the answer's.

        **Errors**: `RolloutFailure` with ``stage``, for no answer, an error status, and a body that is no JSON object.
        """
        return call_server(self.client, server, path, body, cookies, rollout_id, stage=stage, headers=headers)

    def running_rollouts(self) -> list[dict[str, Any]]:
        return self.agent_sessions.running()

    def routes(self) -> list[BaseRoute]:
        return [
            self.route("POST", "/run", self.agent_sessions.run),
            *self.agent_sessions.routes(),
            self.route("POST", "/aggregate_metrics", functools.partial(aggregate_through, self)),
            *super().routes(),
        ]


def _parameters_of(row: Mapping[str, Any], seeded: Mapping[str, Any]) -> dict[str, Any]:
    params = row.get("responses_create_params")
    if not isinstance(params, (dict, Mapping)):
        raise RolloutFailure(
            errors.FailureKind.AGENT_RUN_ERROR,
            "the row has no responses_create_params",
            stage=Stage.SEED,
            terminal=True,
        )
    tools = seeded.get("resources_tools")
    return {**params, "tools": tools} if tools and "tools" not in params else dict(params)
