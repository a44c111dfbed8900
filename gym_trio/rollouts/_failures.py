"""Where what a rollout raised becomes a `RolloutFailure`: the one boundary of this room."""

from __future__ import annotations

from contextlib import suppress

from ..errors import (
    ConnectFailed,
    Delivery,
    FailureKind,
    LocalResourceError,
    PeerDropped,
    ResponseError,
    RolloutFailure,
    TransportError,
    TransportTimeout,
)

RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})
_MESSAGE_LENGTH = 2000
_TRANSPORT_KINDS: tuple[tuple[type[TransportError], FailureKind], ...] = (
    (ConnectFailed, FailureKind.TRANSPORT_UNREACHABLE),
    (TransportTimeout, FailureKind.TRANSPORT_TIMEOUT),
    (PeerDropped, FailureKind.TRANSPORT_PEER_DROP),
    (LocalResourceError, FailureKind.TRANSPORT_LOCAL_RESOURCE),
)


def failure_of(error: Exception, delivery: Delivery) -> RolloutFailure:
    """The failure that ``error`` stands for, free of tracebacks, causes and contexts, and so of everyone's frames.

    A `RolloutFailure` stays the object it is. An exception group with one exception in it, as a nursery makes them,
    counts as that exception. ``delivery`` is how far the rollout had got, for errors that do not know it better.
    """
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, RolloutFailure):
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    kind, status, body = FailureKind.AGENT_RUN_ERROR, None, ""
    if isinstance(error, TransportError):
        kind = next((k for t, k in _TRANSPORT_KINDS if isinstance(error, t)), FailureKind.AGENT_REQUEST_FAILED)
        delivery = error.delivery
    elif isinstance(error, ResponseError):
        status, body = error.status, error.body
        if status in RETRYABLE_STATUSES:
            kind = FailureKind.AGENT_REQUEST_FAILED
    return RolloutFailure(
        kind, _message(error), status, body=body, exception_type=type(error).__name__, delivery=delivery
    )


def timed_out(seconds: float, delivery: Delivery) -> RolloutFailure:
    """The failure of a rollout that did not end within its own bound."""
    return RolloutFailure(FailureKind.AGENT_TIMEOUT, f"no result within {seconds:g} s", delivery=delivery)


def _message(error: Exception) -> str:
    text = ""
    with suppress(Exception):  # a message that cannot be made must not take its rollout's outcome along
        text = str(error)[:_MESSAGE_LENGTH]
    return text or type(error).__name__
