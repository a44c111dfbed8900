"""Repeating one of several similar passages of a long conversation."""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from .. import metrics
from ..config import positive_int, structure
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, output_text
from ._reply import token_means

__all__ = ["Mrcr", "MrcrSettings", "grade"]

_KINDS = ("a couplet", "a slogan", "a riddle", "a toast")
_SUBJECTS = ("rivers", "winter", "bridges", "lanterns", "bread", "clocks")
_OPENINGS = ("Slow", "Bright", "Old", "Quiet", "Sudden", "Patient", "Hollow", "Early")
_MIDDLES = ("under the arch", "beyond the mill", "at first light", "in the narrow street", "past the orchard")
_ENDINGS = ("we count what stays.", "nothing asks our name.", "the day forgets.", "a door is left ajar.")


@attrs.frozen(kw_only=True)
class MrcrSettings:
    """The keys of an ``mrcr`` block besides the common ones. The same ``seed`` gives the same rows."""

    size: int = attrs.field(default=50, validator=positive_int)
    turns: int = attrs.field(default=12, validator=positive_int)
    seed: int = 1


class Mrcr(ResourcesServer):
    """Repeat the n-th passage of its kind, after a given prefix. The reward is how similar the text is, from 0 to 1.

    A response, blanks around it aside, that does not start with the row's ``random_string_to_prepend`` earns 0; else
    the prefix is taken off both sides and the reward is the matching ratio of difflib's `SequenceMatcher`.

    Source of the rule: NeMo Gym's ``mrcr``.
    """

    description = "Repeat one of several similar passages of a long conversation"
    domain = "long_context"
    settings_type = MrcrSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(MrcrSettings, config, key="mrcr", ignore=COMMON_KEYS)
        return (_row(settings, random.Random(f"{settings.seed}/{number}")) for number in range(settings.size))

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        text, prefix = output_text(request.response).strip(), str(request.get("random_string_to_prepend") or "")
        # Matching long texts takes a while: the loop must not wait for it.
        ratio = await self.in_thread(grade, text, str(request.get("expected_answer") or ""), prefix)
        return {"reward": ratio, "prefix_matched": text.startswith(prefix), "seq_match_ratio": ratio}

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """pass@k, also for each number of similar passages."""
        subsets = metrics.subset_metrics(tasks, "n_needles")
        return {
            **metrics.pass_majority_metrics(tasks),
            **{f"n_needles={name}": value for name, value in subsets.items()},
        }

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The token means, and what pass@k and its average are at the largest k."""
        return {
            **token_means(agent_metrics),
            **metrics.highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]"),
            **metrics.highest_k_metrics(agent_metrics, "pass@{k}"),
        }


def grade(text: str, expected: str, prefix: str) -> float:
    """The reward of ``text``: see `Mrcr`."""
    if not text.startswith(prefix):
        return 0.0
    return difflib.SequenceMatcher(None, text.removeprefix(prefix), expected.removeprefix(prefix)).ratio()


def _row(settings: MrcrSettings, source: random.Random) -> dict[str, Any]:
    wanted = (source.choice(_KINDS), source.choice(_SUBJECTS))
    asked = [wanted, wanted, *((source.choice(_KINDS), source.choice(_SUBJECTS)) for _ in range(settings.turns))]
    source.shuffle(asked)
    passages = [f"{source.choice(_OPENINGS)} {source.choice(_MIDDLES)}, {source.choice(_ENDINGS)}" for _ in asked]
    conversation = [
        message
        for (kind, subject), passage in zip(asked, passages, strict=True)
        for message in (
            {"role": "user", "content": f"Write {kind} about {subject}."},
            {"role": "assistant", "content": passage},
        )
    ]
    needles = [passage for request, passage in zip(asked, passages, strict=True) if request == wanted]
    which = source.randrange(len(needles))
    prefix = "".join(source.choices("abcdefghjkmnpqrstuvwxyz23456789", k=12))
    question = (
        f"Of what you wrote about {wanted[1]}, repeat {wanted[0]} number {which + 1}, word for word. "
        f"Start your answer with {prefix} and add nothing else."
    )
    conversation.append({"role": "user", "content": question})
    return {
        "responses_create_params": {"input": conversation},
        "expected_answer": prefix + needles[which],
        "random_string_to_prepend": prefix,
        "n_needles": len(needles),
        "n_tokens": sum(len(message["content"].split()) for message in conversation),
    }
