"""The reward of each task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gym_trio import metrics
from gym_trio.errors import RowError

Make = Callable[..., dict[str, Any]]


def test_a_profile_has_the_three_files(make_row: Make) -> None:
    """Each task has a row with its own input as the sample; agents and repeats are listed with their agent."""
    inputs = [make_row(t, r, None, question=f"q{t}") for t in range(2) for r in range(2)]
    rollouts = [make_row(t, r, float(t)) for t in range(2) for r in range(2)]
    profile = metrics.profile(inputs, rollouts)
    rows = list(profile.reward_rows())
    assert [row["mean/reward"] for row in rows] == [0.0, 1.0]
    assert rows[1]["sample"] == {"agent_ref": {"name": "agent"}, "question": "q1"}
    assert "agent_ref" not in rows[1]
    (agent,) = profile.agent_metrics()
    assert agent["agent_ref"] == {"name": "agent"}
    assert agent["mean/reward"] == 0.5
    assert "num_repeats" not in agent
    assert [row["_ng_rollout_index"] for row in profile.repeat_level_metrics()] == [0, 1]
    assert profile.completion == {
        "expected_rollout_rows": 4,
        "completed_rollout_rows": 4,
        "missing_rollout_rows": 0,
        "reward_profile_completion_pct": 100.0,
        "total_input_rows": 2,
        "complete_input_rows": 2,
        "partial_input_rows": 0,
        "missing_input_rows": 0,
    }


def test_a_partial_run_is_profiled_only_when_asked(make_row: Make) -> None:
    """Missing rollouts are an error that names them, or are counted where partial runs are allowed."""
    inputs = [make_row(t, r, None) for t in range(3) for r in range(2)]
    rollouts = [make_row(0, 0), make_row(0, 1), make_row(1, 0)]
    with pytest.raises(RowError, match=r"3 of 6 inputs have no rollout, among them 1:1, 2:0, 2:1"):
        metrics.profile(inputs, rollouts)
    profile = metrics.profile(inputs, rollouts, allow_partial=True)
    rows = list(profile.reward_rows())
    assert [row["missing_num_rollouts"] for row in rows] == [0, 1]
    counts = [profile.completion[f"{kind}_input_rows"] for kind in ("complete", "partial", "missing")]
    assert counts == [1, 1, 1]


def test_a_masked_rollout_is_not_missing(make_row: Make) -> None:
    """A masked rollout leaves the measure and its input with it."""
    inputs = [make_row(0, r, None) for r in range(2)]
    profile = metrics.profile(inputs, [make_row(0, 0), make_row(0, 1, 0.0, mask_sample=True)])
    (row,) = profile.reward_rows()
    assert (row["mean/reward"], row["expected_num_rollouts"], row["missing_num_rollouts"]) == (1.0, 1, 0)
    assert profile.agent_metrics()[0]["coverage/masked_rollouts"] == 1


@pytest.mark.parametrize(
    ("inputs", "rollouts", "message"),
    [
        ([(0, 0), (0, 0)], [], "inputs:2: a second input for rollout 0:0"),
        ([(0, 0)], [(0, 0), (5, 1)], "rollouts:2: rollout 5:1 has no input"),
        ([(0, None)], [], "no _ng_rollout_index"),
        ([(None, 0)], [], "no _ng_task_index"),
    ],
)
def test_rows_that_do_not_belong_together(make_row: Make, inputs: Any, rollouts: Any, message: str) -> None:
    """Inputs and rollouts that do not match are named with their place."""
    with pytest.raises(RowError, match=message):
        metrics.profile([make_row(t, r, None) for t, r in inputs], [make_row(t, r) for t, r in rollouts])


def test_one_task_at_several_agents_has_a_row_for_each(make_row: Make) -> None:
    """Fanned out, each agent's copy of a task keeps its own numbers and names its agent."""
    agents = ["a", "b"]
    inputs = [make_row(t, i, None, agent_ref={"name": name}) for t in range(2) for i, name in enumerate(agents)]
    rollouts = [{"_ng_task_index": t, "_ng_rollout_index": i, "reward": float(i)} for t in range(2) for i in range(2)]
    rows = list(metrics.profile(inputs, rollouts).reward_rows())
    assert [(r["_ng_task_index"], r["agent_ref"]["name"], r["mean/reward"]) for r in rows] == [
        (0, "a", 0.0),
        (0, "b", 1.0),
        (1, "a", 0.0),
        (1, "b", 1.0),
    ]


def test_agents_with_tasks_of_their_own_share_the_file(make_row: Make) -> None:
    """Where no task went to two agents, the rows are those of the tasks, in their order."""
    inputs = [make_row(t, 0, None, agent_ref={"name": name}) for t, name in enumerate(["b", "a", "b"])]
    rollouts = [make_row(t, 0, agent_ref={"name": name}) for t, name in enumerate(["b", "a", "b"])]
    profile = metrics.profile(inputs, rollouts)
    assert [row["_ng_task_index"] for row in profile.reward_rows()] == [0, 1, 2]
    assert not any("agent_ref" in row for row in profile.reward_rows())
    assert [entry["agent_ref"]["name"] for entry in profile.agent_metrics()] == ["a", "b"]


def test_nothing_to_profile() -> None:
    """No inputs and no rollouts are a complete profile of nothing."""
    profile = metrics.profile([], [])
    assert list(profile.reward_rows()) == []
    assert profile.completion["reward_profile_completion_pct"] == 100.0
