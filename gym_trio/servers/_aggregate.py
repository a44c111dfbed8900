"""``POST /aggregate_metrics``: ``{"verify_responses": [...]}`` → the metrics of these rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import RequestRefused
from ._body import RequestBody

if TYPE_CHECKING:
    from ._agent import AgentServer
    from ._server import Server

__all__ = ["aggregate_of", "aggregate_through"]


async def aggregate_of(server: Server, request: RequestBody) -> Mapping[str, Any]:
    """The metrics of ``request["verify_responses"]``, with the server's own hooks where it defines them.

    **Errors**: `RequestRefused` (422) when they are no list of objects. A hook that raises costs its own metrics only.
    """
    from ..metrics import Hooks, aggregate_responses

    rows = request.get("verify_responses")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RequestRefused(422, "verify_responses must be a list of objects")
    return aggregate_responses(rows, Hooks.of(server))


async def aggregate_through(agent: AgentServer, request: RequestBody) -> Mapping[str, Any]:
    """As `aggregate_of`, by the agent's environment where it has one: its author's hooks are there."""
    if "resources_server" not in agent.config:
        return await aggregate_of(agent, request)
    return await agent.call(agent.reference("resources_server"), "/aggregate_metrics", dict(request), {}, None)
