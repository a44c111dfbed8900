"""One captured model call as it stands in a row and on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ..config import redact_text
from ..servers import ModelCall

__all__ = ["JSON", "Captured", "entry_of", "payload_of", "without_keys"]

JSON = dict[str, Any]


@attrs.frozen
class Captured:
    """The calls of one rollout in the order in which they began, and what is known to be missing.

    A gap is ``{"code": ..., "detail": ...}``; a row without gaps has every call that was made for it.
    """

    calls: tuple[JSON, ...] = ()
    gaps: tuple[JSON, ...] = ()

    def to_row(self) -> JSON:
        """``ng_model_call_capture`` of the rollout's row."""
        return {"calls": list(self.calls), "gaps": list(self.gaps)}


def entry_of(call: ModelCall, number: int) -> JSON:
    """What a row says about ``call``: everything but the request. ``number`` tells the calls of one server apart."""
    response = call.response
    usage = _USAGE[call.api](response.get("usage") or {}) if response is not None else {}
    return {
        "model_call_id": f"{call.server}-{number}",
        "rollout_id": call.rollout_id,
        "model_ref": {"type": "responses_api_models", "name": call.server},
        "api": call.api,
        "response_id": (response or {}).get("id"),
        "model": (response or {}).get("model"),
        "started_at": call.started_at,
        "duration_ms": round(call.duration_seconds * 1000, 3),
        "first_byte_ms": None if call.first_byte_seconds is None else round(call.first_byte_seconds * 1000, 3),
        "streamed": call.streamed,
        "status_code": call.status,
        "outcome": str(call.outcome),
        "response_status": (response or {}).get("status") if call.api == "responses" else None,
        "finish_reason": _FINISH[call.api](response) if response is not None else None,
        "error_category": category_of(call),
        "error": call.error,
        **usage,
        "attempts": [
            {
                "endpoint": attempt.endpoint,
                "status_code": attempt.status,
                "error": attempt.error,
                "started_at": attempt.started_at,
                "waited_ms": round(attempt.waited_seconds * 1000, 3),
                "duration_ms": round(attempt.duration_seconds * 1000, 3),
            }
            for attempt in call.attempts
        ],
        "response": response,
    }


def without_keys(value: Any) -> Any:
    """``value`` with every text in it that is shaped like a key hidden.

    By shape and not by name: a schema's ``password`` and a log probability's ``token`` are what was captured for.
    """
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {name: without_keys(item) for name, item in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        return [without_keys(item) for item in value]
    return value


def payload_of(call: ModelCall) -> JSON:
    """What only the file has: the request."""
    return {"request": dict(call.request)}


def category_of(call: ModelCall) -> str | None:
    """A word for why a call has no answer; ``None`` when it has one."""
    status = call.status
    if call.outcome == "completed":
        return None
    if call.outcome == "cancelled":
        return "cancelled"
    if status is None:
        return "error"
    if status == 429:
        return "rate_limited"
    return "provider_error" if status >= 500 else "request_error"


def _responses_usage(usage: Mapping[str, Any]) -> JSON:
    read, written = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return {
        "tokens_in": usage.get("input_tokens"),
        "tokens_out": usage.get("output_tokens"),
        "tokens_reasoning": written.get("reasoning_tokens"),
        "cached_tokens": read.get("cached_tokens"),
        "tokens_total": usage.get("total_tokens"),
    }


def _chat_usage(usage: Mapping[str, Any]) -> JSON:
    read, written = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return {
        "tokens_in": usage.get("prompt_tokens"),
        "tokens_out": usage.get("completion_tokens"),
        "tokens_reasoning": written.get("reasoning_tokens"),
        "cached_tokens": read.get("cached_tokens"),
        "tokens_total": usage.get("total_tokens"),
    }


def _messages_usage(usage: Mapping[str, Any]) -> JSON:
    fresh, written = usage.get("input_tokens"), usage.get("output_tokens")
    if fresh is None or written is None:
        return _chat_usage({})
    cached = usage.get("cache_read_input_tokens") or 0
    read = fresh + cached + (usage.get("cache_creation_input_tokens") or 0)
    return {
        "tokens_in": read,
        "tokens_out": written,
        "tokens_reasoning": None,
        "cached_tokens": cached,
        "tokens_total": read + written,
    }


_USAGE: Mapping[str, Callable[[Mapping[str, Any]], JSON]] = {
    "responses": _responses_usage,
    "chat_completions": _chat_usage,
    "messages": _messages_usage,
}


def _responses_finish(response: Mapping[str, Any]) -> str | None:
    reason = (response.get("incomplete_details") or {}).get("reason")
    return reason or ("stop" if response.get("status") == "completed" else None)


def _chat_finish(response: Mapping[str, Any]) -> str | None:
    choices = response.get("choices") or [{}]
    reason: str | None = choices[0].get("finish_reason")
    return reason


_FINISH: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = {
    "responses": _responses_finish,
    "chat_completions": _chat_finish,
    "messages": lambda response: response.get("stop_reason"),
}
