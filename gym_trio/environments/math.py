"""Mathematical answers, compared by what they mean."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import attrs

from ..config import positive_int, structure
from ..errors import MissingExtraError
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, output_text

__all__ = ["Math", "MathSettings", "judge_answer"]


@attrs.frozen(kw_only=True)
class MathSettings:
    """The keys of a ``math`` block besides the common ones. The same ``seed`` gives the same rows."""

    size: int = attrs.field(default=40, validator=positive_int)
    seed: int = 1


class Math(ResourcesServer):
    r"""A mathematical problem. Reward 1 when the answer equals ``expected_answer`` as mathematics, else 0.

    The ``math-verify`` package finds the answer in the reply (boxed ones before others, several of them together being
    a set; else the last) and compares it with ``expected_answer``, which is LaTeX without a box: numbers, fractions,
    expressions, sets, intervals and equations in any form that is equal. A reply or an expected answer without anything
    mathematical earns nothing.

    Source of the rule: the ``math-verify`` package, as NeMo Gym's ``math_with_judge`` calls it before any judge.

    **Errors**: `MissingExtraError` without the ``math`` extra. The comparison runs in a process with a time limit.
    """

    description = "Mathematical answers compared by meaning (math-verify)"
    domain = "math"
    settings_type = MathSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(MathSettings, config, key="math", ignore=COMMON_KEYS)
        for number in range(settings.size):
            rng = random.Random(f"{settings.seed}:{number}")
            question, answer = _KINDS[number % len(_KINDS)](rng)
            prompt = f"{question}\nPut your final answer in \\boxed{{}}."
            yield {
                "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
                "expected_answer": answer,
            }

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterator[str]:
        if not isinstance(row.get("expected_answer"), str | int | float):
            yield "expected_answer: must be a text or a number"

    def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        correct, found = judge_answer(output_text(request.response), str(request.get("expected_answer") or ""))
        return {"reward": float(correct), "extracted_answer": found}


def judge_answer(text: str, expected: str) -> tuple[bool, str | None]:
    """Whether ``text`` has the answer ``expected``, and what it has. **Errors**: `MissingExtraError`."""
    try:
        from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
    except ImportError as error:
        raise MissingExtraError("math", extra="math") from error
    # Its own time limits are alarm signals; the process that this runs in has a limit already.
    wanted = parse(f"\\boxed{{{expected}}}", [LatexExtractionConfig()], parsing_timeout=None)
    given = parse(text, [ExprExtractionConfig(), LatexExtractionConfig()], parsing_timeout=None)
    if not wanted or not given:
        return False, None
    return bool(verify(wanted, given, timeout_seconds=None)), str(given[-1])


def _fraction(rng: random.Random) -> tuple[str, str]:
    a, b = (Fraction(rng.randint(1, 9), rng.randint(2, 9)) for _ in range(2))
    total = a + b
    shown = f"\\frac{{{total.numerator}}}{{{total.denominator}}}" if total.denominator > 1 else str(total.numerator)
    return f"What is {a} + {b}?", shown


def _roots(rng: random.Random) -> tuple[str, str]:
    a, b = rng.sample([n for n in range(-9, 10) if n], 2)
    linear = f"{-(a + b):+d}x" if a + b else ""
    return f"Find the set of all real solutions of x^2 {linear} {a * b:+d} = 0.", f"\\{{{a}, {b}\\}}"


def _surd(rng: random.Random) -> tuple[str, str]:
    outer, inner = rng.randint(2, 9), rng.choice([2, 3, 5, 6, 7, 10])
    return f"Simplify the square root of {outer * outer * inner}.", f"{outer}\\sqrt{{{inner}}}"


def _power(rng: random.Random) -> tuple[str, str]:
    base, exponent, modulus = rng.randint(2, 9), rng.randint(20, 60), rng.randint(11, 97)
    return f"What is the remainder of {base}^{{{exponent}}} divided by {modulus}?", str(pow(base, exponent, modulus))


def _choose(rng: random.Random) -> tuple[str, str]:
    n = rng.randint(6, 20)
    k = rng.randint(2, n - 2)
    return f"In how many ways can {k} of {n} people be chosen?", str(math.comb(n, k))


_KINDS = (_fraction, _roots, _surd, _power, _choose)
