"""Spatial reasoning: which of two objects, both or none."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from ..config import positive_int, structure
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, output_text
from ._spans import without_spans

__all__ = ["SpartQa", "SpartQaSettings", "answer_in", "label_of", "labels_of"]

BOTH, NONE = "both of them", "none of them"
_ALIASES = {
    BOTH: {"both", "both objects", "both of the objects", "both of these", BOTH},
    NONE: {
        *("none", "none of the objects", "neither", "neither of them", "neither object", "no object"),
        *("dk", "do not know", "dont know", NONE),
    },
}
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_THOUGHTS = (
    (re.compile("<think>", re.IGNORECASE), re.compile("</think>", re.IGNORECASE)),
    (re.compile(r"<\|channel\>thought", re.IGNORECASE), re.compile(r"<channel\|>", re.IGNORECASE)),
)
# No blank can be taken in two ways here: a reply of nothing but blanks would take the square of its length.
_HEAD = r"^(?:[*_`#>\-]|[^\S\n])*"
_TAIL = r"(?:\s+is)?[*_`\s]*[:\-]\s*(.+)"
# In the order in which they are asked; the last match of the first that has one is the answer.
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        rf"{_HEAD}final\s+answer{_TAIL}",
        rf"{_HEAD}selected\s+answer{_TAIL}",
        rf"{_HEAD}answer{_TAIL}",
        r"\b(?:the\s+)?(?:final\s+)?answer\s+(?:is|would\s+be|should\s+be)\s*[:\-]?\s*(.+)",
        r"\bselected\s+(?:option|answer)\s+(?:is|would\s+be)\s*[:\-]?\s*(.+)",
    )
)
_TALK = ("thinking process", "analysis", "the user wants", "we need")


@attrs.frozen(kw_only=True)
class SpartQaSettings:
    """The keys of a ``spartqa`` block besides the common ones. The same ``seed`` gives the same rows."""

    size: int = attrs.field(default=40, validator=positive_int)
    seed: int = 1


class SpartQa(ResourcesServer):
    """A story of where things are, and a question with two objects. Reward 1 for the right one of four answers, else 0.

    The answers are the row's two ``options``, "both of them" and "none of them"; ``target`` is the right one. Both
    fields may stand in ``verifier_metadata`` instead. A reply's answer is on its last ``Final answer:`` line (or what
    comes near that), else its first line. It is one of the four when it says it word for word, without regard to
    case, punctuation and a leading article, or in other words for both or none; or when, of the four, it contains
    exactly one. An answer that names two counts as none.

    Source of the rule: NeMo Gym's ``spartqa``.
    """

    description = "Spatial reasoning: which object, both or none"
    domain = "knowledge"
    settings_type = SpartQaSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(SpartQaSettings, config, key="spartqa", ignore=COMMON_KEYS)
        return (_row(random.Random(f"{settings.seed}:{number}")) for number in range(settings.size))

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        beside = request.get("verifier_metadata") or {}
        target = str(request.get("target") or beside.get("target") or "")
        options = list(request.get("options") or beside.get("options") or [])
        answer = answer_in(output_text(request.response))
        chosen = label_of(answer, labels_of(options or [target]))
        correct = bool(_key(target)) and chosen is not None and _key(chosen) == _key(target)
        return {
            "reward": float(correct),
            "exact": correct and _key(answer) == _key(target),
            "parsed": bool(_even(answer)),
            "extracted": answer[:200],
            "predicted_label": chosen or "",
        }

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """Means of the reward and of how the answers came out, and accuracy where both or none is right."""
        rows = [row for task in tasks for row in task]
        if not rows:
            return {}
        found = {
            "mean_reward": _mean(rows, "reward"),
            "count": len(rows),
            "exact_match_rate": _mean(rows, "exact"),
            "parse_rate": _mean(rows, "parsed"),
            "label_resolve_rate": sum(bool(row.get("predicted_label")) for row in rows) / len(rows),
        }
        for label in (BOTH, NONE):
            some = [row for row in rows if _key(str(row.get("target", ""))) == _key(label)]
            if some:
                found[f"accuracy_{label.replace(' ', '_')}"] = _mean(some, "reward")
        return found

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The mean reward, and how often the answer was word for word."""
        return {name: agent_metrics[name] for name in ("mean_reward", "exact_match_rate") if name in agent_metrics}


def _mean(rows: Sequence[Mapping[str, Any]], field: str) -> float:
    return sum(float(row.get(field) or 0) for row in rows) / len(rows)


def _even(text: str) -> str:
    return " ".join(text.strip().lower().translate(_PUNCTUATION).split())


def _key(text: str) -> str:
    return re.sub(r"^(?:an?|the)\s+", "", _even(text)).strip()


def _bare(line: str) -> str:
    line = re.sub(r"^[-*•\s]+", "", line.strip())
    line = re.sub(r"^\*+|\*+$", "", line).strip()
    return re.sub(r"</?think>", "", line, flags=re.IGNORECASE).strip().strip("\"'` ")


def answer_in(text: str) -> str:
    """What ``text`` answers, or the empty text: see `SpartQa`."""
    text = without_spans(text, *_THOUGHTS).strip()
    named = None
    for pattern in _PATTERNS:
        # The form that the prompt gives, said back, is no answer.
        found = [
            said for match in pattern.finditer(text) if (said := match[1].strip()) and _even(said) != "candidate answer"
        ]
        if found:
            named = found[-1]
            break
    lines = [_bare(line) for line in (text if named is None else named).splitlines()]
    lines = [line for line in lines if line and _even(line) not in ("final answer", "answer")]
    if not lines:
        return ""
    return lines[-1] if named is None and len(lines) > 1 and _even(lines[0]).startswith(_TALK) else lines[0]


def labels_of(options: Sequence[Any]) -> dict[str, str]:
    """The possible answers by what they are compared by."""
    found: dict[str, str] = {}
    for label in (*options, BOTH, NONE):
        if key := _key(str(label)):
            found.setdefault(key, str(label).strip())
    return found


def label_of(answer: str, labels: Mapping[str, str]) -> str | None:
    """The one possible answer that ``answer`` means, or ``None``."""
    key = _key(answer)
    if not key:
        return None
    if key in labels:
        return labels[key]
    for label, aliases in _ALIASES.items():
        if key in aliases and label in labels.values():
            return labels[_key(label)]
    within = [each for each in labels if each in key]
    # Of two that lie one in the other, the longer is meant.
    within = [each for each in within if not any(other != each and each in other for other in within)]
    return labels[within[0]] if len(within) == 1 else None


_THINGS = ("red square", "blue circle", "green triangle", "yellow star", "black ring")
_SIDES = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}


def _row(rng: random.Random) -> dict[str, Any]:
    first, second, anchor = rng.sample(_THINGS, 3)
    side = rng.choice(list(_SIDES))
    places = [rng.random() < 0.5 for _ in range(2)]  # is the first, is the second, on the asked side?
    story = " ".join(
        f"The {thing} is {side if there else _SIDES[side]} the {anchor}."
        for thing, there in zip((first, second), places, strict=True)
    )
    target = BOTH if all(places) else NONE if not any(places) else first if places[0] else second
    candidates = "\n".join(f"- {each}" for each in (first, second, BOTH, NONE))
    prompt = (
        f"{story}\nWhat is {side} the {anchor}: the {first} or the {second}?\n\nChoose one of these answers:\n"
        f"{candidates}\n\nClose with a line 'Final answer: ...' that repeats the chosen one."
    )
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "target": target,
        "options": [first, second],
    }
