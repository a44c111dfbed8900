"""`ng_perf` of a rollout, and what is kept of a row."""

from __future__ import annotations

from typing import Any

import pytest

from gym_trio import metrics
from gym_trio.metrics._table import NumberTable

Json = dict[str, Any]

CALL = {"type": "function_call", "name": "f"}
OUTPUT = {"type": "function_call_output", "output": "3"}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
REASONING = {"type": "reasoning", "summary": []}
USER = {"type": "message", "role": "user", "content": "go on"}


@pytest.mark.parametrize(
    ("items", "turns", "tools"),
    [
        ([MESSAGE], 1, 0),
        ([REASONING, CALL, OUTPUT, MESSAGE], 2, 1),
        ([CALL, CALL, OUTPUT, OUTPUT, MESSAGE], 2, 2),
        ([CALL, OUTPUT, CALL, OUTPUT], 2, 2),
        ([MESSAGE, USER, MESSAGE, {"type": "web_search_call"}], 2, 1),
        ([], 0, 0),
    ],
)
def test_turns_and_tool_calls_of_a_response(items: list[Json], turns: int, tools: int) -> None:
    """A turn is a stretch of the model's own items between tool outputs and others' messages."""
    perf = metrics.rollout_perf({"response": {"output": items, "usage": {"input_tokens": 7}}})
    assert perf is not None
    assert (perf["num_turns"], perf["num_tool_calls"]) == (turns, tools)
    assert perf["token_observability_coverage"] == 0.0


def test_tokens_of_a_response() -> None:
    """Reported counts are taken over, unreported ones are absent, and the latency is the caller's."""
    usage = {
        "input_tokens": 61,
        "output_tokens": 8,
        "total_tokens": 69,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": None,
    }
    row = {"response": {"output": [MESSAGE], "usage": usage}}
    assert metrics.rollout_perf(row, total_latency_ms=12.5) == {
        "num_turns": 1,
        "num_tool_calls": 0,
        "token_observability_coverage": 1.0,
        "prompt_tokens": 61,
        "cached_prompt_tokens": 4,
        "completion_tokens": 8,
        "total_latency_ms": 12.5,
    }
    chat = {"response": {"choices": [{"text": "x"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}}
    perf = metrics.rollout_perf(chat)
    assert perf is not None
    assert (perf["num_turns"], perf["prompt_tokens"], perf["completion_tokens"]) == (1, 1, 2)


def test_a_row_without_evidence_has_no_perf() -> None:
    """Nothing known is None, not zeros, whatever the latency."""
    assert metrics.rollout_perf({"reward": 1.0}, total_latency_ms=3.0) is None
    assert metrics.rollout_perf({"response": None}) is None
    assert metrics.rollout_perf({"response": {"output": []}, "ng_trajectory": {"turns": []}}) is None


def test_perf_of_a_trajectory() -> None:
    """Turns are the trajectory's, tokens those of its own calls, coverage the share of turns with counted calls."""
    calls = [
        {"model_call_id": f"c{i}", "token_stats": {"prompt_tokens": 10, "completion_tokens": c, "reasoning_tokens": 1}}
        for i, c in enumerate([5, 6, None, 100])
    ]
    turns = [{"turn_no": i + 1, "answer": "x", "model_calls": [{"model_call_id": f"c{i}"}]} for i in range(4)]
    turns[3]["model_calls"] = [{"model_call_id": "lost"}]
    row = {
        "response": {"output": [MESSAGE], "usage": {"input_tokens": 1, "output_tokens": 1}},
        "ng_trajectory": {"model_calls": calls, "turns": turns, "tool_calls": [{}, {}]},
    }
    assert metrics.rollout_perf(row) == {
        "num_turns": 4,
        "num_tool_calls": 2,
        "token_observability_coverage": 0.5,
        "prompt_tokens": 30,
        "completion_tokens": 11,
        "reasoning_tokens": 3,
    }


def test_perf_of_captured_calls() -> None:
    """Without a trajectory, captured calls give the tokens and the response the turns; without it, calls are turns."""
    capture = {"calls": [{"tokens_in": 4, "tokens_out": 5, "cached_tokens": 2}, {"tokens_in": 4, "tokens_out": 5}]}
    row = {"ng_model_call_capture": capture}
    perf = metrics.rollout_perf(row)
    assert perf == {
        "num_turns": 2,
        "num_tool_calls": 0,
        "token_observability_coverage": 1.0,
        "prompt_tokens": 8,
        "cached_prompt_tokens": 2,
        "completion_tokens": 10,
    }
    perf = metrics.rollout_perf({**row, "response": {"output": [CALL, OUTPUT, CALL, OUTPUT, MESSAGE]}})
    assert perf is not None
    assert (perf["num_turns"], perf["num_tool_calls"]) == (3, 2)


def test_the_perf_summary_skips_what_nobody_reported() -> None:
    """A field that no rollout has is absent; the coverage counts all rollouts; no perf at all is no summary."""
    rows = [
        {"reward": 1.0, "_ng_rollout_index": i, "ng_perf": {"num_turns": 0, "completion_tokens": 5}} for i in (0, 1)
    ]
    rows.append({"reward": 1.0, "_ng_rollout_index": 2, "ng_perf": {}})
    rows.append({"reward": 1.0, "_ng_rollout_index": 3})
    summary = metrics.aggregate_responses(rows)["perf_summary"]
    assert summary["overall_observability_coverage"] == 0.75
    assert summary["total_completion_tokens"] == 10
    assert isinstance(summary["total_completion_tokens"], int)
    assert not any("prompt" in name or "latency" in name or "per_turn" in name for name in summary)
    assert "perf_summary" not in metrics.aggregate_responses(rows[3:])


def test_a_summary_keeps_numbers_and_identity() -> None:
    """A row's compact form has its numbers, with the usage over a field of the same name, and nothing of its text."""
    row = {
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "_ng_attempt_index": 2,
        "agent_ref": {"name": "a"},
        "_ng_environment_server": "s",
        "reward": True,
        "total_tokens": 1,
        "question": "long",
        "response": {"usage": {"total_tokens": 9, "details": {}}},
        "ng_perf": {"num_turns": 1, "stage": "x"},
        "mask_sample": False,
    }
    assert metrics.summarize(row) == metrics.RowSummary(
        task=3,
        rollout=1,
        attempt=2,
        source=metrics.Source("a", "s"),
        masked=False,
        numbers={"reward": 1, "total_tokens": 9},
        perf={"num_turns": 1},
    )
    assert metrics.strip_payload({**row, "responses_create_params": {}})["response"] == {
        "usage": row["response"]["usage"]
    }
    assert "response" not in metrics.strip_payload({"response": {"output": []}})


def test_a_table_has_holes_and_not_zeros() -> None:
    """A column that a row lacks is a hole; whole numbers come back as such; a replaced row leaves nothing behind."""
    table = NumberTable()
    table.append({"a": 1})
    table.append({"b": 2.5})
    table.append({"a": 3, "b": 4})
    assert table.names() == ["a", "b"]
    assert list(table.values("a")) == table.few("a", range(3)) == [1.0, 3.0]
    assert list(table.values("b", [0, 1])) == [2.5]
    assert table.cells("b", [0, 1, 2]) == [None, 2.5, 4.0]
    assert (table.cells("a", [1, 2]), table.cells("c", [0])) == ([None, 3], [None])
    assert (table.value("a", 0), table.value("a", 1), table.value("c", 0)) == (1, None, None)
    assert (table.whole("a"), table.whole("b"), table.whole("c")) == (True, False, False)
    table.replace(0, {"b": 7})
    assert (table.row(0), table.row(2), len(table)) == ({"b": 7.0}, {"a": 3, "b": 4.0}, 3)
    assert (table.values("c"), table.few("c", [0])) == ([], [])
