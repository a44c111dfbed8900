"""Documents about invented towns and their founders, and questions that they answer."""

from __future__ import annotations

import random

import attrs

__all__ = ["Question", "Towns", "draw_towns"]

_FIRST = ("Al", "Bren", "Cor", "Dun", "El", "Fal", "Gor", "Hol", "Is", "Kel", "Lor", "Mar", "Nor", "Os", "Pel", "Quin")
_LAST = ("bach", "dale", "fjord", "gard", "ham", "mere", "moor", "ness", "stead", "thorpe", "vik", "wick")
_MIDDLES = ("", "a", "en", "i", "o", "er", "um")
_MIDDLE = "ABCDEFGHIJKLMNOPRSTUVW"
_GIVEN = ("Agnes", "Bram", "Clara", "Dario", "Edda", "Felix", "Greta", "Hanno", "Ilse", "Jonas", "Karin", "Lars")
_FAMILY = ("Abend", "Brandt", "Czerny", "Dahl", "Ekman", "Ferrer", "Grieg", "Holm", "Iversen", "Jansson", "Keller")
_RIVERS = (
    "Arvenne",
    "Belisse",
    "Cannock",
    "Dorrow",
    "Elster",
    "Fennick",
    "Glanau",
    "Hasel",
    "Jeetzel",
    "Kyllen",
    "Ledau",
)
# No answer is a part of a common word: it would be found where nobody has given it.
_GOODS = (
    "parchment",
    "barges",
    "violins",
    "clocks",
    "cheese",
    "lanterns",
    "candles",
    "saddles",
    "carpets",
    "mirrors",
    "buttons",
)
_TRADES = ("a surveyor", "a midwife", "a printer", "a miller", "a botanist", "a ferryman", "a notary", "an engraver")
_PLAYED = (
    "the cello",
    "the oboe",
    "the zither",
    "the accordion",
    "the hurdy-gurdy",
    "the trumpet",
    "the mandolin",
    "the dulcimer",
)


@attrs.frozen
class Question:
    """A question, the ways to say its answer, and which documents answer it."""

    text: str
    answers: tuple[str, ...]
    documents: tuple[int, ...]


@attrs.frozen
class Towns:
    """``documents`` in their order; ``simple`` asks for what one of them says, ``linked`` for what takes two."""

    documents: tuple[str, ...]
    simple: Question
    linked: Question

    def numbered(self) -> str:
        """The documents as one text, numbered from 1."""
        return "\n\n".join(f"Document {number}:\n{text}" for number, text in enumerate(self.documents, 1))


def draw_towns(rng: random.Random, words: int, *, alike: bool = False) -> Towns:
    """Documents of about ``words`` words. With ``alike`` the towns' names begin like that of the one asked for."""
    every = [f"{given} {middle}. {family}" for given in _GIVEN for middle in _MIDDLE for family in _FAMILY]
    count = min(max(2, words // 58), len(every))  # a town and its founder have about 58 words
    names = _names(rng, count, alike)
    people = rng.sample(every, count)
    made = [_document(rng, *each) for each in zip(names, people, strict=True)]
    texts = [text for town, founder, _ in made for text in (town, founder)]
    order = list(range(len(texts)))
    rng.shuffle(order)
    place = {number: position for position, number in enumerate(order)}
    facts = made[0][2]  # the first is the one asked for: its name is drawn like all others, and its place is random
    name, (kind, said) = names[0], rng.choice(list(facts["town"].items()))
    simple = Question(_SIMPLE[kind].format(name), said, (place[0],))
    kind, said = rng.choice(list(facts["founder"].items()))
    linked = Question(_LINKED[kind].format(name), said, (place[0], place[1]))
    return Towns(tuple(texts[number] for number in order), simple, linked)


_SIMPLE = {
    "year": "In which year was {} founded?",
    "river": "Which river runs through {}?",
    "goods": "What is {} known for making?",
}
_LINKED = {
    "trade": "What was the profession of the person who founded {}?",
    "plays": "Which instrument did the founder of {} play?",
    "born": "In which year was the founder of {} born?",
}


def _names(rng: random.Random, count: int, alike: bool) -> list[str]:
    starts = rng.sample(_FIRST, len(_FIRST))
    pools = [starts[:1], starts[1:]] if alike else [starts]
    found: list[str] = []
    for pool in pools:  # where too few names begin alike for so long a text, others fill it
        every = dict.fromkeys(f"{a}{b}{c}{d}" for a in pool for b in _MIDDLES for c in _MIDDLES for d in _LAST)
        found += rng.sample(list(every), min(count - len(found), len(every)))
    return found


def _document(rng: random.Random, town: str, founder: str) -> tuple[str, str, dict[str, dict[str, tuple[str, ...]]]]:
    year, river, goods = rng.randint(1200, 1880), rng.choice(_RIVERS), rng.choice(_GOODS)
    trade, plays, born = rng.choice(_TRADES), rng.choice(_PLAYED), year - rng.randint(25, 60)
    about_town = (
        f"{town} lies on the river {river}. It was founded in {year} by {founder} and is known for its {goods}, which "
        "are sold as far away as the coast."
    )
    about_founder = (
        f"{founder}, born in {born}, was {trade} by profession and played {plays} in the evenings. Of the house where "
        "that was heard only a gate is left."
    )
    facts = {
        "town": {"year": (str(year),), "river": (river, f"the {river}"), "goods": (goods,)},
        "founder": {
            "trade": (trade.split(" ", 1)[1],),
            "plays": (plays.split(" ", 1)[1], plays),
            "born": (str(born),),
        },
    }
    return about_town, about_founder, facts
