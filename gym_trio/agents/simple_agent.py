"""`SimpleAgent`: model, tools, model, … until the model answers without calling a tool."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any

import attrs

from ..config import finite_seconds, optional, positive_int
from ..servers import (
    AgentServer,
    LoopEnd,
    McpTools,
    RemoteTool,
    RequestBody,
    ToolCaller,
    bounded,
    input_items,
    mcp_accesses_of,
    open_mcp_accesses,
    tool_loop,
)

__all__ = ["SimpleAgent", "SimpleAgentSettings"]


@attrs.frozen(kw_only=True)
class SimpleAgentSettings:
    """The keys of a ``simple_agent`` block besides the common ones. ``max_steps: null`` is no bound."""

    max_steps: int | None = attrs.field(default=100, validator=optional(positive_int))
    step_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    tool_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    total_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))


class SimpleAgent(AgentServer):
    """An agent that passes every tool call of the model to its environment and the outputs back.

    The calls of one model reply run side by side; their outputs keep the order of the calls. Arguments that are no
    JSON object, tools that do not exist and tools that refuse are answered to the model, which may try again.
    ``usage`` is the sum over the model calls. In an agent session with ``tool_accesses`` of kind ``mcp`` the tools of
    those servers are offered to the model too.

    The response is the last reply with everything that was said and done as its ``output``. It ends ``incomplete``,
    with a reason in ``incomplete_details``, when the model's own reply was cut (its reason; the calls in it, which may
    be cut too, are not made), after ``max_steps`` model calls (``max_steps``), and when the model ends without a word:
    ``reasoning_only`` where it had only reasoned, ``no_output`` where there was nothing at all.

    **Cancellation**: ends the running model and tool calls.

    **Errors**: a model call or a tool call that fails, a reply that has no list of output items, and a passed deadline
    (of the conversation, one model call, one tool call) is a `RolloutFailure` of stage ``agent``.
    """

    settings_type = SimpleAgentSettings
    tool_access_kinds = ("direct_http", "mcp")

    def responses(self, request: RequestBody) -> Coroutine[Any, Any, Mapping[str, Any]]:
        limit = self.settings.total_timeout_seconds
        return bounded(self._respond(request), limit, "the agent's", "passed (total_timeout_seconds)")

    async def _respond(self, request: RequestBody) -> Mapping[str, Any]:
        accesses = mcp_accesses_of(request.agent_session)
        if not accesses:
            return (await self._converse(request, {})).response()
        async with open_mcp_accesses(accesses) as opened:
            return (await self._converse(request, _offer(request, opened))).response()

    def _converse(self, request: RequestBody, others: Mapping[str, RemoteTool]) -> Awaitable[LoopEnd]:
        return tool_loop(
            functools.partial(self._step, request),
            ToolCaller(self, request, tool_timeout_seconds=self.settings.tool_timeout_seconds, others=others),
            input_items(request.get("input")),
            server=self.reference("model_server"),
            max_steps=self.settings.max_steps,
            stages=request.stages,
        )

    def _step(self, request: RequestBody, items: list[Any]) -> Awaitable[dict[str, Any]]:
        limit = self.settings.step_timeout_seconds
        asked = self.call_model({**request, "input": items}, rollout_id=request.rollout_id)
        return bounded(asked, limit, "a model call's", "passed (step_timeout_seconds)")


def _offer(request: RequestBody, opened: Sequence[McpTools]) -> dict[str, RemoteTool]:
    """Add the tools of ``opened`` to those that the request offers the model; of two with one name the first counts."""
    offered = list(request.get("tools") or ())
    known = {one.get("name") for one in offered if isinstance(one, Mapping)}
    others: dict[str, RemoteTool] = {}
    for tools in opened:
        for definition in tools.definitions:
            name = definition["name"]
            if name not in known:
                known.add(name)
                offered.append(definition)
                others[name] = functools.partial(tools.call, name)
    request["tools"] = offered
    return others
