"""Graduate-level questions with four options, answered with a letter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import metrics
from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._packaged import packaged_rows
from ._reply import token_means

__all__ = ["GpqaDiamond", "letter_in"]

_BOX = re.compile(r"\\boxed\{([^}]*)\}")
_CAPITAL = re.compile(r"\b[A-Z]\b")
_ANSWER = re.compile(r"[*_]{0,2}answer[*_]{0,2}\s*:[\s*_]{0,2}\s*([A-Z])(?![a-zA-Z0-9])", re.IGNORECASE)


class GpqaDiamond(ResourcesServer):
    r"""A hard question with lettered options. Reward 1 for the letter of ``expected_answer``, else 0.

    A row has ``options`` (a list of one-entry objects, letter to text) and ``expected_answer`` (a letter). The answer
    is in the last ``\boxed{}``: its text when that is one capital letter, else the last capital that stands alone in
    it; without one there, the letter after the last ``Answer:`` (bold or not, in either case). With options, a letter
    that is none of theirs is no answer. A row may have ``template_metadata`` with ``output_regex``: its last match,
    in either case, comes before all that, as a letter or as the text of an option.

    Source of the rule: NeMo Gym's ``gpqa_diamond``.
    """

    description = "Hard science questions, answered with a letter"
    domain = "knowledge"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("gpqa_diamond")

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        text = output_text(request.response).strip()
        options = {
            letter.upper(): str(words)
            for option in request.get("options") or ()
            for letter, words in option.items()
            if words is not None
        }
        pattern = (request.get("template_metadata") or {}).get("output_regex")
        found = _by_pattern(text, pattern, options) if pattern else None
        if found is None:
            found = letter_in(text)
            if options and found not in options:
                found = None
        expected = str(request.get("expected_answer") or "").strip().upper()
        return {
            "reward": float(bool(expected) and found == expected),
            "expected_answer": expected,
            "extracted_answer": found,
        }

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """pass@k and majority of the letters."""
        return metrics.pass_majority_metrics(tasks, answer_key="extracted_answer")

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The token means, and pass@k, its average and the majority at the largest k."""
        chosen = token_means(agent_metrics)
        for name in ("pass@1[avg-of-{k}]", "pass@{k}", "majority@{k}"):
            chosen |= metrics.highest_k_metrics(agent_metrics, name)
        return chosen


def letter_in(text: str) -> str | None:
    """The letter that ``text`` answers with, or ``None``: see `GpqaDiamond`."""
    boxes = _BOX.findall(text)
    if boxes:
        inner = boxes[-1].strip()
        if len(inner) == 1 and inner.isupper():
            return str(inner)
        if capitals := _CAPITAL.findall(inner):
            return str(capitals[-1])
    answers = _ANSWER.findall(text)
    return str(answers[-1]).upper() if answers else None


def _by_pattern(text: str, pattern: str, options: Mapping[str, str]) -> str | None:
    try:
        matches = list(re.finditer(pattern, text, re.IGNORECASE))
    except re.error:
        return None
    if not matches:
        return None
    last = matches[-1]
    found = unicodedata.normalize("NFKC", (last.group(1) if last.re.groups else last.group()) or "").strip().upper()
    if len(found) == 1 and found.isalpha():
        return found
    wanted = " ".join(found.lower().split())
    return next((letter for letter, words in options.items() if " ".join(words.lower().split()) == wanted), None)
