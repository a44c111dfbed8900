"""An error in each of the three forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._parts import JSON

__all__ = ["error_body", "message_of_error"]

_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(form: str, status: int, message: str, provider: Any = None) -> JSON:
    """The body of an error answer in ``form`` (``responses``, ``chat_completions`` or ``messages``).

    ``provider`` is the body that a provider answered with: where it has the form already, it stays as it is.
    """
    if form == "messages":
        if isinstance(provider, Mapping) and provider.get("type") == "error":
            return dict(provider)
        fallback = "api_error" if status >= 500 else "invalid_request_error"
        kind = _ANTHROPIC_TYPES.get(status, fallback)
        return {"type": "error", "error": {"type": kind, "message": message_of_error(provider) or message}}
    if isinstance(provider, Mapping) and isinstance(provider.get("error"), Mapping) and "type" not in provider:
        return dict(provider)
    fallback = "server_error" if status >= 500 else "invalid_request_error"
    kind = _OPENAI_TYPES.get(status, fallback)
    return {"error": {"message": message_of_error(provider) or message, "type": kind, "param": None, "code": None}}


def message_of_error(body: Any) -> str | None:
    """The sentence in an error body of any provider, or ``None``."""
    if not isinstance(body, Mapping):
        return None
    error = body.get("error")
    if isinstance(error, Mapping) and isinstance(error.get("message"), str):
        return str(error["message"])
    for value in (error, body.get("message"), body.get("detail")):
        if isinstance(value, str) and value:
            return value
    return None
