"""Several tool calls in order: look up values of synonyms and hand them over."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from ..servers import RequestBody, ResourcesServer, Session, function_calls, tool, tools_of
from ._packaged import packaged_rows
from ._synonyms import SYNONYMS, TEXTS

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
        yield from packaged_rows("example_multi_step")
        tools = [tool.definition for tool in tools_of(cls).values()]
        for number, term in enumerate(TEXTS):
            yield _row(random.Random(f"example_multi_step:{term}"), term, number, tools)

    @tool
    async def get_synonym_value(self, session: Session, synonym: str) -> dict[str, int]:
        """The value of a synonym."""
        return {"synonym_value": _value(synonym)}

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


def _value(word: str) -> int:
    return sum(map(ord, word))


def _row(rng: random.Random, term: str, number: int, tools: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    listed = [term, *rng.sample([each for each in SYNONYMS if each != term], rng.randint(3, 6))]
    rng.shuffle(listed)
    synonyms = rng.sample(SYNONYMS[term], 2)
    shown = {each: synonyms if each == term else SYNONYMS[each] for each in listed}
    lines = [f"{each}: {', '.join(words)}" for each, words in shown.items()]
    system = (
        "These terms have synonyms, in this order:\n"
        + "\n".join(lines)
        + "\nFind the term that the user's text is about. Look up the value of each of its synonyms, not of the term "
        "itself, and hand over the values in the order of the list."
    )
    messages = [{"role": "system", "content": system}, {"role": "user", "content": TEXTS[term]}]
    return {
        "responses_create_params": {"input": messages, "tools": list(tools)},
        "id": f"terms-{number}",
        "expected_synonyms": synonyms,
        "expected_synonym_values": [_value(word) for word in synonyms],
        "minefield_label": term.capitalize(),
        "minefield_label_value": _value(term.capitalize()),
    }
