"""What a verifier may return, and its wire form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from ..errors import FailureKind, RolloutFailure, Stage

__all__ = ["VERDICT_HEADER", "VERDICT_KEY", "finite_number", "verdict_headers", "verify_response", "whole_response"]

# Sent with a verification by who has the row and the response, and needs only what the verifier has to say. An
# environment that grants it says so under the key; one of other make passes the header over and answers with all.
VERDICT_HEADER = "x-ng-verdict-only"
VERDICT_KEY = "_ng_verdict_only"

# Said of a rollout beside its named rewards; a flag among them is no reward of 1.
BESIDE_REWARDS = ("mask_sample", "mask_reason", "failure_kind", "failure_reason")


def verify_response(answer: Any) -> dict[str, Any]:
    """What a verifier returned, as the keys of a verify response.

    **Errors**: `RolloutFailure` (``verifier_error``) when it is not a finite number, named rewards, or a mapping with
    a finite ``reward``.
    """
    if not isinstance(answer, float) and isinstance(answer, Mapping):  # nearly always a float, and cheaper to find out
        if "reward" in answer:
            return {**answer, "reward": _finite(answer["reward"])}
        components = {name: _finite(value) for name, value in answer.items() if name not in BESIDE_REWARDS}
        if components:
            beside = {name: answer[name] for name in BESIDE_REWARDS if name in answer}
            return {**beside, "reward": _finite(sum(components.values())), "reward_components": components}
    return {"reward": _finite(answer)}


def verdict_headers(asked: Mapping[str, Any]) -> dict[str, str]:
    """What asks for the verdict on ``asked`` alone: nothing does for a row with the key, which would pass for one."""
    return {} if VERDICT_KEY in asked else {VERDICT_HEADER: "1"}


def whole_response(answer: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The verify response to ``asked``, the row with its response, where ``answer`` may be the verdict alone."""
    if answer.get(VERDICT_KEY) is not True or VERDICT_KEY in asked:
        return answer
    del answer[VERDICT_KEY]
    return {**asked, **answer}


def finite_number(value: Any) -> float | None:
    """``value`` as a reward; ``None`` for what can be none."""
    # Real: also what other packages make, such as a numpy.float32 or a Fraction.
    try:
        return float(value) if isinstance(value, (float, Real)) and math.isfinite(value) else None
    except OverflowError:
        return None


def _finite(value: Any) -> float:
    found = finite_number(value)
    if found is not None:
        return found
    raise RolloutFailure(
        FailureKind.VERIFIER_ERROR,
        f"the verifier returned {value!r:.500}, which is not a finite number",
        stage=Stage.VERIFICATION,
        terminal=True,
    )
