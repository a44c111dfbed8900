"""Short answers compared with a given string, evenly."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import RequestRefused
from ..servers import RequestBody, ResourcesServer, Session
from ._packaged import packaged_rows
from ._reply import text_parts
from ._states import STATES

__all__ = ["StringMatch", "extract", "grade"]

_NEARLY = 0.98

_BOX = re.compile(r"\\boxed\{")
_TEXT = re.compile(r"\\text\{(.*)\}", re.DOTALL)
_ANSWER = re.compile(r"(?:final\s+answer|answer)\s*[:：]\s*(.+)", re.IGNORECASE)
_UNITS = re.compile(r"\^\{?\\circ\}?|\\circ|°|cm[²³]?|mm|km|m[²³]?|kg")
_LATEX_COMMANDS = tuple(
    "\\" + name + "{"
    for name in (
        *("boxed", "text", "textbf", "textit", "texttt", "mathrm", "mathbf", "mathit"),
        *("mathsf", "mathbb", "mathcal", "emph", "url"),
    )
)
_MATH_SIGNS = str.maketrans(
    {
        "°": "^\\circ",
        **{sign: f"^{digit}" for digit, sign in zip("23456789", "²³⁴⁵⁶⁷⁸⁹", strict=True)},
        "√": "\\sqrt",
        "﹣": "-",
        "﹢": "+",
        "﹦": "=",
        "﹤": "<",
        "﹥": ">",
        "：": ":",
        "π": "\\pi",
    }
)


class StringMatch(ResourcesServer):
    r"""A short answer. Reward 1 when it equals ``expected_answer`` in one of several even forms, else 0.

    ``extraction_mode`` says where the answer is: ``boxed`` (the last complete ``\boxed{}``), ``final_answer`` (the
    default: after the last ``Answer:`` or ``Final answer:``, else boxed), ``last_line`` or ``full_response``. With
    ``case_sensitive`` the two strings must be the same but for blanks around them. Otherwise they are compared after
    Unicode normalisation, in lower case, without outer quotes and final punctuation: as they are, as numbers, without
    thousands separators, without LaTeX commands, as lists, with names of states of the USA shortened, without units. A
    number within about one per cent of the expected one earns 0.98.

    Source of the rule: NeMo Gym's ``string_match``.
    """

    description = "Short answers compared with a given string"
    domain = "other"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("string_match")

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        mode = request.get("extraction_mode") or "final_answer"
        if mode not in _EXTRACTORS:
            raise RequestRefused(422, f"extraction_mode must be one of {', '.join(_EXTRACTORS)}, not {mode!r}")
        expected = str(request.get("expected_answer") or "")
        found = extract("\n".join(text_parts(request.response)).strip(), mode)
        if found is None or not expected:
            reward = 0.0
        elif request.get("case_sensitive"):
            reward = float(found.strip() == expected.strip())
        else:
            reward = grade(found, expected)
        return {"reward": reward, "extracted_answer": found}


def extract(text: str, mode: str) -> str | None:
    """The answer in ``text``, or ``None``."""
    return _EXTRACTORS[mode](text)


def _boxed(text: str) -> str | None:
    closings = _closings(text)
    for start in reversed([match.end() for match in _BOX.finditer(text)]):
        end = closings.get(start)
        if end is not None:
            inner = text[start:end].strip()
            while wrapped := _TEXT.fullmatch(inner):
                inner = wrapped.group(1).strip()
            return inner.strip()
    return None


def _without(text: str, command: str) -> str:
    """``text`` less each ``command`` and the brace that closes it; one that is never closed goes alone."""
    closings = _closings(text)
    kept, place = [], 0
    cuts = []
    for match in re.finditer(re.escape(command), text):
        cuts.append(match.span())
        if (end := closings.get(match.end())) is not None:
            cuts.append((end, end + 1))
    for start, end in sorted(cuts):
        kept.append(text[place:start])
        place = end
    return "".join([*kept, text[place:]])


def _closings(text: str) -> dict[int, int]:
    """Where each brace is closed, by the place behind the brace; in one pass, however many are not."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for match in re.finditer("[{}]", text):
        if match[0] == "{":
            opened.append(match.end())
        elif opened:
            found[opened.pop()] = match.start()
    return found


def _final_answer(text: str) -> str | None:
    found = _ANSWER.findall(text)
    return found[-1].strip().removesuffix(".").strip().rstrip(".") if found else _boxed(text)


def _last_line(text: str) -> str | None:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), None)


_EXTRACTORS: Mapping[str, Callable[[str], str | None]] = {
    "boxed": _boxed,
    "final_answer": _final_answer,
    "last_line": _last_line,
    "full_response": lambda text: text.strip() or None,
}


def grade(answer: str, expected: str) -> float:
    """1 when the two agree in some even form, 0.98 when they are numbers that nearly agree, else 0."""
    answer, expected = _even(answer), _even(expected)
    if any(form(answer) == form(expected) for form in _FORMS):
        return 1.0
    if _nearness(answer, expected) > _NEARLY:
        return _NEARLY
    answer, expected = _without_units(answer), _without_units(expected)
    if answer == expected:
        return 1.0
    return _NEARLY if _nearness(answer, expected) > _NEARLY else 0.0


def _even(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    text = text.lower()
    return text.rstrip(".!?") or text


def _as_number(text: str) -> str:
    bare = text.replace("\\%", "").replace("\\$", "").replace("$", "").strip()
    try:
        return str(float(bare))
    except ValueError:
        return text


def _without_separators(text: str) -> str:
    return re.sub(r"(\d+),(\d+)", r"\1\2", text).replace("\\%", "%")


def _without_latex(text: str) -> str:
    for command in _LATEX_COMMANDS:
        while command in text:  # what is left may make another of it
            text = _without(text, command)
    for sign in ("\\(", "\\)", "\\[", "\\]", "$"):
        text = text.replace(sign, "")
    return " ".join(text.split())


def _as_list(text: str) -> str:
    joined = text.replace(",", " ").replace(";", " ").replace("and", " ").replace("or", " ")
    # What shrinks by more than a tenth was not a list but words with these letters in them.
    return text if len(joined) < 0.9 * len(text) else " ".join(joined.split())


def _with_short_states(text: str) -> str:
    for name, short in STATES:
        text = text.replace(name, short)
    return _as_list(text).lower()


_FORMS: Sequence[Callable[[str], str]] = (
    str,
    _as_number,
    _without_separators,
    _without_latex,
    _as_list,
    _with_short_states,
)


def _without_units(text: str) -> str:
    return _UNITS.sub("", _without_latex(text).translate(_MATH_SIGNS)).strip()


def _nearness(answer: str, expected: str) -> float:
    """How near two numbers are: (1 − relative error)², never below 0; 0 for what is no number."""
    try:
        value, right = float(_bare_number(answer)), float(_bare_number(expected))
    except ValueError:
        return 0.0
    return max(0.0, 1.0 - abs(value - right) / max(abs(right), 1e-9)) ** 2


def _bare_number(text: str) -> str:
    for sign in "$£€%,":
        text = text.replace(sign, "")
    return _UNITS.sub("", text.translate(_MATH_SIGNS)).replace("\\%", "").replace("\\$", "").strip()
