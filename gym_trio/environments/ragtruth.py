"""Hallucinations: does an answer say what its sources do not?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ..servers import RequestBody, ResourcesServer, Session, output_text
from ._packaged import packaged_rows

__all__ = ["RagTruth", "RagTruthSettings", "verdict_in"]

KEY = "hallucination list"
_WHOLE = re.compile(r"^```(?:json)?\s*\r?\n?(.*)\r?\n?```\s*$", re.DOTALL | re.IGNORECASE)
_WITHIN = re.compile(r"```(?:json)?\s*\r?\n?(.*?)```", re.DOTALL | re.IGNORECASE)
_KEPT_CHARACTERS = 500


@attrs.frozen(kw_only=True)
class RagTruthSettings:
    """The key of a ``ragtruth`` block besides the common ones: the tag around a model's thoughts."""

    think_tag: str = "think"


class RagTruth(ResourcesServer):
    """A text and what it was made from. Reward 1 for telling whether it has hallucinations, else 0.

    A row has ``is_halu`` (is there one? without it there is none) and ``task_type``. The reply is a JSON object,
    perhaps in a fence, whose ``hallucination list`` is a list: a filled one says that there are, an empty one, and
    a reply in any other form, that there are none. What the listed texts are is not judged. Thoughts in the block's
    ``think_tag`` are taken out first, with an end tag alone all before it.

    Source of the rule: NeMo Gym's ``ragtruth``.
    """

    description = "Find out whether an answer says what its sources do not"
    domain = "knowledge"
    settings_type = RagTruthSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        return packaged_rows("ragtruth")

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        said = verdict_in(output_text(request.response), self.settings.think_tag)
        listed = said.get(KEY) if said is not None else None
        claims = isinstance(listed, list) and bool(listed)
        expected = bool(request.get("is_halu"))
        return {
            "reward": float(claims == expected),
            "is_halu": int(expected),
            "pred_halu": int(claims),
            "parse_fail": int(said is None),
            "extracted": json.dumps(listed, ensure_ascii=False)[:_KEPT_CHARACTERS] if isinstance(listed, list) else "",
        }

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """Precision, recall and F1 of the claim over all rollouts and by type of task."""
        rows = [row for task in tasks for row in task]
        if not rows:
            return {}
        found: dict[str, Any] = {"count": len(rows), "parse_fail_rate": _mean(rows, "parse_fail")}
        overall = _scores(rows)
        found["mean_reward"] = overall["accuracy"]
        found |= {name: overall[name] for name in ("precision", "recall", "f1")}
        for kind in sorted({str(row.get("task_type") or "unknown") for row in rows}):
            group = [row for row in rows if str(row.get("task_type") or "unknown") == kind]
            found |= {f"task_type/{kind}/{name}": value for name, value in _scores(group).items()}
        return found

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The overall scores, and F1 and accuracy by type of task."""
        wanted = ("mean_reward", "f1", "precision", "recall")
        return {
            name: value
            for name, value in agent_metrics.items()
            if name in wanted or name.endswith(("/f1", "/accuracy"))
        }


def verdict_in(text: str, think_tag: str = "think") -> dict[str, Any] | None:
    """The JSON object that ``text`` is, or ``None``."""
    tag = re.escape(think_tag)
    text = re.sub(rf"<{tag}>.*?</{tag}>", "", text, flags=re.DOTALL | re.IGNORECASE)
    text = re.sub(rf".*</{tag}>\s*", "", text, flags=re.DOTALL | re.IGNORECASE)
    text = re.sub(rf"<{tag}>\s*", "", text, flags=re.IGNORECASE).strip()
    if fenced := _WHOLE.match(text) or _WITHIN.search(text):
        text = fenced[1].strip() or text
    try:
        said = json.loads(text)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _mean(rows: Sequence[Mapping[str, Any]], field: str) -> float:
    return sum(float(row.get(field) or 0) for row in rows) / len(rows)


def _scores(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    right = sum(bool(row.get("pred_halu") and row.get("is_halu")) for row in rows)
    claimed = sum(bool(row.get("pred_halu")) for row in rows)
    there = sum(bool(row.get("is_halu")) for row in rows)
    return {
        "precision": right / claimed if claimed else 0.0,
        "recall": right / there if there else 0.0,
        "f1": 2 * right / (claimed + there) if right else 0.0,
        "accuracy": _mean(rows, "reward"),
        "count": len(rows),
    }
