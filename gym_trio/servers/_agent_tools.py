"""`ToolCaller`: carries an agent's tool calls to its environment, and what comes of them back to the model."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import trio

from ..errors import ResponseError, RolloutFailure, TransportError
from ._body import RequestBody
from ._bounded import bounded
from ._failures import failure_of
from ._tools import NO_TOOLS

if TYPE_CHECKING:
    from ._agent import AgentServer

__all__ = ["RemoteTool", "ToolCaller"]

RemoteTool = Callable[[Mapping[str, Any]], Coroutine[Any, Any, str]]


class ToolCaller:
    """The tools of one conversation.

    ``tools`` of the request are those that the model was offered, ``others`` those that are reached in another way than
    by the environment's routes. What the model gets wrong is told to the model: arguments that are no JSON object, a
    tool that does not exist, one that refuses. A tool that breaks or hangs is the rollout's failure.
    """

    def __init__(
        self,
        agent: AgentServer,
        request: RequestBody,
        *,
        tool_timeout_seconds: float | None = None,
        others: Mapping[str, RemoteTool] | None = None,
    ) -> None:
        self._agent = agent
        self._request = request
        self._seconds = tool_timeout_seconds
        self._others = others or {}
        offered = request.get("tools")
        self._offered = {
            one.get("name")
            for one in (offered if isinstance(offered, list) else ())
            if isinstance(one, (dict, Mapping)) and isinstance(one.get("name"), str)
        }

    async def call_all(self, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The output items of ``calls``, which run side by side, in the order of the calls.

        **Cancellation**: ends all of them.

        **Errors**: `RolloutFailure` of stage ``agent``: the first one cancels the rest.
        """
        if len(calls) == 1:
            return [await self.call(calls[0])]
        outputs: list[dict[str, Any]] = [{}] * len(calls)
        failures: list[RolloutFailure] = []

        async def one(position: int) -> None:
            try:
                outputs[position] = await self.call(calls[position])
            except RolloutFailure as failure:
                failures.append(failure)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for position in range(len(calls)):
                nursery.start_soon(one, position)
        if failures:
            raise failures[0]
        return outputs

    async def call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The output item of one ``function_call`` item."""
        name, arguments = call.get("name"), _arguments(call.get("arguments"))
        if isinstance(arguments, str):
            text = _error(arguments)
        elif not isinstance(name, str) or not self._may_call(name):
            text = _error(f"there is no tool {str(name)[:100]!r}")
        else:
            other = self._others.get(name)
            called = self._post(name, arguments) if other is None else _call_other(other, arguments)
            called = bounded(called, self._seconds, f"the tool {name[:100]} took over", "(tool_timeout_seconds)")
            text = await self._request.stages.tool_call(call.get("call_id"), called)
        return {"type": "function_call_output", "call_id": call.get("call_id"), "output": text}

    def _may_call(self, name: str) -> bool:
        if name in self._others or name in self._offered:
            return bool(name)
        plain = name.replace("_", "").replace("-", "").replace(".", "")
        return plain.isascii() and plain.isalnum() and name not in NO_TOOLS

    async def _post(self, name: str, arguments: dict[str, Any]) -> str:
        request = self._request
        headers = {"x-ng-rollout-id": request.rollout_id} if request.rollout_id else None
        try:
            response = await self._agent.client.post(
                self._agent.reference("resources_server"),
                f"/{name}",
                json=arguments,
                headers=headers,
                cookies=request.cookies,
            )
            if response.status >= 500:
                response.raise_for_status()
        except (TransportError, ResponseError) as error:
            raise failure_of(error) from None
        request.cookies.update(response.cookies())
        return response.text


async def _call_other(tool: RemoteTool, arguments: Mapping[str, Any]) -> str:
    # One that fails before it has given anything to wait for has failed as a call too.
    return await tool(arguments)


def _arguments(sent: Any) -> dict[str, Any] | str:
    """The arguments as an object, else what is wrong with them, for the model."""
    if isinstance(sent, str | bytes):
        try:
            sent = orjson.loads(sent or "{}")
        except orjson.JSONDecodeError as error:
            return f"the arguments are not JSON: {error}"
    if sent is None:
        return {}
    return sent if isinstance(sent, dict) else "the arguments must be a JSON object"


def _error(text: str) -> str:
    return orjson.dumps({"error": text}).decode()
