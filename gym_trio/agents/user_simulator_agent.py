"""`UserSimulatorAgent`: a dialogue between the model and a second model that plays the user."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import attrs

from ..config import finite_seconds, optional, positive_int
from ..errors import FailureKind, RolloutFailure, Stage
from ..servers import (
    AgentServer,
    LoopEnd,
    RequestBody,
    ToolCaller,
    add_usage,
    bounded,
    input_items,
    output_text,
    reply_items,
    tool_loop,
)

__all__ = ["UserSimulatorAgent", "UserSimulatorSettings"]

ROW_KEY = "user_prompt"

PROMPT = (
    "You play a person who talks to an assistant. Stay in that role, write what the person would write next and "
    "nothing else, and bring in what you know only as it becomes needed. When the person has what they came for, "
    "or there is no point in going on, write {stop} alone."
)


@attrs.frozen(kw_only=True)
class UserSimulatorSettings:
    """The keys of a ``user_simulator_agent`` block besides the common ones.

    ``user_model_server`` names the second model server, ``{type: responses_api_models, name: ...}``. ``max_turns``
    bounds what the simulated user says, ``max_steps`` the model calls of each answer to it. ``user_prompt`` is the
    user's system prompt; ``{stop}`` in it stands for ``stop_text``, with which the user ends the dialogue.
    ``user_parameters`` go into the user model's requests.
    """

    user_model_server: dict[str, str]
    user_prompt: str = PROMPT
    stop_text: str = "###STOP###"
    user_parameters: dict[str, Any] = attrs.field(factory=dict)
    max_turns: int = attrs.field(default=10, validator=positive_int)
    max_steps: int = attrs.field(default=30, validator=positive_int)
    tool_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    total_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))


@attrs.define
class Dialogue:
    """One dialogue under way."""

    items: list[Any]  # what the model has been given at the start
    outputs: list[Any] = attrs.field(factory=list)
    usage: dict[str, Any] | None = None
    user_usage: dict[str, Any] | None = None
    turns: int = 0


class UserSimulatorAgent(AgentServer):
    """A dialogue for environments in which a user is talked to, with the environment's tools in the model's hands.

    The row's ``input`` begins it; without a user message in it, the simulated user speaks first. After each answer of
    the model, which may take tool calls, the second model says what the user says next: it sees the two sides' messages
    with the roles exchanged, and neither tools nor system messages. A row's ``user_prompt`` (who the user is, what
    they want and know) comes behind the settings' one.

    The response's ``output`` holds both sides' messages in order, the user's with role ``user``; ``usage`` is the
    model's own, ``user_usage`` the user's, ``user_turns`` how often the user spoke. It ends when the user says
    ``stop_text`` (left out of the output) or nothing, and after ``max_turns``, then ``incomplete`` with that reason.

    **Errors**: a call of either model or of a tool that fails is a `RolloutFailure` of stage ``agent``.
    """

    settings_type = UserSimulatorSettings

    def parameters(self, row: Mapping[str, Any], seeded: Mapping[str, Any]) -> dict[str, Any]:
        params = super().parameters(row, seeded)
        return {**params, ROW_KEY: row[ROW_KEY]} if ROW_KEY in row else params

    def responses(self, request: RequestBody) -> Coroutine[Any, Any, Mapping[str, Any]]:
        limit = self.settings.total_timeout_seconds
        return bounded(self._talk(request), limit, "the dialogue's", "passed (total_timeout_seconds)")

    async def _talk(self, request: RequestBody) -> dict[str, Any]:
        about = str(request.pop(ROW_KEY, ""))
        dialogue = Dialogue(input_items(request.get("input")))
        tools = ToolCaller(self, request, tool_timeout_seconds=self.settings.tool_timeout_seconds)
        spoken_to = any(item.get("role") == "user" for item in dialogue.items)
        if not spoken_to and not await self._hear(request, dialogue, about):
            raise RolloutFailure(
                FailureKind.AGENT_RUN_ERROR, "the simulated user had nothing to say", stage=Stage.AGENT
            )
        end = await self._answer(request, dialogue, tools)
        reason = end.reason
        while reason is None:
            if dialogue.turns >= self.settings.max_turns:
                reason = "max_turns"
            elif await self._hear(request, dialogue, about):
                end = await self._answer(request, dialogue, tools)
                reason = end.reason
            else:
                break
        whole = LoopEnd(end.reply, dialogue.outputs, dialogue.usage, reason).response()
        return {**whole, "user_turns": dialogue.turns, "user_usage": dialogue.user_usage}

    async def _answer(self, request: RequestBody, dialogue: Dialogue, tools: ToolCaller) -> LoopEnd:
        async def ask(items: list[Any]) -> dict[str, Any]:
            return await self.call_model({**request, "input": items}, rollout_id=request.rollout_id)

        end = await tool_loop(
            ask,
            tools,
            [*dialogue.items, *dialogue.outputs],
            server=self.reference("model_server"),
            max_steps=self.settings.max_steps,
            stages=request.stages,
        )
        dialogue.outputs.extend(end.outputs)
        dialogue.usage = add_usage(dialogue.usage, end.usage)
        return end

    async def _hear(self, request: RequestBody, dialogue: Dialogue, about: str) -> bool:
        """Let the user speak; False when the user has ended the dialogue."""
        server = self.reference("user_model_server")
        prompt = self.settings.user_prompt.replace("{stop}", self.settings.stop_text)
        items = [
            {"role": "system", "content": f"{prompt}\n\n{about}".strip()},
            *_exchanged([*dialogue.items, *dialogue.outputs]),
        ]
        prefix = f"/ng-rollout/{request.rollout_id}" if request.rollout_id else ""
        body = {**self.settings.user_parameters, "input": items}
        asked = self.call(server, f"{prefix}/v1/responses", body, {}, None)
        reply = await request.stages.measured("user", asked)
        reply_items(reply, server)
        dialogue.user_usage = add_usage(dialogue.user_usage, reply.get("usage"))
        text, stop, _ = output_text(reply).partition(self.settings.stop_text)
        if stop or not text.strip():
            return False
        dialogue.turns += 1
        dialogue.outputs.append({"type": "message", "role": "user", "content": text})
        return True


def _exchanged(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The dialogue as the user sees it: the assistant's words are the other's, the user's are the own ones."""
    seen = []
    for item in items:
        role = item.get("role")
        if item.get("type", "message") != "message" or role not in ("user", "assistant"):
            continue
        text = _text_of(item.get("content"))
        if text:
            seen.append({"role": "user" if role == "assistant" else "assistant", "content": text})
    return seen


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))
