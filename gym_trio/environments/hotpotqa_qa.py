"""Short answers to questions, found in a JSON object."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import orjson

from .. import metrics
from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._packaged import packaged_rows
from ._reply import token_means
from ._surface_forms import even, surface_forms, unreliable
from ._towns import draw_towns

__all__ = ["HotpotQa", "HotpotQaSettings", "answer_in", "f1_of", "is_named", "is_named_strictly"]

GENERATED = 43  # rows about invented towns, after those about the world

_FENCED = re.compile(r"```(?:json)?\s*(\{.*?\})\s*```", re.DOTALL)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED = ("yes", "no", "noanswer")
_SCORES = ("answer_em", "answer_f1", "is_correct", "is_correct_strict")


@attrs.frozen(kw_only=True)
class HotpotQaSettings:
    """The key of a ``hotpotqa_qa`` block: metrics once more without tasks whose answers cannot be searched for."""

    report_filtered_metrics: bool = True


class HotpotQa(ResourcesServer):
    """A question with a short answer. Reward 1 when the answer names ``expected_answer``, strictly, else 0.

    The answer is ``answer`` of the last JSON object in the text that has one (fenced objects first), else the whole
    text. It names the expected one when it holds one of its surface forms (without article, quotes or brackets,
    numbers as digits or words, ...). Strictly: forms of at most four characters must stand as a word, and an answer of
    more than 80 characters must have the form among its first 40. The result also has the lenient match, exact match
    and token F1 in the manner of SQuAD, and whether the expected answer is one that cannot be searched for.

    Source of the rule: NeMo Gym's ``hotpotqa_qa``.
    """

    description = "Questions with short answers in a JSON object"
    domain = "knowledge"
    settings_type = HotpotQaSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        yield from packaged_rows("hotpotqa_qa")
        for number in range(GENERATED):
            yield _row(random.Random(f"hotpotqa_qa:{number}"), number)

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        answer = answer_in(output_text(request.response))
        expected = str(request.get("expected_answer") or "")
        forms = surface_forms(expected)
        reason = unreliable(expected)
        strict = float(is_named_strictly(forms, answer))
        return {
            "reward": strict,
            "extracted_answer": answer or None,
            "answer_em": float(_plain(answer) == _plain(expected)),
            "answer_f1": f1_of(answer, expected),
            "is_correct": float(is_named(forms, answer)),
            "is_correct_strict": strict,
            "gt_should_remove": bool(reason),
            "gt_remove_reason": reason,
        }

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """pass@k and majority of all scores, and again over the tasks whose answer can be searched for."""
        found = metrics.pass_majority_metrics(tasks, _scores, "extracted_answer")
        if not self.settings.report_filtered_metrics:
            return found
        kept = [task for task in tasks if task and not _is_unreliable(task)]
        filtered = metrics.pass_majority_metrics(kept, _scores, "extracted_answer")
        return {
            **found,
            **{f"filtered_{name}": value for name, value in filtered.items() if name != "per_sample_aggregate"},
            "filtered_num_tasks": len(kept),
            "unfiltered_num_tasks": len(tasks),
        }

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The token means, and the scores at the largest k, of all tasks and of the filtered ones."""
        chosen = token_means(agent_metrics)
        for prefix in ("", "filtered_"):
            for name in ("pass@1[avg-of-{k}]", "pass@{k}", "majority@{k}"):
                chosen |= metrics.highest_k_metrics(agent_metrics, prefix + name, score_names=_SCORES)
        return chosen


def _scores(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(row[name]) for name in _SCORES if name in row}


def _is_unreliable(task: Sequence[Mapping[str, Any]]) -> bool:
    flags = [row["gt_should_remove"] for row in task if "gt_should_remove" in row]
    if flags:
        return any(flags)
    # A task none of whose rollouts ran has no flag; what it expects says the same.
    expected = next((row["expected_answer"] for row in task if row.get("expected_answer")), "")
    return bool(unreliable(str(expected)))


def answer_in(text: str) -> str:
    """The answer that ``text`` gives: see `HotpotQa`."""
    text = text.strip()
    for candidates in (_FENCED.findall(text), list(_objects(text))):
        for candidate in reversed(candidates):
            answer = _answer_of(candidate)
            if answer is not None:
                return answer
    return text


def _answer_of(candidate: str) -> str | None:
    try:
        parsed = orjson.loads(candidate)
    except orjson.JSONDecodeError:
        return None
    return str(parsed["answer"]) if isinstance(parsed, dict) and "answer" in parsed else None


def _objects(text: str) -> Iterator[str]:
    """Each outermost pair of braces with what is between; nothing behind a brace that is never closed."""
    depth = start = 0
    for position, sign in enumerate(text):
        if sign == "{":
            start = start if depth else position
            depth += 1
        elif sign == "}" and depth:
            depth -= 1
            if not depth:
                yield text[start : position + 1]


def _plain(text: str) -> str:
    """In lower case, without punctuation and articles, single blanks."""
    bare = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def f1_of(answer: str, expected: str) -> float:
    """How the words of two texts overlap; yes, no and noanswer agree with themselves alone."""
    answer, expected = _plain(answer), _plain(expected)
    if answer != expected and (answer in _CLOSED or expected in _CLOSED):
        return 0.0
    given, wanted = answer.split(), expected.split()
    common = (Counter(given) & Counter(wanted)).total()
    if not common:
        return 0.0
    precision, recall = common / len(given), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def is_named(forms: Iterable[str], answer: str) -> bool:
    """Does ``answer`` hold one of ``forms``?"""
    text = even(answer.lower())
    return any(even(form.lower()) in text for form in forms)


def is_named_strictly(forms: Iterable[str], answer: str) -> bool:
    """As `is_named`, with short forms as words only and, in long answers, near the start."""
    text = even(answer.lower())
    return any(_stands(even(form.lower()), text) for form in forms)


def _stands(form: str, text: str) -> bool:
    if not form or form not in text:
        return False
    if len(form) <= 4 and not re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text):
        return False
    return len(text) <= 80 or text.find(form) <= 40


def _row(rng: random.Random, number: int) -> dict[str, Any]:
    towns = draw_towns(rng, words=400)
    asked = towns.linked
    ask = 'Give your answer as a JSON object of the form {"answer": "..."} and nothing else.'
    prompt = f"{towns.numbered()}\n\n{asked.text}\n\n{ask}"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "question": asked.text,
        "expected_answer": asked.answers[0],
        "id": f"towns-{number}",
        "type": "bridge",
        "level": "medium",
    }
