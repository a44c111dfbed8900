"""One model call as its server sees it: the request, what happened on the way, and the record that is made of it."""

from __future__ import annotations

import enum
from typing import Any, Protocol

import attrs

from ._body import RequestBody

__all__ = ["Attempt", "CallOutcome", "ModelCall", "ModelCallRecorder", "ModelRequest"]


class CallOutcome(enum.StrEnum):
    """How a model call ended."""

    COMPLETED = "completed"  # the client got an answer
    FAILED = "failed"  # the client got an error
    CANCELLED = "cancelled"  # the client left first; the provider's work was cancelled with it


@attrs.frozen
class Attempt:
    """One request to a provider. ``status`` is ``None`` when no complete answer came; ``error`` then says why.

    ``waited_seconds`` passed before it (backoff, or a place in the endpoint's queue), ``duration_seconds`` in it.
    """

    endpoint: str
    status: int | None
    error: str | None
    started_at: float
    waited_seconds: float
    duration_seconds: float


class ModelRequest(RequestBody):
    """A request to a model server: its body, and the attempts that were made for it so far."""

    __slots__ = ("attempts", "form")

    form: str
    attempts: list[Attempt]

    def in_form(self, form: str, body: dict[str, Any]) -> ModelRequest:
        """The same call with its body in another form; attempts made for it count for this one too."""
        made = ModelRequest(body, headers=self._headers, path_params=self.path_params, rollout_id=self.rollout_id)
        made.form, made.attempts = form, self.attempts
        return made


@attrs.frozen
class ModelCall:
    """The record of one call, made when it is over.

    ``api`` is the form that the client spoke (``responses``, ``chat_completions`` or ``messages``); ``request`` and
    ``response`` are in it. Of a stream ``response`` is the whole that its events add up to. ``started_at`` is Unix
    time.

    **Ownership**: request and response are the server's own objects; a recorder must not change them.
    """

    server: str
    rollout_id: str | None
    api: str
    request: dict[str, Any]
    response: dict[str, Any] | None
    outcome: CallOutcome
    status: int | None
    error: str | None
    started_at: float
    duration_seconds: float
    first_byte_seconds: float | None
    streamed: bool
    attempts: tuple[Attempt, ...]


class ModelCallRecorder(Protocol):
    """Whoever keeps the records of model calls. None of its methods may block the event loop."""

    def begin(self, rollout_id: str | None) -> None:
        """A call has begun; exactly one `record` for it follows. Must not raise."""
        ...

    def record(self, call: ModelCall) -> None:
        """A call is over, however it ended. Must not raise."""
        ...

    async def flush(self, rollout_id: str) -> bool:
        """Wait until every call of the rollout that has begun is recorded, and kept; whether that came about."""
        ...
