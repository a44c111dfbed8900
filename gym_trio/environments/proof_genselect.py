"""Two proofs, of which the better one is to be chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._packaged import packaged_rows

__all__ = ["ProofGenSelect", "ProofGenSelectSettings", "choice_in"]

_OPEN, _CLOSE, _THOUGHT = "<best_solution>", "</best_solution>", "</think>"


@attrs.frozen(kw_only=True)
class ProofGenSelectSettings:
    """The key of a ``proof_genselect`` block: whether a reply without an end of its thoughts is no answer."""

    assert_think_end: bool = False


class ProofGenSelect(ResourcesServer):
    """Which of two proofs is right? Reward 1 for the number ``correct_index`` (1 or 2), else 0.

    A row has ``problem``, ``proof_1``, ``proof_2`` and ``correct_index``. A reply names its choice between
    ``<best_solution>`` tags, after its thoughts where it has any; the first pair of tags counts, and it must hold 1
    or 2 and nothing else.

    Source of the rule: NeMo Gym's ``proof_genselect``.
    """

    description = "Choose the correct one of two proofs"
    domain = "math"
    settings_type = ProofGenSelectSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("proof_genselect")

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterable[str]:
        if row.get("correct_index") not in (1, 2):
            yield "correct_index: must be 1 or 2"

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        chosen, why = choice_in(output_text(request.response), self.settings.assert_think_end)
        reward = float(chosen is not None and chosen == request.get("correct_index"))
        return {"reward": reward, "selected_index": chosen, "reason": why}


def choice_in(text: str, assert_think_end: bool = False) -> tuple[int | None, str | None]:
    """The number that ``text`` chooses, or ``None`` and why there is none."""
    if assert_think_end and _THOUGHT not in text:
        return None, "missing_think_end"
    said = text.rpartition(_THOUGHT)[2]
    inner = said.partition(_OPEN)[2].partition(_CLOSE)[0]
    if _OPEN not in said or _CLOSE not in said:
        return None, "missing_best_solution_tag"
    try:
        number = int(inner)
    except ValueError:
        return None, "invalid_best_solution_value"
    return (number, None) if number in (1, 2) else (None, "best_solution_out_of_range")
