"""`GymnasiumAgent`: model, step, model, … until the environment ends the episode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from ..config import finite_seconds, optional, positive_int
from ..errors import FailureKind, RolloutFailure, Stage
from ..servers import (
    AgentServer,
    EnvironmentLink,
    RequestBody,
    add_usage,
    bounded,
    input_items,
    reply_items,
    step_response,
)

__all__ = ["GymnasiumAgent", "GymnasiumAgentSettings"]


@attrs.frozen(kw_only=True)
class GymnasiumAgentSettings:
    """The keys of a ``gymnasium_agent`` block besides the common ones."""

    max_steps: int = attrs.field(default=10, validator=positive_int)
    step_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    total_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))


@attrs.define
class Play:
    """One episode under way."""

    params: dict[str, Any]
    link: EnvironmentLink
    outputs: list[Any] = attrs.field(factory=list)
    usage: dict[str, Any] | None = None
    reward: float = 0.0
    reply: dict[str, Any] = attrs.field(factory=dict)
    last: dict[str, Any] = attrs.field(factory=dict)  # the last step's answer


class GymnasiumAgent(AgentServer):
    """An agent for environments that are stepped (`GymnasiumServer`).

    ``/reset`` takes the row; its observation becomes a user message after the row's own input, and its
    ``info["tools"]`` are offered to the model besides the row's. Each model reply goes to
    ``/step``, each observation back to the model. The result is the row with ``response`` (every reply, tool output and
    observation in order, usage summed), ``reward`` (the sum over the steps), ``terminated``, ``truncated``, ``info``.
    ``max_steps`` bounds the model calls; the episode is then truncated. ``step_timeout_seconds`` bounds one model call
    or one step, ``total_timeout_seconds`` the whole episode: passing one fails the rollout.

    **Cancellation**: ends the running call; the environment's session is closed all the same.

    **Errors**: a call that fails is a `RolloutFailure` with its stage.
    """

    settings_type = GymnasiumAgentSettings

    async def run(self, request: RequestBody) -> Mapping[str, Any]:
        """One episode of ``request``, a task row."""
        link = EnvironmentLink(self, self.reference("resources_server"), request.rollout_id)
        try:
            limit = self.settings.total_timeout_seconds
            return await bounded(self._play(request, link), limit, "the episode's", "passed (total_timeout_seconds)")
        finally:
            await link.close()

    async def _play(self, request: RequestBody, link: EnvironmentLink) -> dict[str, Any]:
        play = await self._begin(request, link)
        for _ in range(self.settings.max_steps):
            await self._ask(request, play)
            await self._step(request, play)
            if play.last["terminated"] or play.last["truncated"]:
                break
        else:
            play.last["truncated"] = True
        return {
            **request,
            "responses_create_params": play.params,
            "response": {**play.reply, "output": play.outputs, "usage": play.usage},
            "reward": play.reward,
            "terminated": play.last["terminated"],
            "truncated": play.last["truncated"],
            "info": play.last["info"],
            "ng_perf": request.stages.milliseconds(),
        }

    async def _begin(self, request: RequestBody, link: EnvironmentLink) -> Play:
        params = request.get("responses_create_params")
        if not isinstance(params, Mapping):
            raise RolloutFailure(
                FailureKind.AGENT_RUN_ERROR, "the row has no responses_create_params", stage=Stage.SEED, terminal=True
            )
        answer = await request.stages.measured("seed", link.open("/reset", dict(request)))
        first = _checked(link.server, answer, stage=Stage.SEED)
        items = input_items(params.get("input"))
        if first["observation"]:
            items = [*items, {"role": "user", "content": first["observation"]}]
        return Play({**params, "input": items, **_tools(params, first["info"])}, link)

    async def _ask(self, request: RequestBody, play: Play) -> None:
        body = {**play.params, "input": [*play.params["input"], *play.outputs]}
        limit = self.settings.step_timeout_seconds
        asked = request.stages.measured("model", self.call_model(body, rollout_id=request.rollout_id))
        play.reply = await bounded(asked, limit, "a model call's", "passed (step_timeout_seconds)")
        play.outputs.extend(reply_items(play.reply, self.reference("model_server")))
        play.usage = add_usage(play.usage, play.reply.get("usage"))

    async def _step(self, request: RequestBody, play: Play) -> None:
        limit = self.settings.step_timeout_seconds
        body = {**request, "response": play.reply}
        called = self.call(play.link.server, "/step", body, play.link.cookies, request.rollout_id)
        stepped = request.stages.measured("tools", called)
        answer = await bounded(stepped, limit, "a step's", "passed (step_timeout_seconds)")
        play.last = _checked(play.link.server, answer)
        play.reward += play.last["reward"]
        if not math.isfinite(play.reward):
            message = f"{play.link.server}: the rewards of the steps add up to {play.reward}"
            raise RolloutFailure(FailureKind.VERIFIER_ERROR, message, stage=Stage.VERIFICATION, terminal=True)
        for output in play.last["info"].get("tool_outputs") or ():
            play.outputs.append({**output, "type": "function_call_output"})
        if play.last["observation"]:
            play.outputs.append({"role": "user", "content": play.last["observation"], "type": "message"})


def _tools(params: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    # Of an environment of other make the key may mean something else.
    offered = info.get("tools")
    if not isinstance(offered, list) or not offered or not all(isinstance(one, Mapping) for one in offered):
        return {}
    return {"tools": [*(params.get("tools") or ()), *offered]}


def _checked(server: str, answer: Mapping[str, Any], *, stage: Stage = Stage.AGENT) -> dict[str, Any]:
    # A reset of other make has an observation and an info alone.
    return step_response(
        server,
        answer.get("observation"),
        answer.get("reward", 0.0),
        answer.get("terminated", False),
        answer.get("truncated", False),
        answer.get("info") or {},
        stage=stage,
    )
