"""How a failure crosses from one server to the next without losing its kind, stage and cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from .. import errors
from ..errors import FailureKind, RolloutFailure, Stage

__all__ = ["failure_from_wire", "failure_of", "failure_to_wire", "sole_cause"]

# Statuses that say "try again": the same rule decides an agent's own status and a failed row's class.
RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})

_TRANSPORT_KINDS: tuple[tuple[type[errors.TransportError], FailureKind], ...] = (
    (errors.ConnectFailed, FailureKind.TRANSPORT_UNREACHABLE),
    (errors.TransportTimeout, FailureKind.TRANSPORT_TIMEOUT),
    (errors.LocalResourceError, FailureKind.TRANSPORT_LOCAL_RESOURCE),
    (errors.TransportError, FailureKind.TRANSPORT_PEER_DROP),
)


def failure_of(
    error: Exception, *, kind: str = FailureKind.AGENT_RUN_ERROR, stage: str = Stage.AGENT
) -> RolloutFailure:
    """``error`` as a `RolloutFailure` without a traceback: itself when it is one, else typed by what it is."""
    error = sole_cause(error)
    if isinstance(error, RolloutFailure):
        return error
    name = type(error).__name__
    if isinstance(error, errors.ResponseError):
        found = failure_from_wire(error.server, error.status, error.body)
        return found or RolloutFailure(
            FailureKind.AGENT_REQUEST_FAILED if error.status in RETRYABLE_STATUSES else kind,
            str(error),
            error.status,
            stage,
            body=error.body,
            exception_type=name,
        )
    if isinstance(error, errors.TransportError):
        typed = next(found for base, found in _TRANSPORT_KINDS if isinstance(error, base))
        return RolloutFailure(typed, str(error), None, stage, exception_type=name, delivery=error.delivery)
    text = str(error) if isinstance(error, errors.GymError) else f"{name}: {error}"
    if isinstance(error, ExceptionGroup):
        text += "; the first: {0.__class__.__name__}: {0}".format(_leaves(error)[0])
    return RolloutFailure(kind, text, None, stage, exception_type=name)


def sole_cause(error: Exception) -> Exception:
    """The one exception in a group of a single one, at any depth; else ``error`` itself."""
    leaves = _leaves(error)
    return leaves[0] if len(leaves) == 1 else error


def _leaves(error: Exception) -> list[Exception]:
    if not isinstance(error, ExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


def failure_to_wire(failure: RolloutFailure) -> tuple[int, dict[str, Any]]:
    """The status and body that carry ``failure``: ``{"detail": text, "failure": {...}}``.

    The status is 502 where another attempt can help and 500 where not, so that a caller that knows nothing of the
    form still classes it rightly.
    """
    retryable = failure.status in RETRYABLE_STATUSES if failure.status else failure.kind.startswith("transport_")
    return 502 if retryable and not failure.terminal else 500, {
        "detail": failure.message,
        "failure": {
            "failure_kind": str(failure.kind),
            "failure_reason": failure.message[:2000],
            "terminal": failure.terminal,
            "stage": str(failure.stage),
            "http_status": failure.status,
            "exception_type": failure.exception_type,
            "response_body": failure.body,
            **({"details": failure.details} if failure.details else {}),
        },
    }


def failure_from_wire(server: str, status: int, body: str | bytes) -> RolloutFailure | None:
    """The failure that a response body of `failure_to_wire` carries, or ``None`` when it carries none."""
    try:
        form = orjson.loads(body)["failure"]
        kind, reason = form["failure_kind"], form["failure_reason"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if not isinstance(form, Mapping) or not isinstance(kind, str):
        return None

    def part(key: str, kind: type) -> Any:
        value = form.get(key)
        return value if isinstance(value, kind) else None

    return RolloutFailure(
        kind,
        str(reason),
        part("http_status", int) or status,
        part("stage", str) or Stage.AGENT,
        bool(form.get("terminal")),
        body=part("response_body", str) or "",
        exception_type=part("exception_type", str),
        details=part("details", dict),
    )
