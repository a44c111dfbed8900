"""`tool_loop`: ask, carry the tool calls out, ask again, … until an answer without a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs

from ._agent_tools import ToolCaller
from ._response import add_usage, reply_items
from ._stage_times import StageTimes

__all__ = ["LoopEnd", "tool_loop"]

Ask = Callable[[list[Any]], Awaitable[dict[str, Any]]]


@attrs.define
class LoopEnd:
    """How a loop ended: the last reply, all items since its start, the usage of all asks, and why it is incomplete.

    ``reason`` is ``max_steps``, ``reasoning_only`` (the last reply reasoned and said nothing), ``no_output`` (nothing
    at all), ``cut`` (the reply has its own reason), or ``None``.
    """

    reply: dict[str, Any]
    outputs: list[Any]
    usage: dict[str, Any] | None
    reason: str | None

    def response(self) -> dict[str, Any]:
        """The whole as one Responses object."""
        made = {**self.reply, "output": self.outputs, "usage": self.usage}
        if self.reason is None:
            return made
        details = self.reply.get("incomplete_details") or {"reason": self.reason}
        return {**made, "status": "incomplete", "incomplete_details": details}


async def tool_loop(
    ask: Ask, tools: ToolCaller, items: Sequence[Any], *, server: str, max_steps: int | None, stages: StageTimes
) -> LoopEnd:
    """Go on from ``items`` until a reply leaves no function call open, at most ``max_steps`` times.

    A call that the reply itself already answers, by an output with its ``call_id``, is not carried out. A reply that
    was cut ends the loop: the calls in it may be cut too. ``server`` is who ``ask`` asks, for the errors.

    **Errors**: those of ``ask`` and of the tools; `RolloutFailure` for a reply without output items.
    """
    outputs: list[Any] = []
    usage: dict[str, Any] | None = None
    step = 0
    while True:
        step += 1
        reply = await stages.measured("model", ask([*items, *outputs]))
        said = reply_items(reply, server)
        outputs.extend(said)
        usage = add_usage(usage, reply.get("usage"))
        if reply.get("status") == "incomplete" or reply.get("incomplete_details"):
            return LoopEnd(reply, outputs, usage, "cut")
        calls = open_calls(said)
        if not calls and not _only_answered_itself(said):
            return LoopEnd(reply, outputs, usage, _lack(said))
        if max_steps is not None and step >= max_steps:
            return LoopEnd(reply, outputs, usage, "max_steps")
        if calls:
            outputs.extend(await stages.measured("tools", tools.call_all(calls)))


def open_calls(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The function calls in ``items`` that no output in them answers, in their order."""
    calls, answered = [], []
    for item in items:
        kind = item.get("type")
        if kind == "function_call":
            calls.append(item)
        elif kind == "function_call_output":
            answered.append(item.get("call_id"))
    return [call for call in calls if call.get("call_id") not in answered] if answered else calls


def _only_answered_itself(items: Sequence[Mapping[str, Any]]) -> bool:
    # Tools of its own, and no word yet: it is to be asked again.
    kinds = {item.get("type", "message") for item in items}
    return "function_call_output" in kinds and "message" not in kinds


def _lack(items: Sequence[Mapping[str, Any]]) -> str | None:
    if not items:
        return "no_output"
    return "reasoning_only" if all(item.get("type") == "reasoning" for item in items) else None
