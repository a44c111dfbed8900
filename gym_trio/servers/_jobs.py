"""What a worker process is given to do: a verification, or a tool call; and how each fails.

A job goes to the process whole and is carried out there; its answer comes back as JSON. Nothing that a process sends
is unpickled as it is: what a verifier ran may be the model's own program. See `state_from` for a session's state.
"""

from __future__ import annotations

import base64
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import attrs
import orjson
import trio

from ..errors import FailureKind, RequestRefused, RolloutFailure, Stage
from ._body import RequestBody, encode_default
from ._failures import failure_of, failure_to_wire
from ._session_state import UNPICKLABLE, state_to, what_cannot_go
from ._tool_answer import encoded_answer
from ._verdict import verify_response

__all__ = ["Job", "ToolUse", "Verification"]

logger = logging.getLogger("gym_trio.servers")


class Job(Protocol):
    """One thing for a worker process to do."""

    @property
    def what(self) -> str:
        """Who works in the process, for messages."""

    @property
    def stage(self) -> Stage: ...

    def carry_out(self, server: Any) -> bytes:
        """In the process: do it; one of ``answer``, ``refused`` and ``failure``, encoded.

        ``retire`` beside it says not to use the process again.

        **Errors**: none but in a fork that it has made itself; there, whatever ends the fork.
        """

    def failed(self, message: str) -> RolloutFailure:
        """The process came to grief: ``message`` goes on after "its process"."""

    def overran(self, seconds: float) -> RolloutFailure: ...

    def unfit(self, message: str) -> RolloutFailure:
        """The job cannot be handed to a process."""


@attrs.frozen
class Verification:
    """Judge one rollout."""

    session: Any
    body: Mapping[str, Any]
    rollout_id: str | None = None
    what: ClassVar[str] = "the verifier"
    stage: ClassVar[Stage] = Stage.VERIFICATION

    def carry_out(self, server: Any) -> bytes:
        def act() -> dict[str, Any]:
            request = RequestBody(self.body, rollout_id=self.rollout_id)
            return {"answer": verify_response(_settled(server.verify(self.session, request)))}

        return _encoded(act, dict, self.what, FailureKind.VERIFIER_ERROR, self.stage)

    def failed(self, message: str) -> RolloutFailure:
        return self.unfit(f"the verifier's process {message}")

    def overran(self, seconds: float) -> RolloutFailure:
        return self.unfit(f"the verifier took over {seconds:g} s and was killed (verify_timeout_seconds)")

    def unfit(self, message: str) -> RolloutFailure:
        return RolloutFailure(FailureKind.VERIFIER_ERROR, message, stage=self.stage)


@attrs.frozen
class ToolUse:
    """Carry out one tool call; the answer brings ``state`` where the tool has changed its session's."""

    session: Any
    name: str
    arguments: Mapping[str, Any]  # as the model sent them: what they become may have no form between processes
    server_name: str
    stage: ClassVar[Stage] = Stage.AGENT

    @property
    def what(self) -> str:
        return f"the tool {self.name}"

    def carry_out(self, server: Any) -> bytes:
        before = state_to(self.session)

        def act() -> dict[str, Any]:
            tool = server.tools[self.name]
            found = _settled(tool.method(server, self.session, **tool.check(self.arguments)))
            return {"answer": orjson.Fragment(encoded_answer(server.name, tool, found))}

        def changes() -> dict[str, Any]:
            try:
                after = state_to(self.session)
            except UNPICKLABLE:
                left = f"the state that {self.what} left cannot be taken back, for {what_cannot_go(self.session)}"
                raise self.unfit(left) from None
            return {} if after == before else {"state": base64.b64encode(after).decode()}

        return _encoded(act, changes, self.what, FailureKind.AGENT_RUN_ERROR, self.stage)

    def failed(self, message: str) -> RolloutFailure:
        return self._failure(FailureKind.AGENT_RUN_ERROR, f"{self.what}'s process {message}")

    def overran(self, seconds: float) -> RolloutFailure:
        return self._failure(
            FailureKind.AGENT_TIMEOUT, f"{self.what} took over {seconds:g} s and was killed (tool_timeout_seconds)"
        )

    def unfit(self, message: str) -> RolloutFailure:
        return self._failure(
            FailureKind.AGENT_RUN_ERROR,
            f"{message}; a tool that is async, or marked with @tool(isolated=False), runs in the server itself",
        )

    def _failure(self, kind: FailureKind, message: str) -> RolloutFailure:
        return RolloutFailure(kind, f"{self.server_name}: {message}", stage=self.stage)


def _settled(found: Any) -> Any:
    async def settle() -> Any:
        return await found

    return trio.run(settle) if inspect.isawaitable(found) else found


def _encoded(
    act: Callable[[], dict[str, Any]], changes: Callable[[], dict[str, Any]], what: str, kind: FailureKind, stage: Stage
) -> bytes:
    own = os.getpid()
    try:
        try:
            made = {**act(), **changes()}
        except RequestRefused as error:
            # A refusal goes back to the model and the rollout goes on, with what the tool has done until then.
            made = {"refused": [error.status, orjson.Fragment(orjson.dumps(error.detail, default=repr))], **changes()}
        return orjson.dumps(made, option=orjson.OPT_NON_STR_KEYS, default=encode_default)
    except BaseException as error:
        logger.error("%s raised", what, exc_info=None if isinstance(error, RolloutFailure) else error)
        if os.getpid() != own:
            raise
        known = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        failure = failure_of(known, kind=kind, stage=stage)
        broken = not isinstance(error, Exception) or isinstance(error, MemoryError)
        return orjson.dumps({"failure": failure_to_wire(failure)[1], "retire": broken}, default=repr)
