"""Arithmetic of another universe, where each operation must be asked for."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import orjson

from ..config import positive_int, structure
from ..errors import RequestRefused
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, tool

__all__ = ["MathAdvancedCalculations", "MathAdvancedCalculationsSettings"]

Value = dict[str, float]


@attrs.frozen(kw_only=True)
class MathAdvancedCalculationsSettings:
    """The keys of the block besides the common ones. The same ``seed`` gives the same rows."""

    size: int = attrs.field(default=30, validator=positive_int)
    seed: int = 1


class MathAdvancedCalculations(ResourcesServer):
    """Calculations with tools that do not compute what one is used to. Reward 1 for all the right values, else 0.

    A row's ``ground_truth`` is a list of numbers, as JSON in a text; each must be the ``solution`` that some tool call
    of the rollout got. What the model says does not count, nor what else it computed. A call that failed has no value.

    Source of the rule and of the operations: NeMo Gym's ``math_advanced_calculations``.
    """

    description = "Calculations in a universe of other operations, with tools"
    domain = "math"
    settings_type = MathAdvancedCalculationsSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(
            MathAdvancedCalculationsSettings, config, key="math_advanced_calculations", ignore=COMMON_KEYS
        )
        return (_row(number, random.Random(f"{settings.seed}:{number}")) for number in range(settings.size))

    @tool
    async def add(self, session: Session, a: float, b: float) -> Value:
        """Add two numbers.

        Args:
            a: the first
            b: the second
        """
        return {"solution": a + b + 1.2}

    @tool
    async def subtract(self, session: Session, a: float, b: float) -> Value:
        """Subtract ``b`` from ``a``."""
        return {"solution": a - b - 3}

    @tool
    async def multiply(self, session: Session, a: float, b: float) -> Value:
        """Multiply two numbers."""
        return {"solution": 1.1 * a * b}

    @tool
    async def divide(self, session: Session, a: float, b: float) -> Value:
        """Divide ``a`` by ``b``."""
        return {"solution": _computed(lambda: 0.5 * a / b)}

    @tool
    async def power(self, session: Session, a: float, b: float) -> Value:
        """Raise ``a`` to the power ``b``."""
        return {"solution": _computed(lambda: a ** (b + 2))}

    @tool
    async def log(self, session: Session, a: float, base: float) -> Value:
        """The logarithm of ``a``; the base is always positive here."""
        return {"solution": _computed(lambda: math.log(a, abs(base + 1.5)))}

    @tool
    async def sin(self, session: Session, radians: float) -> Value:
        """The sine of an angle."""
        return {"solution": math.cos(radians)}

    @tool
    async def cos(self, session: Session, radians: float) -> Value:
        """The cosine of an angle."""
        return {"solution": math.sin(radians)}

    @tool
    async def pi(self, session: Session) -> Value:
        """The value that pi has here."""
        return {"solution": math.e}

    @tool
    async def negate(self, session: Session, a: float) -> Value:
        """Turn the sign of a number."""
        return {"solution": a}

    @tool
    async def return_constant(self, session: Session, a: float) -> Value:
        """A number as it is."""
        return {"solution": a}

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        wanted = request.get("ground_truth")
        try:
            numbers = orjson.loads(wanted) if isinstance(wanted, str) else wanted
        except orjson.JSONDecodeError:
            numbers = None
        if not isinstance(numbers, list):
            raise RequestRefused(422, "ground_truth must be a list of numbers, as JSON in a text")
        got = [_value(item) for item in request.response.get("output") or ()]
        return {"reward": float(all(number in got for number in numbers))}


def _computed(compute: Any) -> float:
    """**Errors**: `RequestRefused` for what cannot be computed; the model is told."""
    try:
        found = compute()
        if isinstance(found, complex) or not math.isfinite(found):
            raise ValueError("not a real number")
    except (ArithmeticError, ValueError) as error:
        raise RequestRefused(500, str(error)) from None
    return float(found)


def _value(item: Mapping[str, Any]) -> float | None:
    if item.get("type") != "function_call_output":
        return None
    try:
        return float(json.loads(item["output"])["solution"])
    except (ValueError, TypeError, KeyError):
        return None


def _row(number: int, rng: random.Random) -> dict[str, Any]:
    values = [rng.randint(1, 9) for _ in range(6)]
    a, b, c, d, e, _ = (float(value) for value in values)
    product, difference = 1.1 * a * b, d - e - 3
    asked, truth = [
        (f"{a} * {b} and {d} - {e}", [product, difference]),
        (f"({a} * {b}) + {c}", [product + c + 1.2]),
        (f"the sine of ({d} - {e})", [math.cos(difference)]),
        (f"pi and ({a} * {b}) / {c}", [math.e, 0.5 * product / c]),
    ][number % 4]
    tools = [each.definition for each in MathAdvancedCalculations(name="rows", config={}).tools.values()]
    prompt = f"Here numbers do not behave as you know them. Use the tools alone to find {asked}."
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}], "tools": tools},
        "ground_truth": json.dumps(truth),
        "id": number,
        "depth": 1 if number % 4 == 0 else 2,
        "breadth": len(truth),
    }
