"""One rollout in a child: its model calls carried out here, its end, and its withdrawal."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs
import orjson
import trio

from ...errors import FailureKind, RolloutFailure, Stage

__all__ = ["Ask", "ChildRollout", "ModelAnswer"]

# Messages after which the child does no more for a rollout.
ENDINGS = frozenset({"done", "failed", "cancelled", "lost"})


@attrs.frozen
class ModelAnswer:
    """What the environment's client of the model gets."""

    status: int
    content: bytes
    content_type: str = "application/json"

    @classmethod
    def refusal(cls, status: int, text: str) -> ModelAnswer:
        return cls(status, orjson.dumps({"error": {"message": text}}))


Ask = Callable[[str, Any], Awaitable[ModelAnswer]]


class Link(Protocol):
    """The rollout's side of its child."""

    def tell(self, **message: Any) -> None: ...


class ChildRollout:
    """One rollout, seen from here. ``deliver`` is given each message of the child that is about it."""

    def __init__(self, number: int, link: Link, ask: Ask) -> None:
        self._number = number
        self._link = link
        self._ask = ask
        self._messages, self._incoming = trio.open_memory_channel[dict[str, Any]](math.inf)
        self._calls: dict[int, trio.CancelScope] = {}
        self._stage: str = Stage.AGENT
        self.is_over = False  # the child does no more for it

    def deliver(self, message: dict[str, Any]) -> None:
        self._messages.send_nowait(message)

    def close(self) -> None:
        self._messages.close()
        self._incoming.close()

    async def attend(self) -> dict[str, Any]:
        """Carry out the rollout's model calls until it has a result, and return that.

        **Cancellation**: ends the model calls at once; the child has then to be told, see `withdraw`.

        **Errors**: `RolloutFailure` for any other end.
        """
        ending: dict[str, Any] | None = None
        async with trio.open_nursery() as nursery:
            while ending is None:
                message = await self._incoming.receive()
                match message["op"]:
                    case "call":
                        scope = self._calls[message["call"]] = trio.CancelScope()
                        nursery.start_soon(self._answer, message, scope)
                    case "drop":
                        self._drop(message["call"])
                    case "stage":
                        self._stage = message["stage"]
                    case op if op in ENDINGS:
                        ending = message
                        self.is_over = True
            nursery.cancel_scope.cancel()
        if ending["op"] == "done":
            result: dict[str, Any] = ending["result"]
            return result
        raise self._failure(ending)

    async def withdraw(self) -> None:
        """Have the child cancel the rollout and wait until it has."""
        self._link.tell(op="cancel", id=self._number)
        while (message := await self._incoming.receive())["op"] not in ENDINGS:
            if message["op"] == "call":  # made on its way out
                self._reply(message["call"], ModelAnswer.refusal(503, "the rollout is cancelled"))

    async def _answer(self, message: dict[str, Any], scope: trio.CancelScope) -> None:
        with scope:
            self._reply(message["call"], await self._ask(message["path"], message["body"]))
        self._calls.pop(message["call"], None)

    def _drop(self, call: int) -> None:
        scope = self._calls.get(call)
        if scope is not None:
            scope.cancel()

    def _reply(self, call: int, answer: ModelAnswer) -> None:
        body = answer.content.decode("utf-8", "replace")
        self._link.tell(op="answer", call=call, status=answer.status, content_type=answer.content_type, body=body)

    def _failure(self, ending: dict[str, Any]) -> RolloutFailure:
        match ending["op"]:
            case "failed":
                stage = Stage(ending["stage"])
                kind = FailureKind.VERIFIER_ERROR if stage is Stage.VERIFICATION else FailureKind.AGENT_RUN_ERROR
                return RolloutFailure(kind, ending["message"], stage=stage, exception_type=ending["exception_type"])
            case "cancelled":
                return RolloutFailure(
                    FailureKind.AGENT_RUN_ERROR, "the environment cancelled its own rollout", stage=self._stage
                )
            case _:
                return RolloutFailure(ending["kind"], ending["message"], stage=self._stage)
