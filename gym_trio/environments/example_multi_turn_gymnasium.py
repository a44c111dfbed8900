"""Several questions in a row, each asked after the answer to the one before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from ..errors import RequestRefused
from ..servers import GymnasiumServer, RequestBody, ResetAnswer, StepAnswer, output_text
from ._packaged import packaged_rows

__all__ = ["FollowUps", "MultiTurn"]


@attrs.define
class FollowUps:
    """The state of one session: how many follow-ups have been asked."""

    asked: int = 0


class MultiTurn(GymnasiumServer):
    """Follow-up questions after each answer. Reward 1 when the last answer contains ``expected_answer``, else 0.

    A row has ``follow_ups``, texts that are asked one after the other, and ``expected_answer``; upper and lower case
    are the same. Only the reply to the last question counts, and without an ``expected_answer`` there is no reward.

    Source of the rule: NeMo Gym's ``example_multi_turn_gymnasium``.
    """

    description = "Answer questions that build on each other"
    domain = "instruction_following"
    session_type = FollowUps

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("example_multi_turn_gymnasium")

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterable[str]:
        if not _are_texts(row.get("follow_ups") or []):
            yield "follow_ups: must be a list of texts"
        if not isinstance(row.get("expected_answer", ""), str):
            yield "expected_answer: must be a text"

    async def reset(self, session: FollowUps, row: RequestBody) -> ResetAnswer:
        problems = list(self.row_problems(row))
        if problems:
            raise RequestRefused(422, "; ".join(problems))
        session.asked = 0
        return None

    async def step(self, session: FollowUps, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        follow_ups = row.get("follow_ups") or []
        if session.asked < len(follow_ups):
            session.asked += 1
            return follow_ups[session.asked - 1], 0.0, False, False, {}
        expected = row.get("expected_answer") or ""
        found = bool(expected) and expected.lower() in output_text(response).lower()
        return None, float(found), True, False, {}


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
