"""Blackjack: hit or stand until the hand ends."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ..servers import GymnasiumServer, RequestBody, ResetAnswer, StepAnswer, output_text
from ._packaged import packaged_rows

__all__ = ["Blackjack", "Hand", "value_of"]

RANKS = ("2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K", "A")
DEALER_STANDS_AT = 17
BEST = 21

_ACTION = re.compile(r"<action>\s*(hit|stand)\s*</action>", re.IGNORECASE)


@attrs.define
class Hand:
    """The state of one session: the two hands and what deals them."""

    player: list[str] = attrs.field(factory=list)
    dealer: list[str] = attrs.field(factory=list)
    cards: random.Random = attrs.field(factory=random.Random)


class Blackjack(GymnasiumServer):
    """Blackjack against a dealer. Reward 1 for a win, 0 for a draw, -1 for a loss; a step in between gives 0.

    The player and the dealer get two cards each, from a deck that never runs out. A reply says
    ``<action>hit</action>`` or ``<action>stand</action>``; the first one counts, and a reply without one stands. A hit
    above 21 loses. On a stand the dealer draws below 17. An ace counts 11, or 1 where 11 would be too much; face cards
    count 10.

    A row may have ``seed``, which fixes the cards; without it the rollout's id does, so that another try at the same
    rollout is dealt the same cards and another rollout of the row is not.

    Source of the rule: NeMo Gym's ``blackjack``.
    """

    description = "Play a hand of blackjack"
    domain = "games"
    session_type = Hand

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("blackjack")

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterable[str]:
        if not isinstance(row.get("seed"), int | str | None):
            yield "seed: must be a whole number or a text"

    async def reset(self, session: Hand, row: RequestBody) -> ResetAnswer:
        seed = row.get("seed", row.rollout_id)
        session.cards = random.Random(None if seed is None else f"blackjack:{seed}")
        session.player = [self._draw(session), self._draw(session)]
        session.dealer = [self._draw(session), self._draw(session)]
        return _observation(session)

    def _draw(self, session: Hand) -> str:
        return session.cards.choice(RANKS)

    async def step(self, session: Hand, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        found = _ACTION.search(output_text(response))
        if found is not None and found.group(1).lower() == "hit":
            session.player.append(self._draw(session))
            value = value_of(session.player)
            if value > BEST:
                return None, -1.0, True, False, {"result": "bust", "player": _shown(session.player), "value": value}
            return _observation(session), 0.0, False, False, {}
        while value_of(session.dealer) < DEALER_STANDS_AT:
            session.dealer.append(self._draw(session))
        return _settle(session)


def value_of(hand: Sequence[str]) -> int:
    """What a hand is worth: its aces count 11 as far as that stays within 21."""
    total = sum(10 if rank in "JQK" else 1 if rank == "A" else int(rank) for rank in hand)
    return total + 10 if "A" in hand and total + 10 <= BEST else total


def _settle(session: Hand) -> StepAnswer:
    player, dealer = value_of(session.player), value_of(session.dealer)
    if dealer > BEST or player > dealer:
        reward, result = 1.0, "win"
    elif player == dealer:
        reward, result = 0.0, "draw"
    else:
        reward, result = -1.0, "loss"
    info = {
        "result": result,
        "player": _shown(session.player),
        "player_value": player,
        "dealer": _shown(session.dealer),
        "dealer_value": dealer,
    }
    return None, reward, True, False, info


def _shown(hand: Sequence[str]) -> str:
    return f"[{', '.join(hand)}]"


def _observation(session: Hand) -> str:
    return (
        f"You hold {_shown(session.player)}, which makes {value_of(session.player)}.\n"
        f"The dealer's open card is {session.dealer[0]}.\n"
        "Answer with <action>hit</action> or <action>stand</action>."
    )
