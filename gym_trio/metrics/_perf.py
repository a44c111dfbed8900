"""``ng_perf`` of one rollout, and ``perf_summary`` over many."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from ._evidence import Call, Evidence, gather
from ._numbers import as_number, mean, population_std, quantile
from ._table import NumberTable

# The key in `ng_perf`, and the key of the same count in a trajectory's `token_stats`.
_TOKENS = {
    "prompt_tokens": "prompt_tokens",
    "cached_prompt_tokens": "cached_tokens",
    "completion_tokens": "completion_tokens",
    "reasoning_tokens": "reasoning_tokens",
}
_LATENCY = "total_latency_ms"
_COVERAGE = "token_observability_coverage"


def rollout_perf(result: Mapping[str, Any], *, total_latency_ms: float | None = None) -> dict[str, Any] | None:
    """``ng_perf`` of one result: from its trajectory where it has one, else from its response.

    A turn is one stretch of the model's own items between tool outputs. ``token_observability_coverage`` is the share
    of turns whose tokens are known: of a trajectory, those with a captured call of their own; of a bare response, all
    or none, as its usage is there or not. Token counts that nobody reported are absent, not zero. None for a result
    with neither turns nor a response to judge.
    """
    evidence = gather(result)
    perf = _from_calls(evidence) if evidence.calls_observed else _from_response(evidence)
    if perf is not None and total_latency_ms is not None:
        perf[_LATENCY] = total_latency_ms
    return perf


def _from_calls(evidence: Evidence) -> dict[str, Any] | None:
    calls = evidence.own_calls
    turns = len(evidence.turns) or len(calls)
    if not turns:
        return _from_response(evidence)
    perf: dict[str, Any] = {
        "num_turns": turns,
        "num_tool_calls": evidence.tool_calls,
        _COVERAGE: min(1.0, sum(_counted(call) for call in calls) / turns),
    }
    for name, key in _TOKENS.items():
        counts = [count for call in calls if (count := call.tokens.get(key)) is not None]
        if counts:
            perf[name] = sum(counts)
    return perf


def _counted(call: Call) -> bool:
    return call.tokens.get("prompt_tokens") is not None and call.tokens.get("completion_tokens") is not None


def _from_response(evidence: Evidence) -> dict[str, Any] | None:
    if not evidence.turns and not evidence.usage:
        return None
    tokens = {name: count for name, key in _TOKENS.items() if (count := evidence.usage.get(key)) is not None}
    known = "prompt_tokens" in tokens and "completion_tokens" in tokens
    return {
        "num_turns": len(evidence.turns),
        "num_tool_calls": evidence.tool_calls,
        _COVERAGE: 1.0 if known and evidence.turns else 0.0,
    } | tokens


def perf_summary(records: NumberTable, *, with_perf: int, rollouts: int) -> dict[str, Any] | None:
    """The summary of ``records``, the numbers in ``ng_perf`` of each rollout; None when no rollout had an ``ng_perf``.

    ``with_perf`` of all ``rollouts`` had one. A statistic is present when at least one rollout reported its field.
    """
    if not with_perf:
        return None
    observed = sum(value > 0 for value in records.values(_COVERAGE))
    summary: dict[str, Any] = {
        "overall_observability_coverage": with_perf / rollouts,
        _COVERAGE: observed / rollouts,
    }
    for name in _TOKENS:
        if values := records.values(name):
            whole = records.whole(name)
            summary[f"mean_{name}"] = mean(values)
            summary[f"median_{name}"] = _as_came(statistics.median(values), whole)
            summary[f"total_{name}"] = _as_came(math.fsum(values), whole)
    if turns := records.values("num_turns"):
        summary |= _turns(turns, records.whole("num_turns"))
    if ratios := _tokens_per_turn(records):
        summary["mean_tokens_per_turn"] = mean(ratios)
        summary["median_tokens_per_turn"] = statistics.median(ratios)
    if latencies := sorted(records.values(_LATENCY)):
        summary |= {f"total_latency_p{p}_ms": quantile(latencies, p / 100) for p in (50, 90, 99)}
        summary["total_latency_mean_ms"] = mean(latencies)
    return summary


def _turns(values: Sequence[float], whole: bool) -> dict[str, Any]:
    return {
        "mean_num_turns": mean(values),
        "median_num_turns": _as_came(statistics.median(values), whole),
        "std_num_turns": population_std(values),
        "min_num_turns": _as_came(min(values), whole),
        "p90_num_turns": quantile(values, 0.9),
        "max_num_turns": _as_came(max(values), whole),
    }


def _tokens_per_turn(records: NumberTable) -> Sequence[float]:
    pairs = (
        (as_number(records.value("completion_tokens", at)), as_number(records.value("num_turns", at)))
        for at in range(len(records))
    )
    known = (tokens / turns for tokens, turns in pairs if tokens is not None and turns is not None and turns > 0)
    return array("d", known)


def _as_came(value: float, whole: bool) -> float:
    return int(value) if whole and value == int(value) else value
