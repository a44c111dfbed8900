"""Several tool calls in order: look up values of synonyms and hand them over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..servers import RequestBody, ResourcesServer, Session, function_calls, tool
from ._packaged import packaged_rows

__all__ = ["MultiStep"]


class MultiStep(ResourcesServer):
    """Look up the value of each synonym and hand over the list. Reward 1 for exactly the expected values in order.

    What counts is the last call of ``extract_synonym_values``; without one nothing was handed over. A row has
    ``expected_synonym_values`` and a term that is not to be looked up (``minefield_label`` and its value).

    Source of the rule: NeMo Gym's ``example_multi_step``.
    """

    description = "Several tool calls in order"
    domain = "instruction_following"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("example_multi_step")

    @tool
    async def get_synonym_value(self, session: Session, synonym: str) -> dict[str, int]:
        """The value of a synonym."""
        return {"synonym_value": sum(map(ord, synonym))}

    @tool
    async def extract_synonym_values(self, session: Session, synonym_values: list[int]) -> dict[str, bool]:
        """Hand over the values of the synonyms, in their order."""
        return {"success": True}

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        expected = list(request.get("expected_synonym_values") or ())
        actual = _handed_over(request.response)
        overlap = len(_distinct(actual) & _distinct(expected)) / len(expected) if expected else 0.0
        right = actual == expected
        return {
            "reward": float(right),
            "parsed_synonym_values": actual,
            "accuracy": right,
            "set_overlap": overlap,
            "original_term_minefield_hit": any(
                request.get(key) in actual for key in ("minefield_label", "minefield_label_value") if key in request
            ),
            "order_instruction_following_failure": not right and overlap == 1.0,
        }


def _handed_over(response: Mapping[str, Any]) -> list[Any]:
    calls = [arguments for name, arguments in function_calls(response) if name == "extract_synonym_values"]
    values = (calls[-1] or {}).get("synonym_values") if calls else None
    return values if isinstance(values, list) else []


def _distinct(values: list[Any]) -> set[Any]:
    return {value for value in values if isinstance(value, int | float | str)}
