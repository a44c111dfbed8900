"""The contract's own cases, and the rollouts recorded for it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from gym_trio import metrics

Rows = list[dict[str, Any]]
Same = Callable[[Any, Any], None]

CASES = range(4)


def tasks_of(rows: Rows) -> list[Rows]:
    groups: defaultdict[int, Rows] = defaultdict(list)
    for row in rows:
        groups[row["_ng_task_index"]].append(row)
    return [groups[task] for task in sorted(groups)]


@pytest.mark.parametrize("number", CASES)
def test_the_aggregate_has_the_contracts_keys_and_values(golden: Rows, same: Same, number: int) -> None:
    """Everything that NeMo Gym computed from the rows comes out of them again, under the same keys and no others."""
    case = golden[number]
    found = metrics.aggregate_responses(case["rows"])
    same({key: found[key] for key in case["aggregate"]}, case["aggregate"])


@pytest.mark.parametrize("number", CASES)
def test_an_entry_of_the_file_has_the_same_values(golden: Rows, same: Same, number: int) -> None:
    """The file's entry is the same metrics under the agent's name, and is JSON."""
    case = golden[number]
    (entry,) = metrics.aggregate(case["rows"]).to_json()
    assert entry["agent_ref"] == {"name": "agent"}
    same({key: entry[key] for key in case["aggregate"]}, case["aggregate"])
    same(json.loads(json.dumps(entry)), entry)


@pytest.mark.parametrize("number", CASES)
def test_the_order_of_rows_does_not_matter(golden: Rows, same: Same, number: int) -> None:
    """Rows come in the order of completion; the aggregate is that of the sorted rows."""
    case = golden[number]
    found = metrics.aggregate_responses(case["rows"][::-1])
    same({key: found[key] for key in case["aggregate"]}, case["aggregate"])


@pytest.mark.parametrize("number", CASES)
def test_pass_and_majority_metrics(golden: Rows, same: Same, number: int) -> None:
    """pass@k, avg-of-k, majority@k, no_answer and their statistics are NeMo Gym's."""
    case = golden[number]
    same(metrics.pass_majority_metrics(tasks_of(case["rows"]), answer_key="extracted"), case["pass_majority"])


def test_the_contracts_written_example() -> None:
    """The worked example of the contract: three tasks of four rollouts."""
    rewards = [[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 1, 1]]
    answers = [["B", "C", "B", "B"], ["A", "A", "D", None], ["C"] * 4]
    rows = [
        {"_ng_task_index": t, "_ng_rollout_index": r, "reward": float(rewards[t][r]), "answer": answers[t][r]}
        for t in range(3)
        for r in range(4)
    ]
    found = metrics.pass_majority_metrics(tasks_of(rows), answer_key="answer")
    expected = {
        "pass@1/accuracy": 66.667,
        "pass@2/accuracy": 83.333,
        "pass@3/accuracy": 91.667,
        "pass@4/accuracy": 100,
        "pass@1[avg-of-2]/accuracy": 50,
        "pass@1[avg-of-4]/accuracy": 66.667,
        "majority@2/accuracy": 50,
        "majority@4/accuracy": 66.667,
        "pass@1[avg-of-4]/accuracy/std_dev_across_runs": 27.2166,
        "pass@1[avg-of-4]/accuracy/std_err_across_runs": 13.6083,
        "pass@4/no_answer": 33.333,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-3)
    assert found["per_sample_aggregate"]["accuracy"] == pytest.approx([66.667, 33.333, 100, 66.667], abs=1e-3)
    entry = metrics.aggregate(rows).to_json()[0]
    agent, first = entry["agent_metrics"], entry["repeat_level_metrics"][0]
    values = [agent[name] for name in ("mean/reward", "std/reward", "std_across_repeats/mean/reward")]
    assert values == pytest.approx([0.66667, 0.49237, 0.27217], abs=1e-5)
    bounds = [agent[f"ci_{side}_95_across_repeats/mean/reward"] for side in ("low", "high")]
    assert bounds == pytest.approx([0.23359, 1.09974], abs=1e-5)
    values = [first[f"{name}/reward"] for name in ("sem", "ci_low_95", "ci_high_95", "p25")]
    assert values == pytest.approx([0.33333, -0.76755, 2.10088, 0.5], abs=1e-5)


def test_recorded_rollouts_go_through_everything(recorded: dict[str, Rows]) -> None:
    """231 real rows over 16 environments are aggregated, profiled, checked and compared without an exception."""
    assert sum(map(len, recorded.values())) == 231
    for rows in recorded.values():
        aggregate = metrics.aggregate(rows)
        entries = aggregate.to_json()
        assert sum(entry["group_level_metrics"][0]["num_rollouts"] > 0 for entry in entries) == len(entries)
        assert aggregate.coverage.scored == len(rows)
        inputs = [{name: row[name] for name in row if name not in ("response", "reward")} for row in rows]
        profile = metrics.profile(inputs, rows)
        assert len(list(profile.reward_rows())) == len({row["_ng_task_index"] for row in rows})
        assert profile.completion["reward_profile_completion_pct"] == 100
        report = metrics.check_health(rows)
        assert len(list(report.verdicts())) == len(rows)
        comparison = metrics.compare(entries, entries)
        assert json.dumps(metrics.to_json(comparison))
        assert "### Flipped tasks" in metrics.to_markdown(comparison)


def test_recorded_rollouts_have_ng_perf(recorded: dict[str, Rows]) -> None:
    """Every recorded response gives turns and tool calls, and its tokens where it reports them."""
    for rows in recorded.values():
        for row in rows:
            perf = metrics.rollout_perf(row, total_latency_ms=5.0)
            assert perf is not None
            assert perf["total_latency_ms"] == 5.0
            items = row["response"]["output"]
            assert perf["num_tool_calls"] == sum(item["type"] == "function_call" for item in items)
            assert perf["num_turns"] <= len(items)
            assert ("prompt_tokens" in perf) == bool(row["response"].get("usage"))


def test_the_one_empty_recorded_response_is_unhealthy(recorded: dict[str, Rows]) -> None:
    """Among the recorded rows the one whose response is empty is unhealthy, though none has a trajectory."""
    report = metrics.check_health(recorded["workplace_assistant"])
    empty = [row for row in recorded["workplace_assistant"] if not row["response"]["output"]]
    unhealthy = [verdict for verdict in report.verdicts() if verdict["verdict"] == "unhealthy"]
    assert len(unhealthy) == len(empty) == 1
    assert unhealthy[0]["findings"][0]["check"] == "rollout_missing_agent_turns"
