"""What goes into an aggregate and what does not."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gym_trio import metrics
from gym_trio.errors import RowError

Make = Callable[..., dict[str, Any]]


def only(aggregate: metrics.Aggregate) -> metrics.SourceAggregate:
    (source,) = aggregate.sources
    return source


def test_rows_are_kept_apart_by_agent_and_environment_server(make_row: Make) -> None:
    """Each agent has an entry of its own, and so has each environment server in front of one."""
    rows = [
        make_row(0, 0, 1.0),
        make_row(0, 0, 0.0, agent_ref={"type": "responses_api_agents", "name": "other"}),
        make_row(0, 0, 0.5, _ng_environment_server="shop"),
    ]
    entries = metrics.aggregate(rows).to_json()
    assert [(e["agent_ref"]["name"], e.get("_ng_environment_server")) for e in entries] == [
        ("agent", None),
        ("agent", "shop"),
        ("other", None),
    ]
    assert [e["key_metrics"]["mean/reward"] for e in entries] == [1.0, 0.5, 0.0]


def test_rows_may_say_next_to_nothing() -> None:
    """A row without indices or agent belongs to task 0 of the default agent and is its next repeat."""
    rows = [{"reward": 1.0}, {"reward": 0}, {"reward": 0.5, "_ng_rollout_index": 7}, {}]
    entry = only(metrics.aggregate(rows, default_agent="mine")).to_json()
    assert entry["agent_ref"] == {"name": "mine"}
    assert [info["_ng_rollout_index"] for info in entry["group_level_metrics"][0]["rollout_infos"]] == [0, 1, 2, 7]
    assert entry["agent_metrics"]["mean/reward"] == 0.5


def test_nothing_has_an_empty_aggregate() -> None:
    """No rows give no entries, and the empty answer of a route."""
    aggregate = metrics.aggregate([])
    assert aggregate.to_json() == []
    assert aggregate.coverage.line == "expected 0, scored 0, failed 0, masked 0, missing 0"
    assert metrics.aggregate_responses([]) == {
        "agent_metrics": {},
        "key_metrics": {},
        "group_level_metrics": [],
        "repeat_level_metrics": [],
    }


@pytest.mark.parametrize(
    "row", [[], "row", None, {"_ng_task_index": 1.5}, {"_ng_rollout_index": "x"}, {"_ng_task_index": True}]
)
def test_what_is_no_row_is_an_error(row: Any) -> None:
    """A row that is no object, or whose index is not one, is named as such."""
    with pytest.raises(RowError):
        metrics.aggregate([row])


def test_only_finite_numbers_are_measured(make_row: Make) -> None:
    """Texts, lists, infinities and numbers too large for a float are no columns; bools are 0 and 1."""
    row = make_row(text="7", items=[1], wide=10**400, none=None, off=float("inf"), nan=float("nan"), ok=True)
    agent = only(metrics.aggregate([row, make_row(0, 1, ok=False)])).agent_metrics
    names = {name.split("/", 1)[1] for name in agent if name.startswith("mean/")}
    assert names == {"reward", "ok"}
    assert agent["mean/ok"] == 0.5


def test_tasks_may_have_names(make_row: Make) -> None:
    """Numbered tasks come first and in order, then named ones."""
    rows = [make_row("b"), make_row(10), make_row("a"), make_row(9)]
    groups = list(only(metrics.aggregate(rows)).groups())
    assert [group["_ng_task_index"] for group in groups] == [9, 10, "a", "b"]


def test_a_later_attempt_stands_for_its_rollout(make_row: Make) -> None:
    """Of several rows for one rollout the latest attempt counts, whatever the order they come in; and it is said."""
    rows = [make_row(reward=r, _ng_attempt_index=a, extra=r) for a, r in ((1, 0.25), (2, 0.75), (0, 1.0), (2, 0.5))]
    source = only(metrics.aggregate(rows))
    assert source.agent_metrics["mean/reward"] == 0.75
    assert source.agent_metrics["mean/extra"] == 0.75
    (warning,) = source.warnings
    assert (warning["kind"], warning["rows"]) == ("duplicate_rows", 3)


def test_a_masked_rollout_is_not_measured_and_is_reported(make_row: Make) -> None:
    """Masked rows leave the quality numbers, stay in the performance ones, and are counted."""
    perf = {"num_turns": 2}
    rows = [make_row(0, 0, 1.0, ng_perf=perf), make_row(0, 1, 0.0, mask_sample=True, ng_perf=perf)]
    rows += [make_row(1, 0, 0.0, mask_sample=True)]
    aggregate = metrics.aggregate(rows)
    source = only(aggregate)
    assert source.key_metrics == {
        "mean/reward": 1.0,
        "coverage/measured_rollouts": 1,
        "coverage/masked_rollouts": 2,
        "coverage/measured_tasks": 1,
        "coverage/fully_masked_tasks": 1,
    }
    assert source.agent_metrics["num_repeats"] == 2
    assert source.perf_summary is not None
    assert source.perf_summary["overall_observability_coverage"] == pytest.approx(2 / 3)
    assert (aggregate.coverage.scored, aggregate.coverage.masked) == (3, 2)


def test_a_run_that_is_masked_throughout_has_no_score(make_row: Make) -> None:
    """A mean over nothing is not zero; what is there to say is the coverage."""
    source = only(metrics.aggregate([make_row(mask_sample=True)]))
    assert source.key_metrics == source.agent_metrics
    assert source.agent_metrics["coverage/masked_rollouts"] == 1
    assert source.metrics()["group_level_metrics"] == []
    assert "mean/reward" not in source.agent_metrics


def test_missing_and_failed_rollouts_are_told_apart(make_row: Make) -> None:
    """What was dispatched is scored, failed or missing; a failure that succeeded later is none."""
    aggregator = metrics.Aggregator()
    for rollout in range(5):
        aggregator.expect(make_row(0, rollout, None))
    aggregator.add(make_row(0, 0))
    aggregator.add_failure(make_row(0, 0, None, _ng_failure_class="timeout_exceeded"))
    aggregator.add_failure(make_row(0, 1, None, _ng_failure_class="judge_failed", _ng_attempt_index=1))
    aggregator.add_failure(make_row(0, 1, None, _ng_failure_class="timeout_exceeded", _ng_attempt_index=0))
    aggregator.add_failure(make_row(0, 2, None))
    coverage = aggregator.finish().coverage
    assert (coverage.expected, coverage.scored, coverage.missing) == (5, 1, 2)
    assert coverage.failed == {"judge_failed": 1, "unknown": 1}
    assert coverage.line == "expected 5, scored 1, failed 2 (1 judge_failed, 1 unknown), masked 0, missing 2"
    assert coverage.exported() == {"coverage/expected": 5, "coverage/scored": 1, "coverage/missing": 4}


def test_a_failure_is_never_a_zero_unless_its_class_is_named(make_row: Make) -> None:
    """Counted classes give a zero with the task's fields that real rows have, and no diagnosis as a metric."""

    def run(**options: Any) -> metrics.Aggregate:
        aggregator = metrics.Aggregator(**options)
        for rollout in range(4):
            aggregator.expect(make_row(0, rollout, None, level=3, unseen=9))
        aggregator.add(make_row(0, 0, 1.0, level=3))
        aggregator.add_failure(
            make_row(0, 1, None, _ng_failure_class="judge_failed", _ng_failure_http_status=503, elapsed_seconds=4.0)
        )
        aggregator.add_failure(make_row(0, 2, None, _ng_failure_class="skipped"))
        return aggregator.finish()

    assert only(run()).agent_metrics["mean/reward"] == 1.0
    counted = run(count_failure_classes_as_zero=["judge_failed"])
    assert only(counted).agent_metrics["mean/reward"] == 0.5
    assert only(counted).agent_metrics["mean/level"] == 3
    assert {name for name in only(counted).key_metrics} == {"mean/reward", "mean/level"}
    assert (counted.coverage.counted_failures, counted.coverage.scored, counted.coverage.missing) == (1, 2, 1)
    assert counted.coverage.imputed is None
    assert "scored 2 (of these 1 failed, counted as zero), failed 1 (1 skipped)" in counted.coverage.line
    everything = run(count_failure_classes_as_zero=["judge_failed"], count_missing_rollouts_as_zero=True)
    assert only(everything).agent_metrics["mean/reward"] == pytest.approx(1 / 3)
    assert everything.coverage.exported()["coverage/imputed"] == 1
    assert "scored 3 (of these 1 failed and 1 missing, counted as zero)" in everything.coverage.line
    lost = run(count_missing_rollouts_as_zero=True)
    assert lost.coverage.failed == {"judge_failed": 1, "skipped": 1}
    assert lost.coverage.imputed == 1
    assert "scored 2 (of these 1 missing, counted as zero)" in lost.coverage.line
    assert run(count_missing_rollouts_as_zero=True).coverage.exported() == lost.coverage.exported()


def test_a_counted_failure_keeps_its_own_reward_and_joins_its_agents_rows(make_row: Make) -> None:
    """A failure row that has a reward counts with it, unmasked, where the agent's other rows are."""
    aggregator = metrics.Aggregator(count_failure_classes_as_zero=["judge_failed"])
    aggregator.add(make_row(0, 0, 0.0, _ng_environment_server="shop"))
    aggregator.add_failure(make_row(0, 1, 0.5, _ng_failure_class="judge_failed", mask_sample=True))
    source = only(aggregator.finish())
    assert source.source == metrics.Source("agent", "shop")
    assert source.agent_metrics["mean/reward"] == 0.25


def test_a_run_without_any_result_can_still_count_zeros(make_row: Make) -> None:
    """When everything is missing and counted, the score is 0 and not absent."""
    aggregator = metrics.Aggregator(count_missing_rollouts_as_zero=True)
    aggregator.expect(make_row(0, 0, None))
    aggregator.expect(make_row(0, 1, None))
    assert only(aggregator.finish()).key_metrics == {"mean/reward": 0.0}


def test_expected_counts_of_tasks(make_row: Make) -> None:
    """A task's row says how many of its rollouts were dispatched; a masked one is not missing."""
    aggregator = metrics.Aggregator()
    for rollout in range(4):
        aggregator.expect(make_row(0, rollout, None))
    aggregator.add(make_row(0, 0))
    aggregator.add(make_row(0, 1, mask_sample=True))
    (group,) = only(aggregator.finish()).groups()
    assert (group["num_rollouts"], group["expected_num_rollouts"], group["missing_num_rollouts"]) == (1, 3, 2)
    assert group["reward_profile_completion_pct"] == pytest.approx(100 / 3)


def test_columns_of_masked_rows_alone_are_no_metrics(make_row: Make) -> None:
    """A number that only masked rows have is measured nowhere."""
    rows = [make_row(0, 0), make_row(0, 1, mask_sample=True, odd=0.5)]
    entry = metrics.aggregate_responses(rows)
    assert not any("odd" in name for name in (*entry["agent_metrics"], *entry["intervals"]))


def test_named_rewards_are_metrics_too(make_row: Make) -> None:
    """Each under a name of its own; what is no number is none."""
    rows = [
        make_row(0, i, reward_components={"format": i, "answer": 0.5, "note": "x", "odd": math.nan}) for i in (0, 1)
    ]
    entry = metrics.aggregate_responses(rows)
    found = {name: value for name, value in entry["agent_metrics"].items() if "reward_components" in name}
    assert found["mean/reward_components/format"] == 0.5
    assert found["mean/reward_components/answer"] == 0.5
    assert not any("note" in name or "odd" in name for name in found)


def test_integers_that_no_float_holds_are_not_given_back_as_others(make_row: Make) -> None:
    """A whole number beyond 2^53 comes back as the float it was measured as."""
    (group,) = only(metrics.aggregate([make_row(big=2**60 + 1, small=2**53)])).groups()
    (info,) = group["rollout_infos"]
    assert isinstance(info["big"], float)
    assert info["small"] == 2**53


class Author:
    """An environment author's object with both hooks."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        self.seen = [[dict(row) for row in task] for task in tasks]
        tasks[0][0].clear()
        return {
            **metrics.pass_majority_metrics([task for task in self.seen]),
            "per_task_metrics": [{"_ng_task_index": 1, "difficulty": 0.3}],
        }

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        return metrics.highest_k_metrics(agent_metrics, "pass@{k}")


def test_an_authors_hooks_add_metrics(make_row: Make) -> None:
    """The hooks get the measured rows of each task in order, without conversations, and their metrics are merged."""
    author = Author()
    rows = [
        make_row(1, 0, 0.0, mask_sample=True),
        make_row(0, 1, 1.0, responses_create_params={"input": "long"}, response={"output": [1], "usage": {"x": 1}}),
        make_row(0, 0, 0.0, answer="A"),
        make_row(1, 1, 0.0),
    ]
    aggregator = metrics.Aggregator(hooks=lambda source: metrics.Hooks.of(author))
    for row in rows:
        aggregator.add(row)
    source = only(aggregator.finish())
    assert [[row["reward"] for row in task] for task in author.seen] == [[0.0, 1.0], [0.0]]
    assert author.seen[0][0]["answer"] == "A"
    assert author.seen[0][1]["response"] == {"usage": {"x": 1}}
    assert "responses_create_params" not in author.seen[0][1]
    assert source.key_metrics["pass@2/accuracy"] == 100
    assert source.agent_metrics["per_sample_aggregate"] == {"accuracy": [0.0, 100.0]}
    groups = list(source.groups())
    assert ["difficulty" in group for group in groups] == [False, True]
    assert groups[0]["num_rollouts"] == 2


def test_hooks_see_the_row_that_stands(make_row: Make) -> None:
    """Where a later attempt replaced a row, the author gets the later one; rows without indices have theirs."""
    author = Author()
    aggregator = metrics.Aggregator(hooks=lambda source: metrics.Hooks.of(author))
    rows = [make_row(reward=0.0, _ng_attempt_index=0), make_row(reward=1.0, _ng_attempt_index=1), {"reward": 0.5}]
    for row in rows:
        aggregator.add(row)
    aggregator.finish()
    assert [[(row["_ng_rollout_index"], row["reward"]) for row in task] for task in author.seen] == [
        [(0, 1.0), (1, 0.5)],
    ]


def broken(*args: Any) -> dict[str, Any]:
    raise ZeroDivisionError("no rows of my kind")


def leaving(*args: Any) -> dict[str, Any]:
    raise SystemExit(3)


@pytest.mark.parametrize("hook", [broken, leaving, lambda *args: [1], lambda *args: {1: 2}])
def test_a_hook_that_fails_costs_its_own_metrics(make_row: Make, hook: Any) -> None:
    """A hook that raises, exits or returns no metrics is reported; all other metrics are as without it."""
    rows = [make_row(0, 0), make_row(0, 1, 0.0)]
    plain = metrics.aggregate_responses(rows)
    found = metrics.aggregate_responses(rows, metrics.Hooks(hook, hook))
    assert [warning["hook"] for warning in found.pop("warnings")] == ["compute_metrics", "get_key_metrics"]
    plain.pop("warnings")
    assert found == plain


def test_bad_rows_for_tasks_cost_the_hook(make_row: Make) -> None:
    """Per-task metrics without a task index are the hook's failure."""
    hooks = metrics.Hooks(compute_metrics=lambda tasks: {"mine": 1, "per_task_metrics": [{"x": 1}]})
    found = metrics.aggregate_responses([make_row()], hooks)
    assert "mine" not in found["agent_metrics"]
    assert found["warnings"][0]["kind"] == "hook_failed"


def test_a_hook_may_have_nothing_to_say(make_row: Make) -> None:
    """None is no metrics; an object without hooks has none."""
    hooks = metrics.Hooks(compute_metrics=lambda tasks: {}, get_key_metrics=lambda found: {})
    assert metrics.aggregate_responses([make_row()], hooks)["key_metrics"] == {}
    assert metrics.Hooks.of(object()) == metrics.Hooks()


def test_intervals_stand_beside_the_contracts_keys(make_row: Make) -> None:
    """Bounded metrics have intervals within their range in a key of their own, where the t-interval leaves it."""
    rows = [make_row(t, r, float((t + r) % 3 == 0), steps=t) for t in range(6) for r in range(3)]
    entry = only(metrics.aggregate(rows)).to_json()
    found = entry["intervals"]
    assert set(found) == {"mean/reward", "pass@1/accuracy", "pass@3/accuracy"}
    reward = found["mean/reward"]
    for method in ("wilson", "clustered_bootstrap"):
        low, high = reward[f"{method}_low_95"], reward[f"{method}_high_95"]
        assert 0 <= low <= entry["agent_metrics"]["mean/reward"] <= high <= 1
    assert set(reward["repeats"]) == {"0", "1", "2"}
    assert found["pass@1/accuracy"]["clustered_bootstrap_high_95"] <= 100
    assert entry["pass_metrics"]["pass@3/accuracy"] == pytest.approx(100)
    assert not any("wilson" in name or "bootstrap" in name for name in entry["agent_metrics"])


def test_a_warning_where_pass_at_k_leaves_tasks_out(make_row: Make) -> None:
    """Tasks with too few repeats are named by number, and so are repeats that lack tasks."""
    rows = [make_row(0, r) for r in range(4)] + [make_row(1, r) for r in range(2)]
    warnings = {warning["kind"]: warning for warning in only(metrics.aggregate(rows)).warnings}
    assert warnings["too_few_repeats"]["left_out_by_k"] == {"3": 1, "4": 1}
    assert "1 of 2 tasks" in warnings["too_few_repeats"]["message"]
    assert warnings["repeats_incomplete"]["missing_by_repeat"] == {"2": 1, "3": 1}
    whole = [make_row(t, r) for t in range(2) for r in range(2)]
    assert only(metrics.aggregate(whole)).warnings == []


def test_a_warning_where_some_results_have_no_reward(make_row: Make) -> None:
    """The mean is that of the others, which their number does not say; rows that are masked do not matter."""
    rows = [
        make_row(0, 0),
        make_row(1, 0, None),
        make_row(2, 0, None) | {"reward": "high"},
        make_row(3, 0, None, mask_sample=True),
    ]
    found = only(metrics.aggregate(rows))
    assert found.agent_metrics["mean/reward"] == 1.0
    (warning,) = [one for one in found.warnings if one["kind"] == "without_reward"]
    assert warning["message"].startswith("2 of 3 results have no reward that is a number")
    for same in ([make_row(0, 0), make_row(1, 0)], [make_row(0, 0, None), make_row(1, 0, None)]):
        assert not any(one["kind"] == "without_reward" for one in only(metrics.aggregate(same)).warnings)


def test_a_single_value_has_no_deviation(make_row: Make) -> None:
    """A column with one value has a deviation of zero; repeats of one task have no interval."""
    source = only(metrics.aggregate([make_row(0, 0, 0.25), make_row(0, 1, 0.75, rare=3)]))
    assert source.agent_metrics["std/rare"] == 0
    assert source.agent_metrics["std/reward"] == pytest.approx(statistics.stdev([0.25, 0.75]))
    assert not any(name.startswith("ci_") for row in source.repeat_level_metrics for name in row)
    assert source.agent_metrics["std_across_repeats/mean/rare"] == 0
    assert "ci_low_95_across_repeats/mean/rare" not in source.agent_metrics


def test_reprs_say_how_much_there_is(make_row: Make) -> None:
    """An aggregator shows its counts."""
    aggregator = metrics.Aggregator()
    aggregator.add(make_row())
    assert repr(aggregator) == "<Aggregator sources=1 rows=1>"


def test_live_statistics_follow_the_run(make_row: Make) -> None:
    """The running mean is over measured rollouts; failures and masked rows are counted beside it."""
    running = metrics.RunningReward()
    assert str(running.statistics()) == "0 completed, 0 failed, 0 masked, no reward yet"
    for reward in (1.0, 0.0, 1.0, 0.5):
        running.add(make_row(reward=reward))
    running.add(make_row(reward=0.0, mask_sample=True))
    running.add(make_row(reward=None))
    running.add_failure()
    assert running.statistics() == metrics.LiveStatistics(6, 1, 1, 0.625)
    assert "mean reward 0.6250" in repr(running)
