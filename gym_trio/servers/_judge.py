"""`Judge`: asks a model for a verdict, and says so when there is none instead of scoring zero."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from .. import errors
from ..errors import FailureKind
from ._response import output_text

if TYPE_CHECKING:
    from ..http import ServerClient

__all__ = ["Judge", "Judgement"]

logger = logging.getLogger("gym_trio.servers")

Verdict = TypeVar("Verdict")


@attrs.frozen
class Judgement(Generic[Verdict]):
    """What a judge said. ``verdict`` is ``None`` when ``failure_kind`` is set; ``texts`` are its answers, in order."""

    verdict: Verdict | None
    texts: tuple[str, ...]
    failure_kind: str | None = None
    failure_reason: str | None = None

    @property
    def judge_failed(self) -> bool:
        """Whether there is no verdict."""
        return self.failure_kind is not None

    def verify_fields(self) -> dict[str, Any]:
        """What a verify response says of a judge that failed: the sample is masked, and nothing is scored.

        Empty when there is a verdict.
        """
        if not self.judge_failed:
            return {}
        return {
            "reward": 0.0,
            "mask_sample": True,
            "judge_failed": True,
            "failure_kind": self.failure_kind,
            "failure_reason": self.failure_reason,
        }


class Judge(Generic[Verdict]):
    """A model that judges, for verifiers.

    ``parse`` makes the verdict of the judge's text and raises `ValueError` when the text has none. A judge that does
    not answer, or not in its form, is asked ``attempts`` times in all. The model server has its own budget for what a
    provider refuses; that is not repeated here.

    **Errors**: none of the judge's: they are in the `Judgement`.

    **Cancellation**: cancels the call.
    """

    def __init__(
        self,
        client: ServerClient,
        model_server: str,
        parse: Callable[[str], Verdict],
        *,
        attempts: int = 3,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        if attempts < 1:
            raise errors.UsageError("a judge needs at least one attempt")
        self._client = client
        self._model_server = model_server
        self._parse = parse
        self._attempts = attempts
        self._parameters = dict(parameters or {})

    async def judge(self, prompt: str | list[dict[str, Any]], *, rollout_id: str | None = None) -> Judgement[Verdict]:
        """The verdict on ``prompt``, a text or Responses items; ``rollout_id`` places the call in its rollout."""
        texts: list[str] = []
        kind, reason = FailureKind.JUDGE_FAILED, ""
        for _ in range(self._attempts):
            try:
                text = await self._ask(prompt, rollout_id)
            except (errors.TransportError, errors.ResponseError) as error:
                kind, reason = FailureKind.JUDGE_FAILED, str(error)
                if isinstance(error, errors.ResponseError) and error.status < 500:
                    break
            else:
                texts.append(text)
                try:
                    return Judgement(self._parse(text), tuple(texts))
                except ValueError as error:
                    kind, reason = FailureKind.JUDGE_UNPARSEABLE, f"{error}: {text[:200]!r}"
            logger.warning("judge %s: %s", self._model_server, reason)
        return Judgement(None, tuple(texts), kind, f"judge {self._model_server}: {reason}"[:2000])

    async def _ask(self, prompt: str | list[dict[str, Any]], rollout_id: str | None) -> str:
        prefix = f"/ng-rollout/{rollout_id}" if rollout_id else ""
        body = {**self._parameters, "input": prompt}
        answer = await self._client.post(self._model_server, f"{prefix}/v1/responses", json=body)
        answer.raise_for_status()
        response = answer.json()
        return output_text(response) if isinstance(response, Mapping) else ""
