"""Walks in a long graph, answered without copying the graph into the thoughts."""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import orjson

from ..config import positive_int, structure
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, output_text
from .graphwalks import GraphWalks

__all__ = ["LcNiah", "LcNiahSettings", "copied", "grade"]

_ANSWER = re.compile(r"Final Answer:\s*\[(.*)\]")
_GRAM = 16


class OverlapMetric(enum.StrEnum):
    """How it is measured what the thoughts copy from the input."""

    SEQ_MATCH = "seq_match"  # difflib's ratio of the two texts
    NGRAM16 = "ngram16"  # the share of the thoughts' runs of 16 words that the input has too
    LCS = "lcs"  # the longest run of characters they share, as a share of the thoughts


class OverlapGrading(enum.StrEnum):
    """What copying costs."""

    BASE = "base"  # nothing
    MULTIPLY = "multiply"  # the answer's score times what is not copied
    MINUS = "minus"  # the answer's score less what is copied


@attrs.frozen(kw_only=True)
class LcNiahSettings:
    """The keys of an ``lc_niah`` block besides the common ones; the last three are for the generated rows."""

    overlap_metric_rule: OverlapMetric = attrs.field(default=OverlapMetric.NGRAM16, converter=OverlapMetric)
    overlap_grading_rule: OverlapGrading = attrs.field(default=OverlapGrading.MULTIPLY, converter=OverlapGrading)
    size: int = attrs.field(default=30, validator=positive_int)
    nodes: int = attrs.field(default=60, validator=positive_int)
    seed: int = 1


class LcNiah(ResourcesServer):
    """A walk in a graph. The reward is the F1 of the named nodes, less what the thoughts copied from the input.

    A row has ``expected_answer``, a JSON list of nodes. The reply's last line is ``Final Answer: [node, ...]``, with
    quotes around the nodes or not; without it the answer scores 0. The block's ``overlap_metric_rule`` measures how
    much of the response's reasoning was copied from the row's input, in lower case with single blanks, and its
    ``overlap_grading_rule`` what that costs.

    It runs in a process with a time limit, since two of the measures take long on long texts.

    Source of the rule: NeMo Gym's ``lc_niah``.
    """

    description = "Graph walks in long contexts, without copying the input"
    domain = "long_context"
    settings_type = LcNiahSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(LcNiahSettings, config, key="lc_niah", ignore=COMMON_KEYS)
        wanted = {"size": settings.size, "nodes": settings.nodes, "seed": settings.seed}
        return iter(GraphWalks.rows(wanted))

    def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        score = grade(output_text(request.response), request.get("expected_answer"))
        overlap = copied(
            _thoughts(request.response),
            _input_text((request.get("responses_create_params") or {}).get("input")),
            self.settings.overlap_metric_rule,
        )
        rule = self.settings.overlap_grading_rule
        reward = score
        if rule is OverlapGrading.MULTIPLY:
            reward = score * (1.0 - overlap)
        elif rule is OverlapGrading.MINUS:
            reward = score - overlap
        return {"reward": reward, "answer_score": score, "reasoning_overlap": overlap}


def grade(text: str, expected: Any) -> float:
    """The F1 of the nodes that the last line of ``text`` names."""
    lines = [line for line in text.strip().split("\n") if line.strip()]
    found = _ANSWER.search(lines[-1]) if lines else None
    if found is None:
        return 0.0
    named = {name for each in found[1].split(",") if (name := each.strip().strip("\"'").strip())}
    try:
        wanted = set(orjson.loads(expected))
    except (orjson.JSONDecodeError, TypeError):
        wanted = set()
    if not named or not wanted:
        return float(not named and not wanted)
    return 2 * len(named & wanted) / (len(named) + len(wanted))


def copied(thoughts: str, source: str, rule: OverlapMetric) -> float:
    """How much of ``thoughts`` is copied from ``source``, 0 to 1; nothing when there are none."""
    thoughts, source = (" ".join(text.lower().split()) for text in (thoughts, source))
    if not thoughts:
        return 0.0
    if rule is OverlapMetric.SEQ_MATCH:
        return difflib.SequenceMatcher(None, thoughts, source).ratio()
    if rule is OverlapMetric.LCS:
        matcher = difflib.SequenceMatcher(None, thoughts, source, autojunk=False)
        return matcher.find_longest_match().size / len(thoughts)
    ours, theirs = _grams(thoughts), _grams(source)
    return len(ours & theirs) / len(ours) if ours else 0.0


def _grams(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[start : start + _GRAM]) for start in range(len(words) - _GRAM + 1)}


def _thoughts(response: Mapping[str, Any]) -> str:
    items = [item for item in response.get("output") or () if item.get("type") == "reasoning"]
    return "".join(part.get("text") or "" for item in items for part in item.get("summary") or ())


def _input_text(given: Any) -> str:
    if isinstance(given, str):
        return given
    texts: list[str] = []
    for item in given or ():
        content = item.get("content")
        parts = [{"text": content}] if isinstance(content, str) else content or []
        texts += [part["text"] for part in parts if part.get("text")]
    return "\n".join(texts)
