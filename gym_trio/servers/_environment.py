"""`EnvironmentServer`: one episode per request: it seeds an environment and an agent, and always closes both."""

from __future__ import annotations

import contextlib
import functools
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from ..config import InvalidSetting, finite_seconds, optional, positive_int, positive_seconds
from ..errors import FailureKind, RolloutFailure, Stage, TransportError
from ._authored import pending, sparing
from ._body import Reply, RequestBody
from ._calls import call_server
from ._cleanup import Cleanup
from ._environment_agent import AgentOfEpisode, direct_access, mcp_access, parameters_of_task
from ._failures import failure_of
from ._server import Server
from ._session_forms import EpisodeRequest, as_body, check_form
from ._verdict import verdict_headers, whole_response

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["EnvironmentServer", "EnvironmentSettings", "Episode", "LegacyAgentServer"]

logger = logging.getLogger("gym_trio.servers")


def _with_queue_timeout(instance: Any, attribute: attrs.Attribute[Any], value: float | None) -> None:
    optional(positive_seconds)(instance, attribute, value)
    if value is None and instance.max_concurrent_episodes is not None:
        raise InvalidSetting(attribute.name, "is needed where max_concurrent_episodes is set")


@attrs.frozen(kw_only=True)
class EnvironmentSettings:
    """The keys of an ``environment_servers`` block besides the common ones."""

    max_concurrent_episodes: int | None = attrs.field(default=None, validator=optional(positive_int))
    queue_timeout_seconds: float | None = attrs.field(default=None, validator=_with_queue_timeout)
    default_episode_timeout_seconds: float = attrs.field(default=21600, validator=positive_seconds)
    cleanup_timeout_seconds: float = attrs.field(default=180, validator=finite_seconds)


@attrs.define(eq=False)
class Episode:
    """One episode under way: its request, its cleanup, and how far it has come."""

    form: EpisodeRequest
    cleanup: Cleanup
    stage: str = Stage.SEED
    partial_response: Any = None  # what the agent said, when a later step fails

    @property
    def key(self) -> str:
        return self.form.episode_id.key

    @property
    def ids(self) -> dict[str, Any]:
        return {"episode_id": as_body(self.form.episode_id), "task_id": as_body(self.form.task.task_id)}


class EnvironmentServer(Server):
    """Runs episodes: seed the environment, seed the agent, respond, close the agent, verify, close the environment.

    ``resources_server`` and ``agent_server`` in the block name the two. Override `run_episode` for another protocol;
    admission, deadline, cleanup and the forms of failures stay. An episode's failure is an answer (status 200 with
    ``failure``); only a request that does not validate is an error.

    **Cancellation**: when the caller leaves, the episode is cancelled and its sessions are closed all the same, within
    ``cleanup_timeout_seconds``.
    """

    server_type = "environment_servers"
    settings_type = EnvironmentSettings

    @functools.cached_property
    def _slots(self) -> trio.Semaphore | None:
        limit = self.settings.max_concurrent_episodes
        return None if limit is None else trio.Semaphore(limit)

    async def run(self, request: RequestBody) -> dict[str, Any]:
        """One episode; ``{episode_id, task_id, result}``, or ``{episode_id, task_id, failure}``."""
        form = check_form(EpisodeRequest, request)
        episode = Episode(form, Cleanup(f"{self.name}: episode {form.episode_id.key}", self._cleanup_seconds))
        try:
            with self.sessions.claims.run(episode.key):
                async with self._slot():
                    return {**episode.ids, "result": await self._carry_out(episode)}
            raise RolloutFailure(FailureKind.CANCELLED, f"episode {episode.key} was stopped", stage=episode.stage)
        except RolloutFailure as failure:
            return {**episode.ids, "failure": _failure_form(failure, episode)}

    @property
    def _cleanup_seconds(self) -> float:
        return float(self.settings.cleanup_timeout_seconds)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Admission. The slot is held until cleanup is over: what is being closed still takes its place."""
        slots = self._slots
        if slots is None:
            yield
            return
        with trio.move_on_after(self.settings.queue_timeout_seconds) as scope:
            await slots.acquire()
        if scope.cancelled_caught:
            waited = self.settings.queue_timeout_seconds
            raise RolloutFailure("", f"no place for the episode within {waited:g} s", stage=Stage.ADMISSION)
        try:
            yield
        finally:
            slots.release()

    async def _carry_out(self, episode: Episode) -> dict[str, Any]:
        seconds = self.settings.default_episode_timeout_seconds
        try:
            with trio.move_on_after(seconds):
                result: dict[str, Any] = await pending(self.run_episode(episode))
                return result
            raise RolloutFailure(FailureKind.AGENT_TIMEOUT, f"the episode's {seconds:g} s passed", stage=episode.stage)
        except RolloutFailure:
            raise
        except BaseException as raised:
            error = sparing(raised)
            logger.error("%s: episode %s raised", self.name, episode.key, exc_info=error)
            unexpected = failure_of(error, stage=episode.stage)
            unexpected.terminal = True
            raise unexpected from None
        finally:
            await episode.cleanup.aclose()

    async def run_episode(self, episode: Episode) -> dict[str, Any]:
        """The protocol of one agent and one environment; returns the verify response.

        Register what must be undone with ``episode.cleanup`` before it is begun, and keep ``episode.stage`` up to date.
        """
        task = episode.form.task.task_input
        task_data = task.get("task_data") or {}
        resources, resources_cookies = self.reference("resources_server"), dict[str, str]()
        seeded = await self._seed_resources(episode, resources, resources_cookies, task_data)
        agent = AgentOfEpisode(self, episode, self.reference("agent_server"))
        closing = episode.cleanup.register("closing the agent's session", agent.close)
        accesses = [direct_access(self, resources, resources_cookies), *mcp_access(self, resources, seeded)]
        await agent.seed(accesses, seeded.get("sandbox_access"))
        episode.stage = Stage.AGENT
        response = await agent.respond(parameters_of_task(task, seeded))
        episode.partial_response, episode.stage = response, Stage.CLEANUP
        # What an agent may still be doing would make the verification meaningless: no reward without its close.
        await closing.close()
        resources_cookies.update(agent.resources_cookies)
        episode.stage = Stage.VERIFICATION
        params = task.get("responses_create_params")
        body = {**task_data, "responses_create_params": params, "response": response}
        headers = verdict_headers(body)
        verdict = await self.call(resources, "/verify", body, resources_cookies, episode, headers=headers)
        verified = whole_response(verdict, body)
        observations = agent.observations
        return verified if observations is None else {**verified, "ng_agent_observations": observations}

    async def _seed_resources(
        self, episode: Episode, resources: str, cookies: dict[str, str], task_data: Mapping[str, Any]
    ) -> dict[str, Any]:
        session_id = f"rs-{episode.key}-{secrets.token_hex(8)}"
        episode_id = episode.ids["episode_id"]

        async def close() -> None:
            body = {"resources_session_id": session_id, "episode_id": episode_id}
            await self.call(resources, "/close_session", body, cookies, episode, stage=Stage.CLEANUP)

        episode.cleanup.register("closing the environment's session", close)
        body = {"resources_session_id": session_id, **episode.ids, "task_data": task_data}
        return await self.call(resources, "/seed_session", body, cookies, episode)

    async def call(
        self,
        server: str,
        path: str,
        body: Any,
        cookies: dict[str, str],
        episode: Episode,
        *,
        stage: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """``POST path`` on another server, for ``episode`` and in its present stage.

        **Errors**: `RolloutFailure`.
        """
        where = episode.stage if stage is None else stage
        return await call_server(self.client, server, path, body, cookies, episode.key, stage=where, headers=headers)

    def routes(self) -> list[BaseRoute]:
        return [
            self.route("POST", "/run", self.run),
            self.route("POST", "/aggregate_metrics", self.aggregate_metrics),
            self.route("POST", "/rollouts/{rollout_id}/stop", self.stop),
            *super().routes(),
        ]

    async def aggregate_metrics(self, request: RequestBody) -> dict[str, Any]:
        """The metrics of these results, by the environment that rewarded them."""
        return await call_server(
            self.client, self.reference("resources_server"), "/aggregate_metrics", dict(request), {}, None
        )

    async def stop(self, request: RequestBody) -> dict[str, bool]:
        """Cancel a running episode. False when it has ended or was asked before."""
        return {"stopped": self.sessions.claims.stop(request.path_params["rollout_id"])}


def _failure_form(failure: RolloutFailure, episode: Episode) -> dict[str, Any]:
    form: dict[str, Any] = {"failure_reason": failure.message[:2000], "terminal": failure.terminal}
    if failure.kind:
        form["failure_kind"] = str(failure.kind)
    if failure.stage:
        form["stage"] = str(failure.stage)
    if episode.partial_response is not None:
        form["partial_response"] = episode.partial_response
    return form


class LegacyAgentServer(Server):
    """Stands for an agent that knows no episodes: ``/run`` and ``/aggregate_metrics`` go to it as they are.

    **Cancellation**: when the caller leaves, so does this server's own request.
    """

    server_type = "environment_servers"

    async def relay(self, path: str, request: RequestBody) -> Reply:
        headers = {"x-ng-rollout-id": request.rollout_id} if request.rollout_id else None
        try:
            response = await self.client.post(self.reference("agent_server"), path, json=dict(request), headers=headers)
        except TransportError as error:
            raise failure_of(error) from None
        return Reply(response.body, status=response.status)

    def routes(self) -> list[BaseRoute]:
        return [
            *(self.route("POST", path, functools.partial(self.relay, path)) for path in ("/run", "/aggregate_metrics")),
            *super().routes(),
        ]
