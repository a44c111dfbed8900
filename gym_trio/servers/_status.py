"""``GET /status``: what a server's sessions and rollouts are doing. It shows no secrets and no states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ..errors import RequestRefused
from ._body import RequestBody

if TYPE_CHECKING:
    from ._server import Server

__all__ = ["report_status"]


async def report_status(server: Server, _: RequestBody) -> dict[str, Any]:
    """Sessions by phase, the oldest, the closes that run, the last drain's report, and the rollouts that run."""
    answer: dict[str, Any] = {"server": server.name, "server_type": server.server_type}
    running = server.running_rollouts()
    if running:
        answer["running"] = running
    try:
        registry = server.sessions
    except RequestRefused:
        return {**answer, "running_rollouts": 0, "sessions": None, "last_drain": None}
    statistics = attrs.asdict(registry.statistics(), recurse=False)
    last = statistics.pop("last_drain")
    return {
        **answer,
        "running_rollouts": registry.claims.running,
        "sessions": statistics,
        "last_drain": None if last is None else attrs.asdict(last),
    }
