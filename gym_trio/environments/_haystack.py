"""Filler text with sentences hidden in it, for environments of long contexts."""

from __future__ import annotations

import functools
import importlib.resources
import random
from collections.abc import Sequence

__all__ = ["haystack", "magic_numbers", "two_words", "vocabulary"]

_WHO = ("The ferry", "A painter", "The old clock", "Our neighbour", "The council", "A flock of geese", "The baker")
_WHAT = ("waited for", "went past", "told nobody of", "walked around", "heard about", "forgot", "looked at")
_WHICH = ("the harbour", "the narrow bridge", "a field of rye", "the second train", "the winter market", "the mill")
_WORDS = ("amber", "otter", "lantern", "cedar", "violet", "marble", "falcon", "harbor", "meadow", "copper")


def haystack(rng: random.Random, needles: Sequence[str], words: int) -> str:
    """A text of about ``words`` words with the ``needles`` in it, in their order."""
    sentences = [f"{rng.choice(_WHO)} {rng.choice(_WHAT)} {rng.choice(_WHICH)}." for _ in range(max(1, words // 7))]
    places = sorted(rng.randint(0, len(sentences)) for _ in needles)
    for place, needle in reversed(list(zip(places, needles, strict=True))):
        sentences.insert(place, needle)
    return " ".join(sentences)


@functools.cache
def vocabulary() -> tuple[str, ...]:
    """Some hundred common words of five letters."""
    return tuple(importlib.resources.files(__package__).joinpath("data", "wordle_words.txt").read_text().split())


def two_words(rng: random.Random) -> str:
    """Two common words as one key."""
    return "-".join(rng.sample(vocabulary(), 2))


def magic_numbers(rng: random.Random, *, keys: int, values: int) -> tuple[list[str], str, list[str]]:
    """Sentences that give numbers to words, a question about one of the words, and the numbers it has."""
    names = ["-".join(pair) for pair in rng.sample([(a, b) for a in _WORDS for b in _WORDS if a != b], keys)]
    numbers = {name: [str(each) for each in rng.sample(range(10**6, 10**7), values)] for name in names}
    needles = [f"The number of {name} is {number}." for name in names for number in numbers[name]]
    rng.shuffle(needles)
    asked = rng.choice(names)
    plural = "Which numbers does the text give" if values > 1 else "Which number does the text give"
    return needles, f"{plural} for {asked}?", numbers[asked]
