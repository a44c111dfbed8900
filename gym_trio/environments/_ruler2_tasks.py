"""The twelve kinds of task of RULER 2, generated: three families, each of four levels.

Which rule judges which kind is that of NeMo Gym's ``ruler2`` benchmark; the texts are of this project's own making,
with sums in place of examination questions and invented towns in place of an encyclopedia.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ._haystack import haystack, magic_numbers, two_words
from ._towns import draw_towns

__all__ = ["KINDS"]

Made = tuple[str, dict[str, Any]]  # a prompt, and the keys of its row
_SIGNS: Mapping[str, Callable[[int, int], int]] = {"plus": int.__add__, "minus": int.__sub__, "times": int.__mul__}


@attrs.frozen
class Sum:
    """A question with four options."""

    key: str
    text: str
    options: tuple[str, ...]
    letter: str

    @property
    def answer(self) -> str:
        return self.options["ABCD".index(self.letter)]

    def listed(self) -> str:
        options = " ".join(f"({name}) {option}" for name, option in zip("ABCD", self.options, strict=True))
        return f"Question of {self.key}: {self.text} {options}"


def _sum(rng: random.Random, key: str, texts: set[str]) -> Sum:
    while True:
        sign, a, b = rng.choice(list(_SIGNS)), rng.randint(12, 99), rng.randint(12, 99)
        text = f"What is {a} {sign} {b}?"
        if text not in texts:
            break
    texts.add(text)
    right = _SIGNS[sign](a, b)
    options = [str(right), *(str(right + off) for off in rng.sample([-20, -10, -2, -1, 1, 2, 10, 20], 3))]
    rng.shuffle(options)
    return Sum(key, text, tuple(options), "ABCD"[options.index(str(right))])


def _sums(rng: random.Random, words: int, each: int) -> tuple[str, list[Sum]]:
    """A text of questions, ``each`` per key, and those of one key."""
    count = max(2, words // (17 * each))
    names: dict[str, None] = {}
    while len(names) < count:
        names[two_words(rng)] = None
    texts: set[str] = set()
    drawn = [_sum(rng, name, texts) for name in names for _ in range(each)]
    wanted = rng.choice(list(names))
    shuffled = rng.sample(drawn, len(drawn))
    return "\n".join(one.listed() for one in shuffled), [one for one in shuffled if one.key == wanted]


def _numbers(rng: random.Random, words: int, *, values: int) -> Made:
    needles, question, numbers = magic_numbers(rng, keys=4, values=values)
    return f"{haystack(rng, needles, words)}\n\n{question}", _soft(numbers)


def _soft(expected: list[str], match_type: str = "all") -> dict[str, Any]:
    return {"eval_type": "ruler2", "match_type": match_type, "expected_answer": expected}


def _copy_one(rng: random.Random, words: int) -> Made:
    text, [one] = _sums(rng, words, 1)
    return f"{text}\n\nRepeat the question of {one.key}, word for word, without its options.", _soft([one.text])


def _choose(rng: random.Random, words: int) -> Made:
    text, [one] = _sums(rng, words, 1)
    asked = f"Answer the question of {one.key} with the letter of the right option, in \\boxed{{}}."
    return f"{text}\n\n{asked}", {"eval_type": "multichoice", "expected_answer": one.letter}


def _choose_unnamed(rng: random.Random, words: int) -> Made:
    text, [one] = _sums(rng, words, 1)
    asked = (
        f"Find the question above that reads {one.text!r}, and answer with the letter of the right one of its options, "
        "in \\boxed{}. The options are not repeated here."
    )
    return f"{text}\n\n{asked}", {"eval_type": "multichoice", "expected_answer": one.letter}


def _copy_all(rng: random.Random, words: int) -> Made:
    text, found = _sums(rng, words, 3)
    asked = f"Repeat all {len(found)} questions of {found[0].key}, word for word, without their options."
    return f"{text}\n\n{asked}", _soft([one.text for one in found])


def _two_steps(rng: random.Random, words: int) -> Made:
    text, found = _sums(rng, words, 3)
    asked = (
        f"First repeat all {len(found)} questions of {found[0].key}. Then leave a line empty, and give the right "
        "answers, the numbers alone, in one last paragraph."
    )
    return f"{text}\n\n{asked}", _soft([one.answer for one in found], "2steps")


def _answer_all(rng: random.Random, words: int) -> Made:
    text, found = _sums(rng, words, 3)
    asked = f"Give the right answers to all {len(found)} questions of {found[0].key}, the numbers alone."
    return f"{text}\n\n{asked}", _soft([one.answer for one in found])


def _read(rng: random.Random, words: int, *, linked: bool, cite: bool = False, alike: bool = False) -> Made:
    towns = draw_towns(rng, words, alike=alike)
    question = towns.linked if linked else towns.simple
    how = "First copy the documents that answer the question, then answer it." if cite else "Answer in a few words."
    return f"{towns.numbered()}\n\n{how}\nQuestion: {question.text}", _soft(list(question.answers), "part")


KINDS: Mapping[str, Callable[[random.Random, int], Made]] = {
    "mk_niah_basic": lambda rng, words: _numbers(rng, words, values=1),
    "mk_niah_easy": _copy_one,
    "mk_niah_medium": _choose,
    "mk_niah_hard": _choose_unnamed,
    "mv_niah_basic": lambda rng, words: _numbers(rng, words, values=3),
    "mv_niah_easy": _copy_all,
    "mv_niah_medium": _two_steps,
    "mv_niah_hard": _answer_all,
    "qa_basic": lambda rng, words: _read(rng, words, linked=False, cite=True),
    "qa_easy": lambda rng, words: _read(rng, words, linked=False),
    "qa_medium": lambda rng, words: _read(rng, words, linked=True),
    "qa_hard": lambda rng, words: _read(rng, words, linked=True, alike=True),
}
