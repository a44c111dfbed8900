"""`SimpleAgent`: model, tools, model, … until the model answers without calling a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import orjson
import trio

from ..config import finite_seconds, optional, positive_int
from ..errors import FailureKind, ResponseError, RolloutFailure, Stage, TransportError
from ..servers import AgentServer, RequestBody, failure_of

__all__ = ["SimpleAgent", "SimpleAgentSettings"]


@attrs.frozen(kw_only=True)
class SimpleAgentSettings:
    """The keys of a ``simple_agent`` block besides the common ones."""

    max_steps: int | None = attrs.field(default=None, validator=optional(positive_int))
    step_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    total_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))


class SimpleAgent(AgentServer):
    """An agent that passes every tool call of the model to its environment and the outputs back.

    The calls of one model reply run side by side; their outputs keep the order of the calls. Arguments that are no
    JSON object, tools that do not exist and tools that refuse are answered to the model, which may try again.
    ``max_steps`` bounds the model calls: the response then ends ``incomplete`` with reason ``max_steps``.

    **Cancellation**: ends the running model and tool calls.

    **Errors**: a model call or a tool call that fails, and a passed deadline, is a `RolloutFailure` of stage ``agent``.
    """

    settings_type = SimpleAgentSettings

    async def responses(self, request: RequestBody) -> Mapping[str, Any]:
        limit = self.settings.total_timeout_seconds
        with trio.move_on_after(float("inf") if limit is None else limit):
            return await self._converse(request)
        raise _timed_out(f"the agent's {limit:g} s passed (total_timeout_seconds)")

    async def _converse(self, request: RequestBody) -> Mapping[str, Any]:
        start = _as_items(request.get("input") or [])
        outputs: list[Any] = []
        usage: dict[str, Any] | None = None
        step = 0
        while True:
            step += 1
            with request.stages.measure("model"):
                reply = await self._step(request, [*start, *outputs])
            items = reply.get("output") or []
            outputs.extend(items)
            usage = _add_usage(usage, reply.get("usage"))
            calls = [item for item in items if item.get("type") == "function_call"]
            if not calls:
                return {**reply, "output": outputs, "usage": usage}
            if self.settings.max_steps is not None and step >= self.settings.max_steps:
                ended = {"status": "incomplete", "incomplete_details": {"reason": "max_steps"}}
                return {**reply, "output": outputs, "usage": usage, **ended}
            with request.stages.measure("tools"):
                outputs.extend(await self._call_tools(request, calls))

    async def _step(self, request: RequestBody, items: list[Any]) -> dict[str, Any]:
        limit = self.settings.step_timeout_seconds
        with trio.move_on_after(float("inf") if limit is None else limit):
            return await self.call_model({**request, "input": items}, rollout_id=request.rollout_id)
        raise _timed_out(f"a model call's {limit:g} s passed (step_timeout_seconds)")

    async def _call_tools(self, request: RequestBody, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len(calls) == 1:
            return [await self._call_tool(request, calls[0])]
        outputs: list[dict[str, Any]] = [{}] * len(calls)
        failures: list[RolloutFailure] = []

        async def one(position: int) -> None:
            try:
                outputs[position] = await self._call_tool(request, calls[position])
            except RolloutFailure as failure:
                failures.append(failure)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for position in range(len(calls)):
                nursery.start_soon(one, position)
        if failures:
            raise failures[0]
        return outputs

    async def _call_tool(self, request: RequestBody, call: dict[str, Any]) -> dict[str, Any]:
        name = call.get("name") or ""
        try:
            arguments = orjson.loads(call.get("arguments") or "{}")
        except orjson.JSONDecodeError as error:
            return _output(call, orjson.dumps({"error": f"the arguments are not JSON: {error}"}).decode())
        if not isinstance(arguments, dict):
            return _output(call, orjson.dumps({"error": "the arguments must be a JSON object"}).decode())
        if not name.replace("_", "").replace("-", "").replace(".", "").isalnum():
            return _output(call, orjson.dumps({"error": f"there is no tool {name!r}"}).decode())
        resources = self.reference("resources_server")
        headers = {"x-ng-rollout-id": request.rollout_id} if request.rollout_id else None
        try:
            response = await self.client.post(
                resources, f"/{name}", json=arguments, headers=headers, cookies=request.cookies
            )
        except TransportError as error:
            raise failure_of(error) from None
        if response.status >= 500:
            try:
                response.raise_for_status()
            except ResponseError as error:
                raise failure_of(error) from None
        request.cookies.update(response.cookies())
        return _output(call, response.text)


def _timed_out(message: str) -> RolloutFailure:
    return RolloutFailure(FailureKind.AGENT_TIMEOUT, message, stage=Stage.AGENT)


def _output(call: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.get("call_id"), "output": text}


def _as_items(value: Any) -> list[Any]:
    return [{"role": "user", "content": value}] if isinstance(value, str) else list(value)


def _add_usage(total: dict[str, Any] | None, more: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not more:
        return total
    if total is None:
        return dict(more)
    summed = dict(total)
    for key, value in more.items():
        if isinstance(value, Mapping):
            summed[key] = _add_usage(total.get(key), value)
        elif isinstance(value, int | float):
            summed[key] = (total.get(key) or 0) + value
    return summed
