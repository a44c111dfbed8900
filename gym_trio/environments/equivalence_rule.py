"""Answers that must equal, or come close to, a given text."""

from __future__ import annotations

import difflib
import enum
import random
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._haystack import vocabulary
from ._packaged import packaged_rows

__all__ = ["EquivalenceRule", "EquivalenceRuleSettings", "GradingRule", "score"]

GENERATED = 20  # rows made by chance, after those that were written

_PREFIX = 10
_PREFIX_WEIGHT = 0.15


class GradingRule(enum.StrEnum):
    """How an answer is compared, after blanks and case are evened out."""

    EXACT = "exact"  # 1 for the same text, else 0
    SEQ_MATCH = "seq_match"  # the matching ratio of difflib's SequenceMatcher
    WEIGHTED_SEQ_MATCH = "weighted_seq_match"  # 85 % of that ratio, 15 % of the ratio of the first ten characters


@attrs.frozen(kw_only=True)
class EquivalenceRuleSettings:
    """The key of an ``equivalence_rule`` block besides the common ones."""

    grading_rule: GradingRule = attrs.field(default=GradingRule.EXACT, converter=GradingRule)


class EquivalenceRule(ResourcesServer):
    """Reward from 0 to 1 for how well the text equals the row's ``expected_answer``, by the block's ``grading_rule``.

    Source of the rule: NeMo Gym's ``equivalence_rule``.
    """

    description = "An answer compared with a given text by one of three rules"
    domain = "long_context"
    settings_type = EquivalenceRuleSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        yield from packaged_rows("equivalence_rule")
        for number in range(GENERATED):
            yield _row(random.Random(f"equivalence_rule:{number}"), number)

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        rule: GradingRule = self.settings.grading_rule
        text, expected = output_text(request.response), str(request.get("expected_answer") or "")
        found = await self.in_thread(score, text, expected, rule)
        return {"reward": found, "equivalence_score": found}


def score(text: str, expected: str, rule: GradingRule) -> float:
    """The score of ``text`` by ``rule``."""
    text, expected = _even(text), _even(expected)
    if rule is GradingRule.EXACT:
        return float(text == expected)
    ratio = _ratio(text, expected)
    if rule is GradingRule.SEQ_MATCH:
        return ratio
    start = expected[:_PREFIX]
    return (1 - _PREFIX_WEIGHT) * ratio + _PREFIX_WEIGHT * _ratio(text[: len(start)], start)


def _even(text: str) -> str:
    return " ".join(text.lower().split())


def _ratio(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()


def _row(rng: random.Random, number: int) -> dict[str, Any]:
    words = rng.sample(vocabulary(), rng.randint(4, 8))
    one, other = rng.choice(words), rng.choice(vocabulary())
    asked, answer = (
        ("Write these words in reverse order", words[::-1]),
        ("Write these words in alphabetical order", sorted(words)),
        ("Write every second of these words, beginning with the first", words[::2]),
        (f"Write these words without '{one}'", [word for word in words if word != one]),
        (f"Write these words with '{other}' in place of '{one}'", [other if word == one else word for word in words]),
        ("Write these words with the last moved to the front", words[-1:] + words[:-1]),
        ("Write the last letter of each of these words", [word[-1] for word in words]),
        ("Write each of these words backwards, in the order given", [word[::-1] for word in words]),
    )[number % 8]
    question = f"{asked}, separated by single blanks: {' '.join(words)}"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"{question}\nAnswer with the text alone."}]},
        "question": question,
        "expected_answer": " ".join(answer),
        "source": "own",
        "hashid": f"words-{number}",
    }
