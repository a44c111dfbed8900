"""A line that is in a file twice is counted once, and told of with its file and number."""

from __future__ import annotations

import pytest

from gym_trio.collection import (
    RunOptions,
    aggregate_files,
    compare_files,
    prepare_run,
    profile_files,
    reverify_rollouts,
)
from gym_trio.errors import ResponseError, RowError


def _row(task, rollout, reward=1.0, **more):
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "responses_create_params": {"input": f"q{task}"},
        "response": {"output": []},
        "reward": reward,
        **more,
    }


ROWS = [_row(0, 0), _row(0, 1, 0.0), _row(1, 0), _row(1, 1)]
DOUBLED = [*ROWS[:2], ROWS[1], *ROWS[2:], ROWS[0]]
SAYS = "line 3 repeats line 2 (task 0, repeat 1), line 6 repeats line 1 (task 0, repeat 0); counted once"


def test_an_aggregate_counts_it_once(put):
    """And what it measures is what it was without."""
    whole, doubled = put("whole.jsonl", ROWS), put("doubled.jsonl", DOUBLED)
    made, expected = aggregate_files(str(doubled)), aggregate_files(str(whole))
    assert made.notes == (f"{doubled}: {SAYS}",)
    assert expected.notes == ()
    assert made.coverage == expected.coverage
    assert made.entries[0]["agent_metrics"] == expected.entries[0]["agent_metrics"]


def test_a_line_of_another_shard_is_named_with_its_file(put, read, tmp_path):
    """Merged, it is there once; another agent's row of the same task and repeat is not the same."""
    first, second = put("a.jsonl", ROWS[:2]), put("b.jsonl", [ROWS[1], _row(0, 0, agent_ref={"name": "other"})])
    made = aggregate_files([str(first), str(second)], output=tmp_path / "all.jsonl")
    assert made.notes == (f"{second}: line 1 repeats {first}:2 (task 0, repeat 1); counted once",)
    assert made.coverage.scored == 3
    assert len(read(tmp_path / "all.jsonl")) == 3


def test_attempts_of_one_rollout_are_not_the_same_line(put):
    """The latest stands, and there is nothing to tell; rows that do not say which they are repeat nothing."""
    rows = [_row(0, 0, 0.0), _row(0, 0, 1.0, _ng_attempt_index=1), {"reward": 1.0}, {"reward": 1.0}]
    made = aggregate_files(str(put("r.jsonl", rows)))
    assert made.notes == ()
    assert made.coverage.scored == 3
    assert made.entries[0]["agent_metrics"]["mean/reward"] == 1.0


def test_many_are_told_in_one_line(put):
    """The first are named, the others are counted."""
    rows = [_row(n, 0) for n in range(8)]
    (note,) = aggregate_files(str(put("r.jsonl", rows * 2))).notes
    assert note.endswith("line 13 repeats line 5 (task 4, repeat 0) and 3 more lines repeat others; counted once")


def test_a_profile_counts_it_once(put, read):
    """In the numbers of its task, in the completion, and in the file."""
    doubled = put("r.jsonl", DOUBLED)
    put("r_materialized_inputs.jsonl", ROWS)
    made = profile_files(doubled)
    assert made.notes == (f"{doubled}: {SAYS}",)
    assert made.profile.completion["completed_rollout_rows"] == 4
    assert [(row["num_rollouts"], row["mean/reward"]) for row in read(made.paths[0])] == [(2, 0.5), (2, 1.0)]


def test_a_profile_shows_each_tasks_first_input_also_between_blank_lines(put, read):
    """It is read again from where it stands."""
    lines = [f'{{"_ng_task_index": {t}, "_ng_rollout_index": {r}, "é": "{t}.{r}"}}\n' for t in (1, 0) for r in (0, 1)]
    put("r_materialized_inputs.jsonl", "\n\n".join(lines))
    made = profile_files(put("r.jsonl", ROWS))
    assert [row["sample"] for row in read(made.paths[0])] == [{"é": "0.0"}, {"é": "1.0"}]


def test_a_profile_names_the_file_and_line_of_what_does_not_belong(put, tmp_path):
    """Not the place in some list; and what can be done where rollouts are missing."""
    inputs = put("r_materialized_inputs.jsonl", ROWS)
    rollouts = put("r.jsonl", [ROWS[0], _row(7, 0)])
    with pytest.raises(RowError, match=rf"{rollouts}:2: rollout 7:0 has no input"):
        profile_files(rollouts)
    with pytest.raises(RowError, match=rf"{rollouts}:1: _ng_rollout_index must be a whole number, not 'x'"):
        profile_files(put("r.jsonl", [_row(0, "x")]))
    with pytest.raises(RowError, match=rf"{rollouts}: 3 of 4 inputs .* 1:1; --allow-partial-rollouts profiles those"):
        profile_files(put("r.jsonl", ROWS[:1]))
    put("r_materialized_inputs.jsonl", "\n".join(["", *('{"_ng_task_index": 0, "_ng_rollout_index": 0}',) * 2]))
    with pytest.raises(RowError, match=rf"{inputs}:3: a second input for rollout 0:0"):
        profile_files(rollouts)
    with pytest.raises(RowError, match=r"r\.jsonl:1: _ng_task_index must be a whole number, not \[\]"):
        aggregate_files(str(put("r.jsonl", [_row([], 0)])))


def test_a_comparison_counts_it_once(put):
    """Of rows that have no aggregate yet; of either run."""
    whole, doubled = put("whole.jsonl", ROWS), put("doubled.jsonl", DOUBLED)
    made = compare_files(doubled, whole)
    assert made.notes == (f"{doubled}: {SAYS}",)
    (agent,) = made.comparison.comparisons
    assert agent.flips.changed_count == 0
    assert all(row.baseline == row.candidate for row in agent.metrics)


async def test_a_reverification_verifies_it_once(put, read, tmp_path):
    """Of several attempts the latest; rows of one rollout by two agents are refused, as in any run."""
    rows = [*DOUBLED, _row(2, 0, 0.0), _row(2, 0, 1.0, _ng_attempt_index=2), _row(2, 0, 0.0, _ng_attempt_index=1)]
    source = put("old.jsonl", rows)
    seen = []

    async def verify(row):
        seen.append((row["_ng_task_index"], row["_ng_rollout_index"], row.get("_ng_attempt_index", 0)))
        return 1.0

    with prepare_run(RunOptions(output=tmp_path / "new" / "r.jsonl", rows=source, recorded=True)) as run:
        assert run.notes == (
            f"{source}: {SAYS}",
            f"{source}: 2 lines are of older attempts, and were left out (7, 9)",
        )
        done = await reverify_rollouts(run, verify)
    assert sorted(seen) == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (2, 0, 2)]
    assert done.report.coverage.scored == done.report.coverage.expected == len(read(done.report.files.output)) == 5
    two = put("two.jsonl", [ROWS[0], _row(0, 0, agent_ref={"name": "b"})])
    options = RunOptions(output=tmp_path / "two" / "r.jsonl", rows=two, recorded=True)
    with pytest.raises(RowError, match=r"two\.jsonl:2: repeats line 1's"), prepare_run(options):
        pytest.fail("it was prepared")


async def test_a_resumed_run_counts_a_result_once(go, tasks):
    """It owes nothing more, and says which line it did not count."""
    report = await go(tasks(2))
    output = report.files.output
    lines = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(b"".join([*lines, lines[0]]))
    again = await go(tasks(2), resume=True)
    assert (again.complete, again.completed, again.coverage.scored) == (True, 0, 2)
    (note,) = again.notes
    assert note.startswith(f"{output}: line 3 repeats line 1 (task ")


async def test_a_failure_that_is_there_twice_is_one_attempt(go, tasks, read):
    """Three attempts are three attempts: a doubled line takes none away."""
    sent = []

    async def run(attempt):
        sent.append(attempt.row.get("_ng_attempt_index", 0))
        raise ResponseError("boo", server="a", status=500)

    report = await go(tasks(1), run)
    failures = report.files.failures
    failures.write_bytes(failures.read_bytes() * 3)
    for _ in range(4):
        again = await go(tasks(1), run, resume=True)
    assert sent == [0, 1, 2]
    assert again.notes == (
        f"{failures}: line 2 repeats line 1 (task 0, repeat 0), line 3 repeats line 1 (task 0, repeat 0); counted once",
    )


async def test_a_complete_runs_damaged_aggregate_is_made_again(go, tasks):
    """What was cut in the middle is not told as the run's metrics, and ends nothing."""
    report = await go(tasks(1))
    report.files.aggregate.write_text('[{"key_metr')

    async def aggregate(run):
        return [{"made": "again"}]

    again = await go(tasks(1), resume=True, more={"aggregate": aggregate})
    assert again.aggregate == [{"made": "again"}]


async def test_a_row_that_is_to_be_sent_twice_is_sent_once(go, tasks, read):
    """Where the rows of a run are all that is known of it, they may have been put together by hand."""
    report = await go(tasks(3))
    files = report.files
    files.identity.unlink()
    lines = files.materialized.read_bytes().splitlines(keepends=True)
    files.materialized.write_bytes(b"".join([*lines, lines[2], lines[0]]))
    files.output.write_bytes(files.output.read_bytes().splitlines(keepends=True)[0])
    again = await go(tasks(3), resume=True)
    assert (again.complete, again.completed) == (True, 2)
    assert len(read(files.output)) == 3
    assert files.materialized.read_bytes().splitlines(keepends=True) == lines
    said = "line 4 repeats line 3 (task 2, repeat 0), line 5 repeats line 1 (task 0, repeat 0); counted once"
    assert f"{files.materialized}: {said}" in again.notes
