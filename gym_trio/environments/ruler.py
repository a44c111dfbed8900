"""Long contexts: what was hidden in a text, found and said."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from .. import metrics
from ..config import positive_int, structure
from ..errors import RequestRefused
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, output_text
from ._haystack import haystack, magic_numbers
from ._reply import token_means

__all__ = ["Ruler", "RulerSettings"]

_ANY_OF = ("qa_1", "qa_2")


@attrs.frozen(kw_only=True)
class RulerSettings:
    """The keys of a ``ruler`` block besides the common ones: rows of about ``words`` words."""

    size: int = attrs.field(default=30, validator=positive_int)
    words: int = attrs.field(default=800, validator=positive_int)
    seed: int = 1


class Ruler(ResourcesServer):
    """Something hidden in a long text. The reward is the share of ``outputs`` that the reply contains.

    A row has ``outputs`` (texts), ``subset`` (the kind of task) and ``length``. Case does not matter. For the subsets
    ``qa_1`` and ``qa_2``, whose outputs are ways to say one thing, one of them is enough for 1. The result carries
    the reward under the subset's name as well.

    The rows are generated: one number or several hidden in filler text, and chains of variables.

    Source of the rule: NeMo Gym's ``ruler``.
    """

    description = "Find what is hidden in a long text (RULER)"
    domain = "long_context"
    settings_type = RulerSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(RulerSettings, config, key="ruler", ignore=COMMON_KEYS)
        for number in range(settings.size):
            rng = random.Random(f"{settings.seed}:{number}")
            subset, needles, question, outputs = _KINDS[number % len(_KINDS)](rng)
            prompt = f"{haystack(rng, needles, settings.words)}\n\n{question}"
            yield {
                "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
                "outputs": outputs,
                "length": len(prompt.split()),
                "subset": subset,
            }

    @classmethod
    def row_problems(cls, row: Mapping[str, Any]) -> Iterator[str]:
        outputs = row.get("outputs")
        if not isinstance(outputs, list) or not outputs or not all(isinstance(each, str) for each in outputs):
            yield "outputs: must be a list of texts, not empty"
        if not isinstance(row.get("subset"), str):
            yield "subset: must be a text"

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        outputs, subset = request.get("outputs"), request.get("subset")
        if not outputs or not isinstance(outputs, list) or not isinstance(subset, str):
            raise RequestRefused(422, "a row of ruler needs outputs, a list of texts, and subset")
        text = output_text(request.response).strip().lower()
        hits = [str(each).lower() in text for each in outputs]
        reward = float(any(hits)) if subset in _ANY_OF else sum(hits) / len(hits)
        return {"reward": reward, subset: reward}

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """pass@k, also for each subset."""
        return {**metrics.pass_majority_metrics(tasks), **metrics.subset_metrics(tasks, "subset")}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The token means, and pass@k and its average at the largest k."""
        chosen = token_means(agent_metrics)
        for name in ("pass@1[avg-of-{k}]", "pass@{k}"):
            chosen |= metrics.highest_k_metrics(agent_metrics, name)
        return chosen


def _single(rng: random.Random) -> tuple[str, list[str], str, list[str]]:
    needles, question, values = magic_numbers(rng, keys=1, values=1)
    return "niah_single_1", needles, question, values


def _many_keys(rng: random.Random) -> tuple[str, list[str], str, list[str]]:
    needles, question, values = magic_numbers(rng, keys=4, values=1)
    return "niah_multikey_1", needles, question, values


def _many_values(rng: random.Random) -> tuple[str, list[str], str, list[str]]:
    needles, question, values = magic_numbers(rng, keys=1, values=3)
    return "niah_multivalue", needles, question, values


def _chain(rng: random.Random) -> tuple[str, list[str], str, list[str]]:
    names = ["".join(rng.sample("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 5)) for _ in range(5)]
    value = str(rng.randint(10000, 99999))
    needles = [f"VAR {names[0]} = {value}.", *(f"VAR {b} = VAR {a}." for a, b in itertools.pairwise(names))]
    return "vt", needles, f"Which variables have the value {value}? Name all of them.", names


_KINDS = (_single, _many_keys, _many_values, _chain)
