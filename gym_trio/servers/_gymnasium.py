"""`GymnasiumServer`: an environment that is stepped: ``/reset``, then ``/step`` until it terminates or is truncated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import FailureKind, RequestRefused, RolloutFailure, Stage
from ._authored import pending
from ._body import RequestBody
from ._resources import ResourcesServer
from ._verdict import finite_number

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["GymnasiumServer", "ResetAnswer", "StepAnswer"]

ResetAnswer: TypeAlias = "str | tuple[str | None, Mapping[str, Any]] | None"
StepAnswer: TypeAlias = "tuple[str | None, float, bool, bool, Mapping[str, Any]]"


class GymnasiumServer(ResourcesServer):
    """An environment in Gymnasium's terms: the reward comes step by step, and there is no verifier.

    Override `reset`, which starts an episode, and `step`, which takes one reply of the model. State belongs on
    ``session``, as in every `ResourcesServer`. The agent for it is ``gymnasium_agent``.

    A ``/reset`` opens a session and sets its cookie; one that brings the cookie of a live session starts that one
    afresh. The step that terminates or truncates closes the session; a step after it is a 409.

    **Errors**: what `reset` raises fails the rollout in stage ``seed``, what `step` raises in stage ``agent``, and a
    reward that is no finite number is a ``verifier_error``.
    """

    default_agent = "gymnasium_agent"
    reverify_mode = "unsupported"

    async def reset(self, session: Any, row: RequestBody) -> ResetAnswer:
        """Start an episode for ``row``; return the first observation, or ``(observation, info)``.

        It may be called again on the same session. Default: no observation, the row's own input begins the talk.
        """
        return None

    async def step(self, session: Any, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        """Take the model's latest reply; return ``(observation, reward, terminated, truncated, info)``.

        ``response`` is the Responses object of that one model call. The observation becomes the next user message;
        ``info["tool_outputs"]``, a list of ``{call_id, output}``, answers function calls.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step")

    async def verify(self, session: Any, request: RequestBody) -> float | Mapping[str, Any]:
        raise RequestRefused(501, f"{self.name} rewards each /step; it has no verifier (use gymnasium_agent)")

    def routes(self) -> list[BaseRoute]:
        return [
            self.route("POST", "/step", self._step),
            self.route("POST", "/reset", self._reset, stage=Stage.SEED),
            *super().routes(),
        ]

    async def _reset(self, request: RequestBody) -> dict[str, Any]:
        async with self.resource_sessions.begun(request) as session:
            answer = await pending(self.reset(session, request))
            observation, info = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, {})
            return step_response(self.name, observation, 0.0, False, False, info, stage=Stage.SEED)

    async def _step(self, request: RequestBody) -> dict[str, Any]:
        response = request.get("response")
        if not isinstance(response, Mapping):
            raise RequestRefused(422, "step needs the row's response, an object")
        with self.resource_sessions.using(request) as session:
            answer = await pending(self.step(session.state, response, request))
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise _broken(self.name, f"step returned {answer!r:.200}, not five values")
        made = step_response(self.name, *answer)
        if made["terminated"] or made["truncated"]:
            await self.resource_sessions.end(request)
        return made


def step_response(
    server: str,
    observation: Any,
    reward: Any,
    terminated: Any,
    truncated: Any,
    info: Any,
    *,
    stage: Stage = Stage.AGENT,
) -> dict[str, Any]:
    """The five values in their wire form, whether an environment made them or a server sent them.

    **Errors**: `RolloutFailure` that names the value: a reward that is not finite (``verifier_error``), an observation
    that is no text, an info that is no object or whose ``tool_outputs`` are no list of objects.
    """
    if not isinstance(observation, str | None):
        raise _broken(server, f"an observation must be a text or None, not {observation!r:.200}", stage)
    if not isinstance(info, Mapping):
        raise _broken(server, f"info must be an object, not {info!r:.200}", stage)
    outputs = info.get("tool_outputs") or []
    if not isinstance(outputs, list | tuple) or not all(isinstance(output, Mapping) for output in outputs):
        raise _broken(server, f"info['tool_outputs'] must be a list of objects, not {outputs!r:.200}", stage)
    finite = finite_number(reward)
    if finite is None:
        raise RolloutFailure(
            FailureKind.VERIFIER_ERROR,
            f"{server}: the reward of a step is {reward!r:.200}, which is not a finite number",
            stage=Stage.VERIFICATION,
            terminal=True,
        )
    return {
        "observation": observation,
        "reward": finite,
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "info": dict(info),
    }


def _broken(server: str, message: str, stage: Stage = Stage.AGENT) -> RolloutFailure:
    return RolloutFailure(FailureKind.AGENT_RUN_ERROR, f"{server}: {message}", stage=stage, terminal=True)
