"""Walks in a directed graph that the prompt lists edge by edge."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import orjson

from .. import metrics
from ..config import positive_int, structure
from ..servers import COMMON_KEYS, RequestBody, ResourcesServer, Session, output_text
from ._reply import token_means

__all__ = ["GraphWalks", "GraphWalksSettings", "named_nodes"]

_ANSWER = re.compile(r"Final Answer:\s*\[(.*)\]")


@attrs.frozen(kw_only=True)
class GraphWalksSettings:
    """The keys of a ``graphwalks`` block besides the common ones. The same ``seed`` gives the same rows."""

    size: int = attrs.field(default=50, validator=positive_int)
    nodes: int = attrs.field(default=12, validator=positive_int)
    seed: int = 1


class GraphWalks(ResourcesServer):
    """Parents of a node, or the nodes a search reaches at a depth. The reward is the F1 of the named set of nodes.

    The answer is the last line that is not blank, in the form ``Final Answer: [a, b]``; without it the reward is 0. Two
    empty sets agree (1), one empty set does not (0). A row has ``expected_answer``, a JSON list in a string.

    Source of the rule: NeMo Gym's ``graphwalks``.
    """

    description = "Walk in a graph that is listed edge by edge; the reward is the F1 of the nodes named"
    domain = "long_context"
    settings_type = GraphWalksSettings

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        settings = structure(GraphWalksSettings, config, key="graphwalks", ignore=COMMON_KEYS)
        return (_row(settings, random.Random(f"{settings.seed}/{number}")) for number in range(settings.size))

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        named = named_nodes(output_text(request.response))
        f1 = 0.0 if named is None else _f1(set(named), _expected(request.get("expected_answer")))
        return {"reward": f1, "f1": f1, "parse_failed": named is None, "predicted_nodes": named or []}

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        """pass@k, also for each problem type."""
        subsets = metrics.subset_metrics(tasks, "problem_type")
        return {
            **metrics.pass_majority_metrics(tasks),
            **{f"problem_type={name}": value for name, value in subsets.items()},
        }

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """The token means, and what pass@k and its average are at the largest k."""
        return {
            **token_means(agent_metrics),
            **metrics.highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]"),
            **metrics.highest_k_metrics(agent_metrics, "pass@{k}"),
        }


def named_nodes(text: str) -> list[str] | None:
    """The nodes in the last line's ``Final Answer: [...]``; ``None`` when the line does not have that form."""
    lines = [line for line in text.strip().split("\n") if line.strip()]
    found = _ANSWER.search(lines[-1]) if lines else None
    return None if found is None else [name.strip() for name in found.group(1).split(",") if name.strip()]


def _expected(answer: Any) -> set[str]:
    try:
        return set(orjson.loads(answer))
    except (orjson.JSONDecodeError, TypeError):
        return set()


def _f1(named: set[str], expected: set[str]) -> float:
    if not named and not expected:
        return 1.0
    common = len(named & expected)
    return 2 * common / (len(named) + len(expected)) if common else 0.0


def _row(settings: GraphWalksSettings, source: random.Random) -> dict[str, Any]:
    nodes = [f"n{number}" for number in source.sample(range(100, 1000), settings.nodes)]
    edges = {node: source.sample([n for n in nodes if n != node], min(2, len(nodes) - 1)) for node in nodes}
    start = source.choice(nodes)
    if source.random() < 0.5:
        kind, task = "parents", f"Which nodes have an edge to {start}?"
        answer = [node for node in nodes if start in edges[node]]
    else:
        kind, depth = "bfs", source.randint(1, 2)
        task = f"Start a breadth-first search at {start}. Which nodes does it first reach at depth {depth}?"
        answer = _reached(edges, start, depth)
    listed = "\n".join(f"{node} -> {other}" for node in nodes for other in edges[node])
    prompt = (
        f"A directed graph has these edges:\n{listed}\n\n{task}\n"
        "End with one line of the form: Final Answer: [node, node, ...]"
    )
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "expected_answer": orjson.dumps(sorted(answer)).decode(),
        "problem_type": kind,
        "prompt_chars": len(prompt),
    }


def _reached(edges: Mapping[str, Sequence[str]], start: str, depth: int) -> list[str]:
    seen, frontier = {start}, [start]
    for _ in range(depth):
        frontier = list(dict.fromkeys(other for node in frontier for other in edges[node] if other not in seen))
        seen.update(frontier)
    return frontier
