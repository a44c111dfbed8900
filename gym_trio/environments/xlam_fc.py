"""Function calling: the right calls, all of them, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from ..servers import RequestBody, ResourcesServer, Session
from ._packaged import packaged_rows

__all__ = ["XlamFunctionCalling", "matched_calls"]

_ABSENT = object()


class XlamFunctionCalling(ResourcesServer):
    """A request that takes one or several function calls. Reward 1 when they are all made and no other is, else 0.

    A row has ``expected_answers``, calls of ``name`` and ``arguments``. A made call answers an expected one of the same
    name when it has each expected argument with an equal value; further arguments are free. Each made call answers
    one. With nothing expected, the reward is for calling nothing.

    Source of the rule: NeMo Gym's ``xlam_fc``.
    """

    description = "Function calling: all the right calls and no others"
    domain = "agent"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("xlam_fc")

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        made = [
            {"name": item.get("name"), "arguments": _arguments(item.get("arguments"))}
            for item in request.response.get("output") or ()
            if item.get("type") == "function_call"
        ]
        expected = request.get("expected_answers") or []
        right = matched_calls(made, expected)
        return {
            "reward": float(right == len(expected) == len(made)),
            "num_expected": len(expected),
            "num_predicted": len(made),
            "num_correct": right,
            "predicted_calls": made,
        }


def matched_calls(made: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> int:
    """How many expected calls are answered, each by the first made call that fits and is still free."""
    free = list(made)
    right = 0
    for call in expected:
        position = next((place for place, other in enumerate(free) if _fits(other, call)), None)
        if position is not None:
            del free[position]
            right += 1
    return right


def _fits(made: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    given = made["arguments"] if isinstance(made["arguments"], Mapping) else {}
    wanted = _arguments(expected.get("arguments"))
    return made["name"] == expected.get("name") and all(
        given.get(name, _ABSENT) == value for name, value in (wanted.items() if isinstance(wanted, Mapping) else ())
    )


def _arguments(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return {}
    return value if isinstance(value, Mapping) else {}
