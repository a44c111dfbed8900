"""The Responses items of a captured answer, whatever API its client spoke."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import FormError
from ..servers import forms
from ._entry import JSON

__all__ = ["items_of_answer"]


def items_of_answer(call: Mapping[str, Any]) -> list[JSON]:
    """What the model said in a call, as Responses output items; nothing where the answer cannot be read."""
    response = call.get("response")
    if not isinstance(response, Mapping):
        return []
    try:
        if call["api"] == "chat_completions":
            response = forms.chat_to_responses(response)
        elif call["api"] == "messages":
            response = forms.messages_to_responses(response)
    except (FormError, KeyError, TypeError, AttributeError):
        return []
    return [item for item in response.get("output") or () if isinstance(item, dict)]
