"""Long contexts: what was hidden in a text, found and said."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from .. import metrics
from ..config import not_empty, one_of, positive_int, structure
from ..errors import RequestRefused
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, output_text
from ._reply import token_means
from ._ruler_tasks import KINDS

__all__ = ["Ruler", "RulerSettings"]

_ANY_OF = ("qa_1", "qa_2")


def _known(instance: Any, attribute: attrs.Attribute[Any], value: list[str]) -> None:
    not_empty(instance, attribute, value)
    for name in value:
        one_of(KINDS)(instance, attribute, name)


@attrs.frozen(kw_only=True)
class RulerSettings:
    """The keys of a ``ruler`` block besides the common ones: ``size`` rows of about ``words`` words, each kind in turn.

    ``subsets`` are the kinds to make, unset all thirteen.
    """

    size: int = attrs.field(default=65, validator=positive_int)
    words: int = attrs.field(default=800, validator=positive_int)
    seed: int = 1
    subsets: list[str] | None = attrs.field(default=None, validator=attrs.validators.optional(_known))


class Ruler(ResourcesServer):
    """Something hidden in a long text. The reward is the share of ``outputs`` that the reply contains.

    A row has ``outputs`` (texts), ``subset`` (the kind of task) and ``length``. Case does not matter. For the subsets
    ``qa_1`` and ``qa_2``, whose outputs are ways to say one thing, one of them is enough for 1. The result carries
    the reward under the subset's name as well.

    The rows are generated, of the thirteen kinds of RULER in turn: needles in a haystack (``niah_single_1`` to ``_3``,
    ``niah_multikey_1`` to ``_3``, ``niah_multivalue``, ``niah_multiquery``), chains of variables (``vt``), common and
    frequent words (``cwe``, ``fwe``), and questions to documents (``qa_1``, ``qa_2``).

    Source of the rule: NeMo Gym's ``ruler``.
    """

    description = "Find what is hidden in a long text (RULER)"
    domain = "long_context"
    settings_type = RulerSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(RulerSettings, config, key="ruler", ignore=COMMON_KEYS)
        subsets = settings.subsets or list(KINDS)
        for number in range(settings.size):
            rng = random.Random(f"{settings.seed}:{number}")
            subset = subsets[number % len(subsets)]
            task = KINDS[subset](rng, settings.words)
            yield {
                "responses_create_params": {"input": [{"role": "user", "content": task.prompt}]},
                "outputs": task.outputs,
                "length": len(task.prompt.split()),
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
