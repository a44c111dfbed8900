"""Where the exact tokens of a rollout are found: in its row, or in its captured calls."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

from ..errors import RunError
from ..servers import forms
from ._entry import Captured
from ._items import items_of_answer
from ._tokens import MaskReason, TokenCall, TokenRecord, TrainingArrays, record_tokens

__all__ = ["check_mask_fraction", "record_of_captures", "record_of_result", "training_arrays"]

# The gaps that hide whole calls; others leave out what has no tokens.
_CALLS_HIDDEN = frozenset(
    {
        "model_call_capture_incomplete",
        "model_call_capture_records_unreadable",
        "model_call_capture_unreadable",
        "model_calls_unavailable",
    }
)


def training_arrays(result: Mapping[str, Any], *, captured: Captured | None = None) -> TrainingArrays | None:
    """One rollout as arrays: ``token_ids``, ``loss_mask``, ``log_probs``, each of shape (n,), and its ``reward``.

    ``result`` is an output row; with ``captured`` the tokens come from its captured calls instead. ``None`` when the
    sample is masked: `record_of_result` and `record_of_captures` give the record that says why.
    """
    if captured is None:
        record = record_of_result(result)
    else:
        record = record_of_captures(captured, rollout_id=result.get("_ng_rollout_id"))
    reward = result.get("reward")
    if result.get("mask_sample") or not isinstance(reward, int | float):
        return None
    return record.arrays(float(reward))


def _call_of(item: Mapping[str, Any]) -> TokenCall | None:
    """The tokens on ``item``, or ``None`` where they are not all there: no token is made up, nor its probability."""
    found: list[Any] = [item.get(key) for key in forms.TOKEN_KEYS]
    if not all(isinstance(values, list) for values in found):
        return None
    try:
        prompt, generation, log_probs = (array(code, values) for code, values in zip("qqf", found, strict=True))
    except (TypeError, OverflowError):
        return None
    if len(generation) != len(log_probs) or not all(map(math.isfinite, log_probs)):
        return None
    return TokenCall(prompt, generation, log_probs)


def _items_of_result(result: Mapping[str, Any]) -> list[Any]:
    response = result.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    return output if isinstance(output, list) else []


def record_of_result(result: Mapping[str, Any]) -> TokenRecord:
    """The tokens in an output row: on the last item of each model call in its response.

    Items before a tool result, and those up to one with tokens, are one call.
    """
    calls: list[TokenCall | None] = []
    open_items = False
    for item in _items_of_result(result):
        if not isinstance(item, Mapping):
            open_items = True
            continue
        if str(item.get("type", "message")).endswith("_output") or item.get("role", "assistant") != "assistant":
            if open_items:
                calls.append(None)
            open_items = False
            continue
        found = _call_of(item)
        open_items = found is None
        if found is not None:
            calls.append(found)
    if open_items:
        calls.append(None)
    masked = MaskReason.MASKED_BY_ROLLOUT if result.get("mask_sample") else None
    return record_tokens(calls, rollout_id=result.get("_ng_rollout_id"), masked=masked)


def record_of_captures(
    captured: Captured, *, rollout_id: str | None = None, model_server: str | None = None
) -> TokenRecord:
    """The tokens in a rollout's captured calls, for agents that hand back no items of their model.

    ``model_server`` leaves out the calls of other servers, such as a judge. A call that failed has no tokens to train
    on and is passed over.
    """
    calls: list[TokenCall | None] = []
    for call in captured.calls:
        if call.get("response") is None and call.get("error") is not None:
            continue
        if model_server is None or call["model_ref"]["name"] == model_server:
            calls.append(next(filter(None, map(_call_of, reversed(items_of_answer(call)))), None))
    hidden = any(gap.get("code") in _CALLS_HIDDEN for gap in captured.gaps)
    masked = MaskReason.CAPTURE_INCOMPLETE if hidden else None
    return record_tokens(calls, rollout_id=rollout_id, masked=masked)


def check_mask_fraction(masked: int, total: int, max_mask_fraction: float | None) -> None:
    """**Errors**: `RunError` when more than ``max_mask_fraction`` of ``total`` samples are masked."""
    if max_mask_fraction is not None and total and masked / total > max_mask_fraction:
        raise RunError(
            f"{masked} of {total} samples have no usable tokens, more than max_mask_fraction={max_mask_fraction:g}"
        )
