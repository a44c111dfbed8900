"""Aggregate, merge, profile, compare, health check and reverify over files."""

from __future__ import annotations

import json
import pathlib

import pytest

from gym_trio.collection import (
    RunFiles,
    RunOptions,
    aggregate_files,
    aggregate_run,
    compare_files,
    health_check_dir,
    parse_shard,
    prepare_run,
    profile_files,
    read_rows,
    reverify_rollouts,
)
from gym_trio.errors import ConnectFailed, ResponseError, RolloutFailure, RowError, UsageError

SHARED = pathlib.Path(__file__).parents[3] / "shared"


async def score(attempt):
    """A rollout whose reward depends on its row alone."""
    task, rollout = attempt.row["n"], attempt.row["_ng_rollout_index"]
    if task == 3 and rollout == 1:
        raise ResponseError("boo", server="a", status=500)
    return {
        **attempt.row,
        "response": {"output": [], "usage": {"total_tokens": 3}},
        "reward": float((task + rollout) % 2),
    }


async def test_a_runs_aggregate_is_written_beside_it(go, tasks, read):
    """In the contract's form; what is told has no groups."""
    report = await go(tasks(4), score, num_repeats=2, agent="a", more={"aggregate": aggregate_run})
    (written,) = json.loads(report.files.aggregate.read_text())
    assert written["agent_ref"] == {"name": "a"}
    assert written["agent_metrics"]["mean/reward"] == pytest.approx(4 / 7)
    assert [group["_ng_task_index"] for group in written["group_level_metrics"]] == [0, 1, 2, 3]
    assert written["group_level_metrics"][3]["expected_num_rollouts"] == 2
    written.pop("group_level_metrics")
    assert report.aggregate == [written]


async def test_failures_and_missing_rollouts_count_as_zero_where_that_is_asked_for(go, tasks):
    """By class; the files themselves get no reward that no verifier gave."""
    zero = {"count_failure_classes_as_zero": ["agent_run_error"]}
    report = await go(tasks(4), score, num_repeats=2, **zero, more={"aggregate": aggregate_run})
    assert report.aggregate[0]["agent_metrics"]["mean/reward"] == pytest.approx(4 / 8)
    lines = report.files.output.read_bytes().splitlines(keepends=True)
    report.files.output.write_bytes(b"".join(lines[:-1]))
    whole = aggregate_files(str(report.files.output), **zero, count_missing_rollouts_as_zero=True)
    assert whole.entries[0]["agent_metrics"]["num_repeats"] == 2
    assert (whole.coverage.expected, whole.coverage.imputed, whole.coverage.missing) == (8, 1, 0)
    assert whole.path is None


async def test_shards_merge_into_what_one_run_would_have_made(go, tasks, read, tmp_path):
    """Results, failures, materialised rows and aggregate are those of the whole; shards may overlap."""
    for number in (1, 2, 3):
        output = tmp_path / "shards" / f"r-{number}.jsonl"
        await go(tasks(7), score, num_repeats=2, shard=parse_shard(f"{number}/3"), output=output)
    again = tmp_path / "shards" / "r-4.jsonl"
    await go(tasks(7), score, num_repeats=2, shard=parse_shard("1/3"), output=again)
    whole = await go(tasks(7), score, num_repeats=2, more={"aggregate": aggregate_run})
    made = aggregate_files(f"{tmp_path}/shards/r-*.jsonl", output=tmp_path / "shards" / "r-all.jsonl")
    assert [path.name for path in made.inputs] == ["r-1.jsonl", "r-2.jsonl", "r-3.jsonl", "r-4.jsonl"]
    merged = RunFiles.of(tmp_path / "shards" / "r-all.jsonl")
    assert made.merged == merged.output
    assert (made.coverage.expected, made.coverage.scored, made.coverage.missing) == (14, 13, 0)

    def told(path):
        rows = ({k: v for k, v in row.items() if k not in ("ng_perf", "elapsed_seconds")} for row in read(path))
        return sorted(json.dumps(row, sort_keys=True) for row in rows)

    for which in ("output", "failures", "materialized"):
        assert told(getattr(merged, which)) == told(getattr(whole.files, which)), which
    (entry,) = made.entries
    assert entry["key_metrics"] == whole.aggregate[0]["key_metrics"]
    again = aggregate_files([f"{tmp_path}/shards/r-*.jsonl"], output=merged.output)
    assert merged.output not in again.inputs


def test_of_two_results_for_one_rollout_the_later_attempt_is_merged(put, read, tmp_path):
    """Whichever file it stands in; of one attempt the first; rows that say nothing of themselves all stay."""
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    put("s-1.jsonl", [{**row, "reward": 1.0, "_ng_attempt_index": 1}, {"reward": 0.0}])
    put("s-2.jsonl", [{**row, "reward": 0.0}, {**row, "reward": 2.0, "_ng_attempt_index": 1}, {"reward": 0.0}])
    made = aggregate_files(f"{tmp_path}/s-1.jsonl,{tmp_path}/s-2.jsonl", output=tmp_path / "m.jsonl")
    assert [one["reward"] for one in read(tmp_path / "m.jsonl")] == [1.0, 0.0, 0.0]
    assert made.merged == tmp_path / "m.jsonl"
    assert aggregate_files(f"{tmp_path}/s-*.jsonl", output=tmp_path / "n.jsonl", merge=False).merged is None
    assert not (tmp_path / "n.jsonl").exists()


def test_a_shard_that_is_still_being_written_can_be_aggregated(put):
    """Its torn last line is left out and told of; a broken line elsewhere is an error."""
    path = put("r.jsonl", b'{"reward": 1.0}\n\n{"reward": 0.0}\n{"rew')
    made = aggregate_files([str(path)])
    assert made.entries[0]["agent_metrics"]["mean/reward"] == 0.5
    assert made.notes == (f"{path}:4: the last line is torn and was left out",)
    with pytest.raises(RowError, match=r"b\.jsonl:1: is not JSON"):
        aggregate_files([str(put("b.jsonl", b"x\n{}\n"))])


async def test_what_is_merged_takes_the_place_of_no_other_rollout(go, tasks, put, read, tmp_path):
    """Neither of a shard that the glob leaves out because it is the output, nor of a run that may be gone on with."""
    for shard in range(3):
        await go(tasks(6), output=tmp_path / f"s-{shard}.jsonl", shard=(shard, 3))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for patterns in (f"{tmp_path}/s-*.jsonl", [f"{tmp_path}/s-{shard}.jsonl" for shard in range(3)]):
        with pytest.raises(UsageError, match=r"s-0\.jsonl: is the output of a run, and would be replaced"):
            aggregate_files(patterns, output=tmp_path / "s-0.jsonl")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    RunFiles.of(tmp_path / "s-0.jsonl").identity.unlink()
    with pytest.raises(UsageError, match=r"s-0\.jsonl: has 2 rollouts that no file to be merged has"):
        aggregate_files(f"{tmp_path}/s-*.jsonl", output=tmp_path / "s-0.jsonl")
    assert (tmp_path / "s-0.jsonl").read_bytes() == before[tmp_path / "s-0.jsonl"]
    aggregate_files([f"{tmp_path}/s-0.jsonl", f"{tmp_path}/s-1.jsonl"], output=tmp_path / "s-0.jsonl")
    assert sorted(row["n"] for row in read(tmp_path / "s-0.jsonl")) == [0, 1, 3, 4]


@pytest.mark.parametrize("name", ["_ng_task_index", "_ng_rollout_index", "reward"])
def test_a_number_that_no_integer_of_json_holds_is_written_as_another(put, tmp_path, name):
    """By every command that writes metrics; what was measured is as large as it was."""
    rollouts = put("r.jsonl", [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, name: 1e30}])
    aggregate_files(str(rollouts), output=tmp_path / "m.jsonl")
    (entry,) = json.loads((tmp_path / "m_aggregate_metrics.json").read_bytes())
    assert entry["group_level_metrics"][0]["rollout_infos"][0][name] == 1e30
    profile_files(rollouts, inputs=rollouts, allow_partial=True)
    health_check_dir(tmp_path, rollouts_file=rollouts)


def test_files_that_do_not_exist_are_named(tmp_path, put):
    """A path, a glob, and files without a row."""
    with pytest.raises(UsageError, match="there is no such file"):
        aggregate_files(str(tmp_path / "no.jsonl"))
    put("r_failures.jsonl", [])
    with pytest.raises(UsageError, match="no file of rollouts has such a name"):
        aggregate_files(f"{tmp_path}/*.jsonl")
    with pytest.raises(UsageError, match="no rollouts to aggregate"):
        aggregate_files(str(put("e.jsonl", [])))


@pytest.mark.parametrize("name", ["mcqa", "workplace_assistant", "calendar", "graphwalks"])
def test_recorded_rollouts_go_through_every_command(name, tmp_path, put):
    """Rows of real models, as thin as they were recorded."""
    source = SHARED / "data" / "recorded" / f"{name}.jsonl"
    if not source.exists():
        return
    rollouts = put("r.jsonl", source.read_bytes())
    assert aggregate_files(str(rollouts), output=rollouts).merged is None
    profiled = profile_files(rollouts, inputs=rollouts)
    assert all(path.exists() for path in profiled.paths)
    compared = compare_files(rollouts, rollouts, output_dir=tmp_path / "cmp")
    assert [path.name for path in compared.paths] == ["compare_report.md", "compare_report.json"]
    checked = health_check_dir(tmp_path)
    assert checked.inputs == (rollouts,)
    assert sum(checked.report.summary["run"]["verdicts"].values()) == len(list(read_rows(rollouts)))


async def test_a_profile_reads_the_materialised_rows_beside_the_rollouts(go, tasks, read):
    """Three files; a run with missing rollouts needs to be asked for."""
    report = await go(tasks(4), score, num_repeats=2)
    with pytest.raises(RowError):
        profile_files(report.files.output)
    made = profile_files(report.files.output, allow_partial=True)
    assert [path.name for path in made.paths] == [
        "r_reward_profiling.jsonl",
        "r_agent_metrics.json",
        "r_repeat_level_metrics.json",
    ]
    assert [row["_ng_task_index"] for row in read(made.paths[0])] == [0, 1, 2, 3]
    with pytest.raises(UsageError, match="there is no such file"):
        profile_files(report.files.output, inputs="nowhere.jsonl")


async def test_two_runs_are_compared_by_their_aggregates_or_their_rows(go, tasks, tmp_path):
    """The aggregate beside the rollouts, one that is named, or the rows themselves give the same."""
    for name in ("one", "two"):
        await go(tasks(4), score, num_repeats=2, output=tmp_path / name / "r.jsonl")
    rows = compare_files(tmp_path / "one" / "r.jsonl", tmp_path / "two" / "r.jsonl")
    assert rows.paths == ()
    assert str(tmp_path / "one" / "r.jsonl") in rows.markdown
    for name in ("one", "two"):
        aggregate_files(str(tmp_path / name / "r.jsonl"), output=tmp_path / name / "r.jsonl")
    pair = (tmp_path / "one" / "r.jsonl", tmp_path / "two" / "r.jsonl")
    beside = compare_files(*pair, output_dir=tmp_path / "c", report_format="md")
    assert [path.name for path in beside.paths] == ["compare_report.md"]
    named = compare_files(
        tmp_path / "one" / "r_aggregate_metrics.json",
        "whatever.jsonl",
        candidate_metrics=tmp_path / "two" / "r_aggregate_metrics.json",
    )
    assert named.comparison.comparisons[0].metrics == beside.comparison.comparisons[0].metrics


def test_what_cannot_be_compared_is_named(put, tmp_path):
    """No file, no JSON, no aggregate, a folder that cannot be made."""
    good = put("g.json", "[]")
    for text, says in [
        ("{", "is not JSON"),
        ("3", "holds no aggregate metrics"),
        ("[1]", "holds no aggregate metrics"),
    ]:
        with pytest.raises(UsageError, match=says):
            compare_files(put("w.json", text), good)
    with pytest.raises(UsageError, match="there is no such file"):
        compare_files(tmp_path / "no.json", good)
    rows = put("r.jsonl", [{"reward": 1.0}])
    with pytest.raises(UsageError, match="cannot be made"):
        compare_files(rows, rows, output_dir=rows / "sub")


def test_the_health_check_names_the_lines_that_it_cannot_read(put, read, tmp_path):
    """They are findings, and the summary and the verdicts are written."""
    put("r.jsonl", b'{"reward": 1.0}\n\nnonsense\n[1]\n')
    checked = health_check_dir(tmp_path, rollouts_file="r.jsonl")
    assert checked.report.summary["run"]["issues"]["record_unreadable"] == 2
    verdicts = read(tmp_path / "rollout_verdicts.jsonl")
    assert "__unreadable_record__:input-0:line-3" in {row["_ng_task_index"] for row in verdicts}
    assert (tmp_path / "quality_summary.json").exists()
    assert health_check_dir(tmp_path, rollouts_file=tmp_path / "r.jsonl", ignored=["record_unreadable"]).inputs
    with pytest.raises(UsageError, match="there is no such folder"):
        health_check_dir(tmp_path / "no")
    with pytest.raises(UsageError, match="there is no such file"):
        health_check_dir(tmp_path, rollouts_file="no.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no file of rollouts"):
        health_check_dir(tmp_path / "empty")


# Reverify


def _recorded(count):
    response = {"output": [{"type": "message"}]}
    return [
        {
            "responses_create_params": {"input": "q"},
            "response": response,
            "reward": float(n % 2),
            "reward_components": {"old": 1},
            "mask_sample": True,
            "answer": n,
            "_ng_task_index": n,
            "_ng_rollout_index": 0,
        }
        for n in range(count)
    ]


async def test_rewards_are_made_anew_by_the_verifier(put, read, tmp_path):
    """What the earlier verifier said is not shown to the new one; the earlier reward stands beside the new."""
    source = put("old.jsonl", _recorded(6))
    seen = []

    async def verify(row):
        seen.append(row)
        if row["answer"] == 3:
            raise KeyError("boo")
        if row["answer"] == 4:
            raise ConnectFailed("no one there")
        if row["answer"] == 5:
            raise RolloutFailure("shop:odd", "odd", 422)
        return 1.0 if row["answer"] < 2 else {"reward": 0.0, "extra": 1}

    with prepare_run(RunOptions(output=tmp_path / "new" / "r.jsonl", rows=source, recorded=True)) as run:
        told = []
        done = await reverify_rollouts(run, verify, on_outcome=told.append)
    assert not any({"reward", "reward_components", "mask_sample"} & row.keys() for row in seen)
    assert (done.same, done.changed) == (2, 1)
    assert [(one.task, one.before, one.after) for one in done.changes] == [(0, 0.0, 1.0)]
    rows = sorted(read(done.report.files.output), key=lambda row: row["_ng_task_index"])
    assert [(row["reward"], row["_ng_previous_reward"]) for row in rows] == [(1.0, 0.0), (1.0, 1.0), (0.0, 0.0)]
    assert rows[2]["extra"] == 1
    assert "mask_sample" not in rows[0]
    failures = {row["_ng_task_index"]: row for row in read(done.report.files.failures)}
    assert (failures[3]["failure_kind"], failures[3]["_ng_failure_stage"]) == ("verifier_error", "verification")
    assert failures[4]["failure_kind"] == "transport_unreachable"
    assert failures[5]["failure_kind"] == "shop:odd"
    assert len(told) == 6


async def test_a_reverification_is_resumed_like_any_run(put, tmp_path):
    """What was verified is not verified again."""
    source = put("old.jsonl", _recorded(3))
    calls = []

    async def verify(row):
        calls.append(row["answer"])
        if row["answer"] == 1 and len(calls) < 4:
            raise ValueError("once")
        return row["answer"]

    for _ in range(2):
        options = RunOptions(output=tmp_path / "new.jsonl", rows=source, recorded=True, resume=True)
        with prepare_run(options) as run:
            done = await reverify_rollouts(run, verify, max_concurrent=1)
    assert calls == [0, 1, 2, 1]
    assert done.report.complete


def test_a_row_without_a_response_cannot_be_verified(put, tmp_path):
    """It is named by file and line before anything starts."""
    rows = _recorded(2)
    del rows[1]["response"]
    source = put("old.jsonl", rows)
    options = RunOptions(output=tmp_path / "new.jsonl", rows=source, recorded=True)
    with pytest.raises(RowError, match=r"old\.jsonl:2: has no 'response' to verify"), prepare_run(options):
        pytest.fail("it was prepared")


def test_an_aggregate_goes_into_a_folder_that_is_made_for_it(put, tmp_path):
    """And what cannot be written is told before a row is read."""
    rows = put("r.jsonl", [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}])
    made = aggregate_files(str(rows), output=tmp_path / "new" / "all.jsonl")
    assert made.path is not None
    assert made.path.is_file()
    torn = put("torn.jsonl", "no row\n")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        aggregate_files(str(torn), output=tmp_path / "file" / "all.jsonl")
