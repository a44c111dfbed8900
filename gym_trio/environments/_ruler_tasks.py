"""The thirteen kinds of task of RULER, generated.

What each kind hides and asks for is that of the paper, *RULER: What's the Real Context Size of Your Long-Context
Language Models?* (arXiv 2404.06654), its table of configurations; the texts are of this project's own making.
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Callable, Mapping, Sequence

import attrs

from ._haystack import haystack, two_words, vocabulary
from ._towns import draw_towns

__all__ = ["KINDS", "RulerTask"]

_NOISE = "The kettle is on. The street is wet. The cat has gone out. It will be back. "
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_REMEMBER = "Magic values are hidden in the text below. Remember them, for you will be asked."
_COMMON, _RARE, _TIMES_COMMON, _TIMES_RARE = 10, 3, 30, 3  # of the words to be counted, as in the paper
_ZIPF = 2.0  # the paper's exponent: a word's share falls with the square of its rank
_HOPS = 4


@attrs.frozen
class RulerTask:
    """A whole prompt, and the texts that a right reply contains."""

    prompt: str
    outputs: list[str]


def _number(rng: random.Random) -> str:
    return str(rng.randint(10**6, 10**7 - 1))


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


Draw = Callable[[random.Random], str]


def _distinct(rng: random.Random, draw: Draw, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[draw(rng)] = None
    return list(found)


def _needle(key: str, value: str) -> str:
    return f"One of the magic values for {key} is {value}."


def _noise(rng: random.Random, needles: Sequence[str], words: int) -> str:
    sentences = [f"{each.strip()}." for each in _NOISE.split(".") if each.strip()] * max(1, words // 17)
    places = sorted(rng.randint(0, len(sentences)) for _ in needles)
    for place, needle in reversed(list(zip(places, needles, strict=True))):
        sentences.insert(place, needle)
    return " ".join(sentences)


_HAYSTACKS: Mapping[str, Callable[[random.Random, Sequence[str], int], str]] = {"noise": _noise, "essay": haystack}


def _needles(
    hay: str, *, key: Draw = two_words, value: Draw = _number, keys: int = 1, values: int = 1, asked: int = 1
) -> Callable[[random.Random, int], RulerTask]:
    """``keys`` keys with ``values`` values each, in ``hay``, of which the values of ``asked`` keys are wanted.

    In the haystack ``needles`` the text is nothing but needles, as many as the words allow.
    """

    def make(rng: random.Random, words: int) -> RulerTask:
        count = max(keys, words // 9) if hay == "needles" else keys
        names = _distinct(rng, key, count)
        values_of = {name: _distinct(rng, value, values) for name in names}
        needles = [_needle(name, one) for name, found in values_of.items() for one in found]
        rng.shuffle(needles)
        text = " ".join(needles) if hay == "needles" else _HAYSTACKS[hay](rng, needles, words)
        wanted = rng.sample(names, asked)
        what = "What is the magic value" if values * asked == 1 else "What are all the magic values"
        prompt = f"{_REMEMBER}\n\n{text}\n\n{what} for {', '.join(wanted)} in the text?"
        return RulerTask(prompt, [one for name in wanted for one in values_of[name]])

    return make


def _variables(rng: random.Random, words: int) -> RulerTask:
    names = _distinct(rng, lambda rng: "".join(rng.sample(_LETTERS.upper(), 5)), _HOPS + 1)
    value = str(rng.randint(10000, 99999))
    needles = [f"VAR {names[0]} = {value}.", *(f"VAR {b} = VAR {a}." for a, b in itertools.pairwise(names))]
    text = _noise(rng, needles, words)
    prompt = f"Follow the assignments of variables that are hidden in the text below.\n\n{text}\n\n"
    return RulerTask(f"{prompt}Which variables have the value {value}? Name all {len(names)} of them.", names)


def _common_words(rng: random.Random, words: int) -> RulerTask:
    # A short text keeps the ratio of the two frequencies, which is what makes the task. Each number counts as a word.
    words //= 2
    common = min(_TIMES_COMMON, max(_COMMON, words // 20))
    rare = max(1, common * _TIMES_RARE // _TIMES_COMMON)
    others = max(_COMMON, (words - _COMMON * common) // rare)
    many = _COMMON + others > len(vocabulary()) // 2
    drawn = _distinct(rng, two_words if many else lambda rng: rng.choice(vocabulary()), _COMMON + others)
    listed = [word for number, word in enumerate(drawn) for _ in range(common if number < _COMMON else rare)]
    rng.shuffle(listed)
    text = " ".join(f"{number}. {word}" for number, word in enumerate(listed, 1))
    prompt = f"Below is a numbered list of words, in which some come up more often than others.\n\n{text}\n\n"
    return RulerTask(f"{prompt}Which {_COMMON} words are the most common in the list?", drawn[:_COMMON])


def _frequent_words(rng: random.Random, words: int) -> RulerTask:
    coded = _distinct(rng, lambda rng: "".join(rng.choices(_LETTERS, k=6)), 40)
    scale = words / sum((rank + 1) ** -_ZIPF for rank in range(len(coded)))
    counts = [int(scale * (rank + 1) ** -_ZIPF) for rank in range(len(coded))]
    for rank in (3, 2, 1, 0):  # however short the text, the first ranks must be told apart
        counts[rank] = max(counts[rank], counts[rank + 1] + 1)
    listed = [word for word, count in zip(["...", *coded], counts, strict=False) for _ in range(count)]
    rng.shuffle(listed)
    prompt = f"Below is a coded text, of which the dots '...' are no word.\n\n{' '.join(listed)}\n\n"
    return RulerTask(f"{prompt}Which three coded words come up most often?", coded[:3])


def _questions(linked: bool) -> Callable[[random.Random, int], RulerTask]:
    def make(rng: random.Random, words: int) -> RulerTask:
        towns = draw_towns(rng, words)
        question = towns.linked if linked else towns.simple
        prompt = f"Answer the question from these documents, with the answer alone.\n\n{towns.numbered()}\n\n"
        return RulerTask(f"{prompt}Question: {question.text}", list(question.answers))

    return make


KINDS: Mapping[str, Callable[[random.Random, int], RulerTask]] = {
    "niah_single_1": _needles("noise"),
    "niah_single_2": _needles("essay"),
    "niah_single_3": _needles("essay", value=_uuid),
    "niah_multikey_1": _needles("essay", keys=4),
    "niah_multikey_2": _needles("needles"),
    "niah_multikey_3": _needles("needles", key=_uuid, value=_uuid),
    "niah_multivalue": _needles("essay", values=4),
    "niah_multiquery": _needles("essay", keys=4, asked=4),
    "vt": _variables,
    "cwe": _common_words,
    "fwe": _frequent_words,
    "qa_1": _questions(linked=False),
    "qa_2": _questions(linked=True),
}
