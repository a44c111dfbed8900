"""Multiple choice: one letter out of the row's options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._packaged import packaged_rows

__all__ = ["MultipleChoice"]

_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_LETTER = re.compile(r"^[^A-Za-z]*([A-Z])[^A-Za-z]*$")
_ANSWER_LINE = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)


class MultipleChoice(ResourcesServer):
    r"""A question with lettered options. Reward 1 for the letter of ``expected_answer``, else 0.

    A row has ``options`` (a list of one-entry objects, letter to text), ``expected_answer`` (a letter) and
    ``grading_mode``: ``strict_single_letter_boxed`` (the last ``\boxed{}`` holds the letter and no other),
    ``lenient_boxed`` (the letter, or the text of the option), ``lenient_answer_colon`` (the same after ``Answer:``).
    A letter that is not among the options, and a row without options, earn nothing.

    Source of the rule: NeMo Gym's ``mcqa``.
    """

    description = "Multiple-choice questions, answered with one boxed letter"
    domain = "knowledge"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("mcqa")

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        options = {letter: text for option in request.get("options") or () for letter, text in option.items()}
        mode = request.get("grading_mode") or "strict_single_letter_boxed"
        chosen = choose(output_text(request.response), options, mode)
        expected = str(request.get("expected_answer") or "").strip().upper()
        return {"reward": float(chosen is not None and chosen == expected), "extracted_answer": chosen}


def choose(text: str, options: Mapping[str, str], mode: str) -> str | None:
    """The option letter that ``text`` names under ``mode``, or ``None``."""
    if mode == "lenient_answer_colon":
        lines = _ANSWER_LINE.findall(text)
        return _letter(lines[-1].strip(), options) or _by_text(lines[-1], options) if lines else None
    boxes = _BOXED.findall(text)
    if not boxes:
        return None
    letter = _letter(boxes[-1], options)
    return letter if letter or mode == "strict_single_letter_boxed" else _by_text(boxes[-1], options)


def _letter(text: str, options: Mapping[str, str]) -> str | None:
    found = _LETTER.match(text)
    return found.group(1) if found and found.group(1) in options else None


def _by_text(text: str, options: Mapping[str, str]) -> str | None:
    wanted = " ".join(text.casefold().split()).strip(" .")
    return next((k for k, v in options.items() if " ".join(v.casefold().split()).strip(" .") == wanted), None)
