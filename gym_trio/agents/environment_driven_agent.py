"""`EnvironmentDrivenAgent`: for environments that run their rollouts themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..servers import AgentServer, RequestBody

__all__ = ["EnvironmentDrivenAgent"]


class EnvironmentDrivenAgent(AgentServer):
    """Hands the row and the name of its model server to the environment, which runs the rollout and calls the model.

    The environment answers ``POST /run_rollout``, ``{"row": ..., "model_server": name}``, with the whole result.

    **Cancellation**: withdraws the request, upon which the environment cancels the rollout.
    """

    async def run(self, request: RequestBody) -> Mapping[str, Any]:
        """One rollout of ``request``, a task row."""
        body = {"row": dict(request), "model_server": self.reference("model_server")}
        driven = self.call(self.reference("resources_server"), "/run_rollout", body, {}, request.rollout_id)
        result = await request.stages.measured("environment", driven)
        return {**result, "ng_perf": {**(result.get("ng_perf") or {}), **request.stages.milliseconds()}}
