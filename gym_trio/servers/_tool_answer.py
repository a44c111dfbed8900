"""What a tool may return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import FailureKind, RolloutFailure, Stage
from ._body import encode_default, orjson_bytes
from ._tools import Tool

__all__ = ["encoded_answer"]


MOST_BYTES = 64 * 2**20  # what a client takes of one response


def encoded_answer(server: str, tool: Tool, found: Any) -> bytes:
    """``found`` as JSON.

    **Errors**: `RolloutFailure` (stage ``agent``) for what JSON cannot carry: NaN, infinity, an object without a form.
    """
    if isinstance(found, str) and len(found) > MOST_BYTES:
        # The encoder sets aside eight times as much, and does not survive when there is not so much.
        raise _unfit(server, tool, f"it is {len(found)} characters, above {MOST_BYTES}")
    try:
        encoded = orjson_bytes(found, default=encode_default)
    except TypeError as error:
        raise _unfit(server, tool, str(error)) from None
    if len(encoded) > MOST_BYTES:
        raise _unfit(server, tool, f"it is {len(encoded)} bytes of JSON, above {MOST_BYTES}")
    # The encoder writes numbers that JSON lacks as null: only then is it worth a look.
    if b"null" in encoded and _has_no_number(found):
        raise _unfit(server, tool, "NaN or infinity is no JSON")
    return encoded


def _has_no_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_no_number, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_no_number, value))


def _unfit(server: str, tool: Tool, why: str) -> RolloutFailure:
    return RolloutFailure(
        FailureKind.AGENT_RUN_ERROR,
        f"{server}: what the tool {tool.name} returned cannot be written: {why}",
        stage=Stage.AGENT,
        terminal=True,
    )
