"""Two runs side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from scipy import stats

from gym_trio import metrics
from gym_trio.errors import UsageError

Make = Callable[..., dict[str, Any]]


def run(make_row: Make, rewards: list[list[float]], **fields: Any) -> list[dict[str, Any]]:
    rows = [make_row(t, r, reward, **fields) for t, task in enumerate(rewards) for r, reward in enumerate(task)]
    return metrics.aggregate(rows).to_json()


def test_the_difference_of_a_metric(make_row: Make) -> None:
    """Values are means over repeats; the interval is Welch's over the repeats' own means; tasks are paired beside."""
    before = run(make_row, [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    after = run(make_row, [[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    (agent,) = metrics.compare(before, after).comparisons
    (row,) = [row for row in agent.metrics if row.metric == "mean/reward"]
    assert row.is_key_metric
    assert row.present_in == ["baseline", "candidate[0]"]
    assert row.baseline is not None
    assert row.baseline.point == pytest.approx(0.25)
    assert row.change.delta == pytest.approx(0.5)
    assert row.change.delta_pct == pytest.approx(200)
    expected = stats.ttest_ind([1.0, 0.75, 0.5], [0.5, 0.25, 0.0], equal_var=False).confidence_interval()
    found = (row.change.delta_ci_low, row.change.delta_ci_high)
    assert found == pytest.approx((expected.low, expected.high))
    assert row.change.paired is not None
    assert row.change.paired.difference == pytest.approx(0.5)
    assert row.change.paired.tasks == 4


def test_flips_are_listed_ten_each_way(make_row: Make) -> None:
    """Tasks whose mean crosses 0.5 flipped; all are counted, ten of each direction are listed, ties are apart."""
    before = run(make_row, [[1.0, 1.0]] * 12 + [[0.0, 0.0]] * 3 + [[0.0, 1.0], [1.0, 1.0]])
    after = run(make_row, [[0.0, 0.0]] * 12 + [[1.0, 1.0]] * 3 + [[1.0, 1.0], [1.0, 1.0]])
    (agent,) = metrics.compare(before, after).comparisons
    flips = agent.flips
    assert flips.mode == "binary"
    assert (flips.pass_to_fail_count, flips.fail_to_pass_count, flips.net) == (12, 3, -9)
    assert (flips.tied_count, flips.unchanged_count, flips.changed_count) == (1, 1, 16)
    assert [flip.task_index for flip in flips.flips] == [*range(10), 12, 13, 14]
    assert flips.flips[0].baseline_rewards == [1.0, 1.0]
    (agent,) = metrics.compare(before, after, flips_shown=100).comparisons
    assert len(agent.flips.flips) == 15


def test_other_rewards_can_flip_or_just_change(make_row: Make) -> None:
    """With rewards between 0 and 1 a task that crosses 0.5 flipped; others that moved are listed as changed."""
    before = run(make_row, [[0.9], [0.1], [0.2], [0.3]])
    after = run(make_row, [[0.2], [0.1], [0.4], [0.8]])
    (agent,) = metrics.compare(before, after).comparisons
    flips = agent.flips
    assert flips.mode == "continuous"
    directions = [(flip.task_index, flip.direction) for flip in flips.flips]
    assert directions == [(0, "pass_to_fail"), (3, "fail_to_pass"), (2, "changed")]
    assert (flips.unchanged_count, flips.changed_count) == (1, 3)


def test_runs_without_common_tasks_have_no_flips(make_row: Make) -> None:
    """What cannot be compared is said with its reason, and the metrics are compared all the same."""
    before = run(make_row, [[1.0]])
    other = metrics.aggregate([make_row(7, 0, 0.0)]).to_json()
    (agent,) = metrics.compare(before, other).comparisons
    assert (agent.flips.mode, agent.flips.reason) == ("unavailable", "the runs have no task in common")
    assert (agent.flips.baseline_only_task_count, agent.flips.candidate_only_task_count) == (1, 1)
    bare = [{**before[0], "group_level_metrics": []}]
    (agent,) = metrics.compare(before, bare).comparisons
    assert agent.flips.reason == "a run has no metrics of single tasks"
    nothing = run(make_row, [[1.0]])
    del nothing[0]["group_level_metrics"][0]["mean/reward"]
    (agent,) = metrics.compare(before, nothing).comparisons
    assert agent.flips.reason == "no task in common has a reward in both runs"
    assert "Not available" in metrics.to_markdown(metrics.compare(before, nothing))


def test_agents_are_paired_by_name(make_row: Make) -> None:
    """Every agent of both runs is compared; the others are listed; a name on one side chooses there."""
    one = run(make_row, [[1.0]], agent_ref={"name": "a"})
    two = [*run(make_row, [[0.0]], agent_ref={"name": "a"}), *run(make_row, [[1.0]], agent_ref={"name": "b"})]
    found = metrics.compare(one, two)
    assert [agent.candidate_agent for agent in found.comparisons] == ["a"]
    assert found.skipped_agents == {"candidate": ["b"]}
    assert "only in the candidate: b" in metrics.to_markdown(found)
    chosen = metrics.compare(one, two, candidate_agent="b")
    assert [(agent.baseline_agent, agent.candidate_agent) for agent in chosen.comparisons] == [("a", "b")]
    assert metrics.compare(one, two, agent="a").comparisons[0].candidate_agent == "a"


def test_an_agent_behind_two_servers_is_two_entries(make_row: Make) -> None:
    """Entries that share an agent are told apart by their environment server."""
    both = metrics.aggregate([make_row(0, 0), make_row(0, 0, 0.0, _ng_environment_server="shop")]).to_json()
    found = metrics.compare(both, both)
    assert [agent.baseline_agent for agent in found.comparisons] == ["agent", "agent@shop"]


def test_there_must_be_something_to_compare(make_row: Make) -> None:
    """Wrong files, agents and metrics are usage errors that say what there is."""
    one, two = run(make_row, [[1.0]], agent_ref={"name": "a"}), run(make_row, [[1.0]], agent_ref={"name": "b"})
    with pytest.raises(UsageError, match="no agent in common: baseline has a; candidate has b"):
        metrics.compare(one, two)
    with pytest.raises(UsageError, match="candidate has no agent 'a'; it has b"):
        metrics.compare(one, two, agent="a")
    with pytest.raises(UsageError, match="baseline has several agents, name one: a, b"):
        metrics.compare([*one, *two], one, candidate_agent="a")
    with pytest.raises(UsageError, match="no agent in these"):
        metrics.compare([], one)
    with pytest.raises(UsageError, match="no list of aggregate metrics"):
        metrics.compare([{"agent_metrics": {}}], one)
    with pytest.raises(UsageError, match="no metric in common"):
        metrics.compare(one, [{"agent_ref": {"name": "a"}, "agent_metrics": {"score": 1}, "repeat_level_metrics": []}])


def test_files_of_older_versions_get_their_repeats_back(make_row: Make) -> None:
    """An entry without repeats has them computed from the rollouts' own numbers."""
    entry = run(make_row, [[1.0, 0.0], [0.0, 0.0]])[0]
    old = {name: entry[name] for name in ("agent_ref", "group_level_metrics", "key_metrics")}
    old["agent_metrics"] = {"mean/reward": 0.25}
    (agent,) = metrics.compare([old], [entry]).comparisons
    (row,) = [row for row in agent.metrics if row.metric == "mean/reward"]
    assert row.baseline == row.candidate
    assert row.change.delta_ci_low is not None


def test_notes_say_what_weakens_the_comparison(make_row: Make) -> None:
    """Other repeats, repeats that lack tasks, metrics of one run only."""
    before = run(make_row, [[1.0], [0.0]])
    after = run(make_row, [[1.0, 0.0], [0.0]], extra=3)
    (agent,) = metrics.compare(before, after).comparisons
    text = " ".join(agent.notes)
    for part in ("1 and 2 repeats", "repeats of the candidate lack tasks", "no interval", "1 metrics are in one run"):
        assert part in text, part
    assert agent.repeat_counts == (1, 2)


def test_the_report_is_json_and_markdown(make_row: Make) -> None:
    """Both forms carry the same numbers and where they came from; cells cannot break the table."""
    before = run(make_row, [[1.0, 0.0], [1.0, 1.0]], agent_ref={"name": "a|b"}, steps=12345.678, seen=True)
    after = run(make_row, [[0.0, 0.0], [0.0, 0.0]], agent_ref={"name": "a|b"}, steps=2)
    found = metrics.compare(before, after, labels=("old", "new"))
    document = metrics.to_json(found, {"command": "eval compare"})
    assert json.loads(json.dumps(document)) == document
    assert document["command"] == "eval compare"
    (agent,) = document["comparisons"]
    rows = {row["metric"]: row for row in agent["metrics"]}
    assert rows["mean/reward"]["candidates"][0]["delta"] == -0.75
    assert rows["mean/reward"]["candidates"][0]["paired_bootstrap"]["tasks"] == 2
    assert rows["mean/seen"]["candidates"] == [None]
    assert agent["flips"][0]["flips"][0]["direction"] == "pass_to_fail"
    text = metrics.to_markdown(found, {"command": "eval compare"})
    assert text.startswith("# new compared with old\n\n- command: `eval compare`\n")
    for part in ("`mean/reward`", "-0.7500 (-100.0 %)", "12345.68", "pass → fail", "In one run only", "1, 1"):
        assert part in text, part
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in lines)


@pytest.mark.parametrize(
    ("name", "primary"),
    [
        ("mean/reward", True),
        ("pass@4/accuracy", True),
        ("std/reward", False),
        ("pass@1[avg-of-2]/accuracy/std_dev_across_runs", False),
        ("mean_across_repeats/mean/reward", False),
        ("num_repeats", False),
        ("wer_ci_lower", False),
        ("score/p95", False),
    ],
)
def test_statistics_over_a_metric_are_not_compared(name: str, primary: bool) -> None:
    """Only estimates are rows of a comparison."""
    assert metrics.is_primary_metric(name) is primary
