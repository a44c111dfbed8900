"""The ways in which a short answer may be written."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["even", "surface_forms", "unreliable"]

_LONGEST = 40
_SHORTEST = 3
_ARTICLES = ("the ", "a ", "an ")
_CARDINALS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_NUMBERS = {
    **{word: str(number) for number, word in enumerate(_CARDINALS.split(), 1)},
    "first": "1st",
    "second": "2nd",
    "third": "3rd",
    "fourth": "4th",
    "fifth": "5th",
    "nineteenth": "19th",
    "twentieth": "20th",
    "twenty-first": "21st",
}
_WORDS = {digits: word for word, digits in _NUMBERS.items()}
# Words that a proper name does not consist of.
_LITTLE_WORDS = (
    "the a an of in on at for and or to by is was are were be been with from that this it its his her my our their no "
    "not but if as into about than then"
)
_FUNCTION_WORDS = frozenset(_LITTLE_WORDS.split())
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u202f\u00a0\u2009\u200a\u2002\u2003", " "),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015", "-"),
        **dict.fromkeys("\u2018\u2019", "'"),
        **dict.fromkeys("\u201c\u201d", '"'),
    }
)


def even(text: str) -> str:
    """With plain blanks, hyphens and quotes, single blanks, and none around."""
    return re.sub(" {2,}", " ", text.translate(_SIGNS)).strip()


def surface_forms(answer: str) -> list[str]:
    """The forms of ``answer``, itself among them; other forms have at least three characters or are digits."""
    forms = {answer, *_variants(answer)}
    forms |= {bare for form in forms if (bare := _without_article(form)) is not None}
    tidy = {re.sub(r"\s+", " ", form.strip()) for form in forms}
    return sorted(f for f in tidy if f and (len(f) >= _SHORTEST or f == answer.strip() or f.isdigit()))


def _without_article(text: str) -> str | None:
    return next((text[len(article) :] for article in _ARTICLES if text.lower().startswith(article)), None)


def _variants(answer: str) -> Iterator[str]:
    yield _without_article(answer) or answer
    yield answer.replace('"', "").replace("\u201c", "").replace("\u201d", "").strip()
    if "(" in answer:
        yield re.sub(r"\s+", " ", re.sub(r"\s*\([^)]*\)\s*", " ", answer).strip())
        yield from (inner for found in re.findall(r"\(([^)]+)\)", answer) if len(inner := found.strip()) > 1)
    for table in (_NUMBERS, _WORDS):
        if (word := answer.lower().strip()) in table:
            yield table[word]
    yield _without_thousands(answer)
    if answer and answer[-1] in ".,;:!?":
        yield answer[:-1].rstrip()
    undotted = re.sub(r"(?<!\d)\.(?!\d)", "", answer)
    if len(undotted) > 1:
        yield undotted
    if not answer.startswith("-"):
        yield answer.replace("-", " ")
    yield answer.replace(" & ", " and ")
    if (place := answer.lower().find(" and ")) >= 0:
        yield f"{answer[:place]} & {answer[place + 5 :]}"


def _without_thousands(text: str) -> str:
    while (shorter := re.sub(r"(\d),(\d{3})", r"\1\2", text)) != text:
        text = shorter
    return text


def unreliable(answer: str) -> str:
    """Why searching for ``answer`` in a text says little: ``gt_too_long``, ``multi_word_name``, or ``""``."""
    if len(answer) > _LONGEST:
        return "gt_too_long"
    words = answer.strip().rstrip(".").split()
    named = [word for word in words if word[0].isupper() and word.lower() not in _FUNCTION_WORDS]
    if (len(words) in (3, 4) and len(named) == len(words)) or (len(words) in (5, 6) and len(named) >= 3):
        return "multi_word_name"
    return ""
