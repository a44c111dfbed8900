"""What a provider's answer means: an answer, or a refusal with its reason, its retry advice and its secrets hidden."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import attrs

from ..config import redact
from ..errors import FailureKind
from ..servers import forms

__all__ = ["Refusal", "failed_in_stream", "refusal_of", "status_of_failure", "unreadable"]

_SHOWN_CHARACTERS = 500
_ERRORS = range(400, 600)
_NOT_RETRYABLE = frozenset({501, 505})
_TOO_LONG = re.compile(
    r"context.{0,12}(length|window|size)|exceed_context|maximum context|prompt is too long|too many tokens",
    re.IGNORECASE,
)
_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})

# A body in which one of these is not empty is an answer, whatever else it has.
_ANSWERS = frozenset({"choices", "output", "content", "tokens", "data"})

_ADVICE = {
    401: "check the API key",
    403: "the key may not do this",
    404: "check the model's name and the base URL",
    429: "lower the concurrency, or set requests_per_minute",
}


@attrs.frozen
class Refusal:
    """Why an attempt brought no answer.

    ``terminal`` means that this request can never succeed. ``answered`` is false where no complete answer came; then
    ``status`` is what the model server itself answers with.
    """

    status: int
    message: str
    body: dict[str, Any] | None
    kind: str
    retryable: bool
    terminal: bool
    answered: bool = True


def status_of_failure(body: dict[str, Any]) -> int | None:
    """The status that an answer of status 200 should have had, or ``None`` when it is a real answer."""
    error = body if body.get("object") == "error" else body.get("error")  # vLLM's own form
    if not error or (body.get("status") != "failed" and any(body.get(name) for name in _ANSWERS)):
        return None
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and code in _ERRORS:
        return code
    return 429 if code == "rate_limit_exceeded" else 502


def refusal_of(status: int, content: bytes, media_type: str, secrets: Collection[str]) -> Refusal:
    """The refusal in an answer whose ``status`` is not 200."""
    body = forms.read_object(content)
    body = redact(body, secrets=secrets) if body is not None else None
    said = _line(forms.message_of_error(body) or "") or _shown(content, media_type, secrets)
    error = (body or {}).get("error")
    code = error.get("code") or error.get("type") if isinstance(error, dict) else None
    too_long = bool(_TOO_LONG.search(f"{code} {said}")) and status not in (408, 429)
    no_quota = status == 429 and code in _QUOTA
    retryable = (status in (408, 409, 429) or status >= 500) and not (too_long or no_quota or status in _NOT_RETRYABLE)
    advice = "" if too_long else _ADVICE.get(status, "")
    if 300 <= status < 400:
        advice = "redirects are not followed; give the URL that it leads to"
    # What is no error's status has other rules for its body, and cannot carry a refusal to the client.
    passed_on = status if status in _ERRORS else 502
    return Refusal(
        status=passed_on,
        message=f"answered {status}{': ' + said if said else ''}{' (' + advice + ')' if advice else ''}",
        body=body,
        kind=_kind(passed_on),
        retryable=retryable,
        terminal=too_long or status in (400, 413, 422),
    )


def failed_in_stream(error: Any, secrets: Collection[str]) -> Refusal:
    """The refusal in the ``error`` of a stream's event. Nothing of the answer is asked for again."""
    body: dict[str, Any] = redact({"error": error}, secrets=secrets)
    said = _line(forms.message_of_error(body) or "") or "no reason given"
    return Refusal(
        status=502,
        message=f"failed in the middle of its answer: {said}",
        body=body if isinstance(error, dict) else None,
        kind=FailureKind.PROVIDER_UNAVAILABLE,
        retryable=False,
        terminal=False,
    )


def unreadable(status: int, content: bytes, media_type: str, secrets: Collection[str]) -> Refusal:
    """The refusal in an answer that says it is one, and whose body is not the JSON that it must be."""
    shown = _shown(content, media_type, secrets)
    return Refusal(
        status=502,
        message=f"answered {status} with what is not a model's answer ({media_type or 'no content type'}): {shown!r} "
        "(is the base URL that of an OpenAI-compatible API?)",
        body=None,
        kind=FailureKind.PROVIDER_UNAVAILABLE,
        retryable=False,
        terminal=False,
    )


def _kind(status: int) -> str:
    if status == 429:
        return FailureKind.PROVIDER_QUOTA_EXHAUSTED
    return FailureKind.PROVIDER_UNAVAILABLE if status >= 500 else FailureKind.AGENT_RUN_ERROR


def _shown(content: bytes, media_type: str, secrets: Collection[str]) -> str:
    text = str(redact(content[: 8 * _SHOWN_CHARACTERS].decode("utf-8", "replace"), secrets=secrets))
    if "html" in media_type or text.lstrip()[:1] == "<":
        text = f"an HTML page: {re.sub('<[^>]*>', ' ', text)}"
    return _line(text)


def _line(text: str) -> str:
    """What is said of a refusal stands in one line of a log or table, however long or broken the provider's text."""
    return " ".join(text[: 8 * _SHOWN_CHARACTERS].split())[:_SHOWN_CHARACTERS]
