"""The agent's part in an episode: its session, its one response, and what its close brings back."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import FailureKind, RolloutFailure, Stage

if TYPE_CHECKING:
    from ._environment import EnvironmentServer, Episode

__all__ = ["AgentOfEpisode", "direct_access", "mcp_access", "parameters_of_task"]


class AgentOfEpisode:
    """One agent session, as its owner sees it."""

    def __init__(self, server: EnvironmentServer, episode: Episode, agent: str) -> None:
        self._server = server
        self._episode = episode
        self._agent = agent
        self._cookies: dict[str, str] = {}
        self._session_id = f"as-{episode.key}-{secrets.token_hex(8)}"
        self.observations: Any = None
        self.resources_cookies: dict[str, str] = {}

    async def seed(self, tool_accesses: list[dict[str, Any]], sandbox_access: Any) -> None:
        body = {
            "agent_session_id": self._session_id,
            **self._episode.ids,
            "tool_accesses": tool_accesses,
            "sandbox_access": sandbox_access,
        }
        await self._server.call(self._agent, "/v1/agent_sessions", body, self._cookies, self._episode)

    async def respond(self, params: Mapping[str, Any]) -> dict[str, Any]:
        path = f"/ng-rollout/{self._episode.key}/v1/responses"
        return await self._server.call(self._agent, path, params, self._cookies, self._episode)

    async def close(self) -> None:
        """**Errors**: `RolloutFailure` (``session_release_failed``): the agent may still be at work."""
        body = {"agent_session_id": self._session_id, "episode_id": self._episode.ids["episode_id"]}
        try:
            closed = await self._server.call(
                self._agent, "/v1/agent_sessions/close", body, self._cookies, self._episode, stage=Stage.CLEANUP
            )
        except RolloutFailure as failure:
            raise RolloutFailure(
                FailureKind.SESSION_RELEASE_FAILED,
                f"the agent's session was not closed: {failure.message}",
                failure.status,
                Stage.CLEANUP,
                exception_type=failure.exception_type,
                body=failure.body,
            ) from None
        self.observations = closed.get("agent_observations")
        self.resources_cookies = _cookies_in(closed.get("resources_cookies"))


def _cookies_in(found: Any) -> dict[str, str]:
    """The cookies that an agent hands back, without what cannot be one: it would cost the environment its close."""
    pairs = found.items() if isinstance(found, Mapping) else ()
    return {name: value for name, value in pairs if _fits(name, ";=") and _fits(value, ";")}


def _fits(text: Any, separators: str) -> bool:
    return isinstance(text, str) and text.isascii() and text.isprintable() and not set(separators) & set(text)


def direct_access(server: EnvironmentServer, resources: str, cookies: Mapping[str, str]) -> dict[str, Any]:
    """What lets the agent call the tools of ``resources`` in the session that ``cookies`` name."""
    return {
        "kind": "direct_http",
        "name": resources,
        "required": True,
        "base_url": server.client.base_url(resources),
        "cookies": dict(cookies),
        "headers": {},
    }


def mcp_access(server: EnvironmentServer, resources: str, seeded: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What lets the agent reach the same tools over MCP, where the seed's answer says how."""
    found = seeded.get("resources_tools")
    if not isinstance(found, Mapping) or not isinstance(found.get("url_path"), str):
        return []
    headers = found.get("headers")
    connection = {
        "transport": "streamable_http",
        "url": server.client.base_url(resources) + found["url_path"],
        "headers": dict(headers) if isinstance(headers, Mapping) else {},
    }
    return [{"kind": "mcp", "name": f"{resources}-mcp", "required": False, "connection": connection}]


def parameters_of_task(task: Mapping[str, Any], seeded: Mapping[str, Any]) -> dict[str, Any]:
    """The Responses parameters of a task, with the environment's tools where it names none itself.

    **Errors**: `RolloutFailure` (terminal) when the task has none.
    """
    params = task.get("responses_create_params")
    if not isinstance(params, Mapping):
        raise RolloutFailure(
            FailureKind.AGENT_RUN_ERROR, "the task has no responses_create_params", stage=Stage.SEED, terminal=True
        )
    tools = seeded.get("resources_tools")
    if isinstance(tools, Mapping):
        tools = tools.get("tools")
    return {**params, "tools": tools} if isinstance(tools, list) and "tools" not in params else dict(params)
