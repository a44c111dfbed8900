"""Long contexts, scored softly: by what is found, or how near it comes."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from .. import metrics
from ..config import positive_int, structure
from ..errors import RequestRefused
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, output_text
from ._reply import token_means
from ._ruler2_tasks import KINDS
from ._spans import without_spans

__all__ = ["Ruler2", "Ruler2Settings", "choice_in", "nearness", "word_errors"]

TASKS = tuple(KINDS)
_CONTROLS = re.compile(r"[\x00-\x1f]")
_DOCUMENT = (re.compile(r"Document \d+:"), re.compile("\n\n"))
_FINAL = re.compile(r"The final answer is (.+)$", re.MULTILINE)
_CAPITAL = re.compile(r"\b[A-Z]\b")
_ANSWER = re.compile(r"[*_]{0,2}answer[*_]{0,2}\s*:[\s*_]{0,2}\s*([A-Z])(?![a-zA-Z0-9])", re.IGNORECASE)
_LETTERS = str.maketrans({sign: f" {letter}" for sign, letter in zip("أبجدঅবডঢ", "ABCDABCD", strict=True)})


@attrs.frozen(kw_only=True)
class Ruler2Settings:
    """The keys of a ``ruler2`` block besides the common ones: rows of about ``words`` words."""

    size: int = attrs.field(default=60, validator=positive_int)
    words: int = attrs.field(default=800, validator=positive_int)
    seed: int = 1


class Ruler2(ResourcesServer):
    r"""Something to find in a long text, scored softly.

    A row with ``eval_type`` ``ruler2`` (the default) has ``expected_answer``, a list of texts, each of which scores 1
    when the reply contains it, else 1 less the word error rate between the two, not below 0, whatever the case. With
    ``match_type`` ``all`` the reward is their mean; with ``part`` the largest, after ``Document N:`` headers are taken
    out; with ``2steps`` the mean for the reply's last paragraph alone.

    A row with ``eval_type`` ``multichoice`` has a letter as ``expected_answer``; the reward is 1 for the same letter,
    else 0. It stands after the last "The final answer is", else in the last ``\boxed{}`` (the last capital that
    stands alone in it), else after the last ``Answer:``.

    ``task`` names the kind of task, for the metrics. The rows are generated, of the twelve kinds of RULER 2 in turn:
    ``mk_niah``, ``mv_niah`` and ``qa``, each ``basic``, ``easy``, ``medium`` and ``hard``.

    Source of the rule: NeMo Gym's ``ruler2``.
    """

    description = "Find what is hidden in a long text, scored softly (RULER 2)"
    domain = "long_context"
    settings_type = Ruler2Settings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(Ruler2Settings, config, key="ruler2", ignore=COMMON_KEYS)
        for number in range(settings.size):
            task = TASKS[number % len(TASKS)]
            prompt, keys = KINDS[task](random.Random(f"{settings.seed}:{number}"), settings.words)
            params = {"input": [{"role": "user", "content": prompt}]}
            yield {"responses_create_params": params, **keys, "task": task, "length": len(prompt.split())}

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        text = output_text(request.response)
        parsed = _CONTROLS.sub("\n", text.strip()).strip()
        expected = request.get("expected_answer")
        if request.get("eval_type") == "multichoice":
            letter = choice_in(text)
            correct = letter is not None and letter == str(expected or "").strip().upper()
            return {"reward": float(correct), "predicted_answer": parsed, "extracted_answer": letter}
        match_type = request.get("match_type") or "all"
        if match_type not in _RULES:
            raise RequestRefused(422, f"match_type must be one of {', '.join(_RULES)}, not {match_type!r}")
        wanted = [str(each) for each in (expected if isinstance(expected, list) else [expected])]
        reward = _RULES[match_type](text, wanted) if wanted else 0.0
        return {"reward": reward, "predicted_answer": parsed, "extracted_answer": None}

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """pass@k, also for each task; and their mean over the tasks where all twelve are there."""
        by_task = metrics.subset_metrics(tasks, "task")
        found = {**metrics.pass_majority_metrics(tasks), **by_task}
        first = f"{TASKS[0]}/"
        for name in [name.removeprefix(first) for name in by_task if name.startswith(first)]:
            values = [by_task.get(f"{task}/{name}") for task in TASKS]
            numbers = [value for value in values if isinstance(value, int | float)]
            if len(numbers) == len(TASKS):
                found[f"ruler2_suite_avg/{name}"] = sum(numbers) / len(numbers)
        return found

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The token means, pass@k and its average at the largest k, and the means over the tasks."""
        chosen = token_means(agent_metrics)
        for name in ("pass@1[avg-of-{k}]", "pass@{k}"):
            chosen |= metrics.highest_k_metrics(agent_metrics, name)
        return chosen | {name: value for name, value in agent_metrics.items() if name.startswith("ruler2_suite_avg/")}


def word_errors(given: Sequence[str], wanted: Sequence[str]) -> int:
    """How many words must be put in, taken out or replaced to make ``given`` of ``wanted``."""
    row = list(range(len(wanted) + 1))
    for number, word in enumerate(given, 1):
        above, row[0] = row[0], number
        for place, other in enumerate(wanted, 1):
            above, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, above + (word != other))
    return row[-1]


def nearness(text: str, wanted: str) -> float:
    """1 when ``text`` contains ``wanted``, else 1 less the word error rate, not below 0."""
    text, wanted = text.lower(), wanted.lower()
    if wanted in text:
        return 1.0
    words = wanted.split()
    return max(0.0, 1.0 - word_errors(text.split(), words) / len(words)) if words else 0.0


def _mean(text: str, wanted: Sequence[str]) -> float:
    return sum(nearness(text, each) for each in wanted) / len(wanted)


_RULES: Mapping[str, Callable[[str, Sequence[str]], float]] = {
    "all": _mean,
    "part": lambda text, wanted: max(nearness(without_spans(text, _DOCUMENT), each) for each in wanted),
    "2steps": lambda text, wanted: _mean(text.split("\n\n")[-1], wanted),
}


def choice_in(text: str) -> str | None:
    """The letter that ``text`` answers with, or ``None``: see `Ruler2`."""
    finals = _FINAL.findall(text)
    inner = finals[-1] if finals else _boxed(text)
    if inner is not None:
        inner = unicodedata.normalize("NFKC", inner).translate(_LETTERS).strip()
        if len(inner) == 1:
            return inner.upper()
        if capitals := _CAPITAL.findall(inner):
            return str(capitals[-1])
    answers = _ANSWER.findall(text)
    return str(answers[-1]).upper() if answers else None


def _boxed(text: str) -> str | None:
    start = text.rfind("\\boxed")
    if start < 0 or not text.startswith("\\boxed{", start):
        return None
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if text[place] == "}" and depth == 0:
            return text[start + len("\\boxed{") : place]
    return None
