"""What a resumed run does with what is there."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_trio.collection import RunOptions, aggregate_run, prepare_run
from gym_trio.collection._keys import NumberSet, pack
from gym_trio.collection._ledger import Ledger, Standing
from gym_trio.config import load_config
from gym_trio.errors import RolloutFailure, RowError, RunError, RunLocked, UsageError

FILES = ("r.jsonl", "r_failures.jsonl", "r_materialized_inputs.jsonl")


async def test_a_resume_without_earlier_files_starts_afresh(go, tasks):
    """There is nothing to go on with, and nothing to complain of."""
    report = await go(tasks(2), resume=True)
    assert (report.resumed, report.complete, report.notes) == (False, True, ())


async def test_a_complete_run_is_resumed_to_nothing(go, tasks, tmp_path):
    """No rollout, no file that changes."""
    await go(tasks(2), num_repeats=2)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    sent = []

    async def run(attempt):
        sent.append(attempt)

    report = await go(tasks(2), run, num_repeats=2, resume=True)
    assert (sent, report.resumed, report.complete, report.completed) == ([], True, True, 0)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


async def test_a_complete_runs_aggregate_is_told_again_and_not_made_again(go, tasks, tmp_path):
    """The file's entries, without their groups."""
    report = await go(tasks(1))
    report.files.aggregate.write_text(json.dumps([{"key_metrics": {"x": 1}, "group_level_metrics": [1]}]))

    async def aggregate(run):
        pytest.fail("it was made again")

    report = await go(tasks(1), resume=True, more={"aggregate": aggregate})
    assert report.aggregate == [{"key_metrics": {"x": 1}}]


async def test_failures_are_tried_again_until_they_are_used_up(go, tasks, read):
    """Each attempt is a row with its number; a success ends it, three failures do too."""

    async def run(attempt):
        if attempt.row["n"] == 0 or (attempt.row["n"] == 1 and "_ng_attempt_index" not in attempt.row):
            raise ValueError("boo")
        return {"reward": 1.0}

    counts = []
    for _ in range(5):
        report = await go(tasks(3), run, resume=True)
        counts.append((report.completed, report.failed))
    assert counts == [(1, 2), (1, 1), (0, 1), (0, 0), (0, 0)]
    failures = read(report.files.failures)
    tried = sorted((row["_ng_task_index"], row.get("_ng_attempt_index", 0)) for row in failures)
    assert tried == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert [row["_ng_rollout_id"] for row in failures if row["_ng_task_index"] == 0] == ["0-0", "0-0-a1", "0-0-a2"]
    assert report.coverage.failed == 1
    report = await go(tasks(3), run, resume=True, max_attempts=4)
    assert report.failed == 1


async def test_a_terminal_failure_is_kept(go, tasks):
    """Another attempt cannot help, and is not made; an option makes repairable ones an exception."""

    async def run(attempt):
        raise RolloutFailure("agent_timeout", "t", terminal=True)

    assert (await go(tasks(1), run)).failed == 1
    assert (await go(tasks(1), run, resume=True)).failed == 0
    assert (await go(tasks(1), run, resume=True, retry_terminal_timeouts=True)).failed == 1


async def test_a_run_that_is_not_resumed_keeps_the_earlier_rows_aside(go, tasks, read, tmp_path):
    """Begun afresh by mistake, nothing is lost; what was made from the earlier rows is gone."""
    await go(tasks(2))
    (tmp_path / "out" / "r_aggregate_metrics.json").write_text("[]")
    report = await go(tasks(1))
    assert report.notes == (f"{report.files.output}: an earlier run's rows are now in r.jsonl.old",)
    assert len(read(tmp_path / "out" / "r.jsonl.old")) == 2
    assert len(read(report.files.output)) == 1
    assert not report.files.aggregate.exists()
    report = await go(tasks(3))
    assert report.notes == (f"{report.files.output}: an earlier run's rows are now in r.jsonl.old2",)
    assert [len(read(tmp_path / "out" / f"r.jsonl{end}")) for end in (".old", ".old2", "")] == [2, 1, 3]


def test_two_runs_on_one_output_are_refused(prepare, tasks):
    """The second is told of the first before it changes anything."""
    with (
        prepare(tasks(2)) as first,
        pytest.raises(RunLocked, match=f"process {os.getpid()} on"),
        prepare(tasks(1)),
    ):
        pytest.fail("two runs at once")
    assert first.expected == 2
    with prepare(tasks(1)) as run:
        assert run.expected == 1


# Identity


def _config(**more):
    model = {"openai_base_url": "http://one/v1", "openai_api_key": "k-one-long", "openai_model": "m", **more}
    return load_config({"policy_model": {"responses_api_models": {"openai_model": model}}}, env_yaml=False)


async def test_secrets_endpoints_and_speed_may_change(go, tasks):
    """None of them changes what the run measures."""
    await go(tasks(2), config=_config())
    other = _config(openai_base_url="http://two/v1", openai_api_key="k-two-long", num_workers=3, port=80)
    report = await go(tasks(2), config=other, resume=True)
    assert report.complete


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"config": _config(openai_model="n")}, "openai_model.openai_model was 'm', and is 'n'"),
        ({"config": _config(extra=1)}, "openai_model.extra was not set, and is 1"),
        ({"shard": (0, 2)}, r"option shard was None, and is \[0, 2\]"),
        ({"agent": "b"}, "the agents were none, and are b"),
        ({"responses_create_params": {"temperature": 1}}, "responses_create_params was {}, and is {'temperature': 1}"),
    ],
)
async def test_a_run_that_is_another_is_not_resumed(go, tasks, tmp_path, change, says):
    """What differs is named, and no file changes."""
    await go(tasks(2), config=_config())
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(UsageError, match=rf"r\.jsonl: cannot be resumed, it was another run: .*{says}"):
        await go(tasks(2), **{"config": _config(), **change}, resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize("more", [{"limit": 5}, {"num_repeats": 3}, {"limit": 4, "num_repeats": 2, "agent": "a"}])
async def test_a_run_is_resumed_to_more_rollouts(go, tasks, read, more):
    """With a larger limit, more repeats or both only the new rollouts run, and the files are those of one whole run."""
    began = {"limit": 3, "num_repeats": 2, "num_repeats_add_seed": True, "agent": "a"}
    await go(tasks(6), **began)
    first = await go(tasks(6), **began | more, resume=True)
    assert first.completed == first.coverage.expected - 6 > 0
    assert first.coverage.complete
    assert any(f"grows from 6 to {first.coverage.expected} rollouts" in note for note in first.notes)
    assert (await go(tasks(6), **began | more, resume=True)).completed == 0
    rows = read(first.files.output)
    sent = first.files.materialized.read_bytes()
    whole = await go(tasks(6), **began | more)
    assert whole.files.materialized.read_bytes() == sent
    keys = ("_ng_task_index", "_ng_rollout_index", "agent_ref", "responses_create_params")
    assert _sorted(rows, keys) == _sorted(read(whole.files.output), keys)


def _sorted(rows, keys):
    return sorted(([row.get(key) for key in keys] for row in rows), key=lambda row: row[:2])


async def test_a_run_grows_with_its_input_and_in_another_order(go, tasks):
    """Rows may be added to the input, and repeats come in another order: what counts is that no row is lost."""
    await go(tasks(2), num_repeats=2)
    report = await go(tasks(4), num_repeats=2, interleave_repeats=True, resume=True)
    assert (report.completed, report.coverage.complete) == (4, True)


@pytest.mark.parametrize(
    ("fewer", "says"), [({"limit": 2}, "limit was 3, and is 2"), ({"num_repeats": 1}, "num_repeats was 2")]
)
async def test_a_run_is_not_resumed_to_fewer_rollouts(go, tasks, tmp_path, fewer, says):
    """What was done would be lost: the option is named, and no file changes."""
    began = {"limit": 3, "num_repeats": 2}
    await go(tasks(6), **began)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(UsageError, match=rf"with fewer rollouts: option {says}.* of its 6 would be left out"):
        await go(tasks(6), **began | fewer, resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


async def test_a_larger_run_of_other_rows_is_another_run(go, tasks):
    """More rollouts do not hide that those that were run have changed, nor that their rows are gone."""
    report = await go(tasks(2), limit=2)
    with pytest.raises(UsageError, match=r"the input rows differ \(2 then, 3 now, 1 changed\)"):
        await go([tasks(1)[0], {**tasks(2)[1], "n": 9}, *tasks(3)[2:]], limit=3, resume=True)
    report.files.materialized.unlink()
    with pytest.raises(UsageError, match="the input rows differ"):
        await go(tasks(3), limit=3, resume=True)


async def test_a_run_that_is_killed_while_it_grows_is_resumed_as_either(go, tasks, monkeypatch):
    """Its rows are the larger run's and its identity still the smaller's: both are what it can go on as."""

    class Killed(BaseException):
        pass

    def killed(*args, **kwargs):
        raise Killed

    await go(tasks(4), limit=2)
    for limit in (2, 4):
        with monkeypatch.context() as patched:
            patched.setattr("gym_trio.collection._prepare.write_identity", killed)
            with pytest.raises(Killed):
                await go(tasks(4), limit=4, resume=True)
        report = await go(tasks(4), limit=limit, resume=True)
        assert (report.coverage.expected, report.coverage.complete) == (limit, True)


async def test_an_aggregate_of_the_smaller_run_is_not_told_as_that_of_the_larger(go, tasks):
    """It is gone before the first new row: a run that stops before it makes its own has none."""
    report = await go(tasks(2), more={"aggregate": aggregate_run})
    assert report.files.aggregate.exists()
    larger = await go(tasks(3), resume=True)
    assert larger.coverage.complete
    assert not larger.files.aggregate.exists()


async def test_other_rows_are_another_run(go, tasks):
    """Also when their number is the same."""
    await go(tasks(2))
    with pytest.raises(UsageError, match=r"the input rows differ \(2 then, 2 now, 2 changed\)"):
        await go(list(reversed(tasks(2))), resume=True)


async def test_a_setting_that_is_gone_is_a_difference(go, tasks):
    """What was set and is not any more is named."""
    await go(tasks(1), config=_config(extra=1))
    with pytest.raises(UsageError, match=r"extra was 1, and is not set"):
        await go(tasks(1), config=_config(), resume=True)


async def test_where_there_are_no_rows_there_is_nothing_to_protect(go, tasks):
    """A run that was killed before its first row does not hold the next one to what it was."""
    report = await go(tasks(2))
    report.files.output.write_bytes(b"")
    assert (await go(tasks(3), resume=True)).complete


async def test_a_run_that_another_collector_began_goes_on_from_its_rows(go, tasks, read, indices):
    """Without a record of what was run its materialised rows are what is owed; that this was not checked is said."""
    report = await go(tasks(3))
    report.files.identity.unlink()
    lines = report.files.output.read_bytes().splitlines(keepends=True)
    report.files.output.write_bytes(lines[0])
    report = await go(tasks(9), resume=True)
    assert "was not checked" in report.notes[0]
    assert sorted(indices(read(report.files.output))) == [(0, 0), (1, 0), (2, 0)]
    report.files.identity.unlink(missing_ok=True)
    report.files.materialized.write_text('{"_ng_task_index": 0}\n')
    with pytest.raises(UsageError, match=r":1: has no _ng_task_index and _ng_rollout_index"):
        await go(tasks(9), resume=True)


async def test_rows_of_rollouts_that_the_run_does_not_have_are_refused(go, tasks):
    """They are another run's, whatever the record says."""
    report = await go(tasks(2))
    with report.files.output.open("a") as file:
        file.write('{"_ng_task_index": 7, "_ng_rollout_index": 0}\n')
    with pytest.raises(UsageError, match="it has 1 rows of rollouts that this run does not have"):
        await go(tasks(2), resume=True)


async def test_a_record_that_cannot_be_read_is_named(go, tasks):
    """With what to do."""
    report = await go(tasks(1))
    report.files.identity.write_text("{")
    with pytest.raises(RunError, match=r"r_run\.json: cannot be read .*remove it to resume"):
        await go(tasks(1), resume=True)


async def test_a_broken_line_in_the_middle_of_a_result_file_is_named(go, tasks):
    """Nobody knows what it was, so the run does not go on over it."""
    report = await go(tasks(2))
    report.files.output.write_bytes(b"nonsense\n" + report.files.output.read_bytes())
    with pytest.raises(RowError, match=r"^/[^:]*/r\.jsonl:1: is not JSON [^:]*; if the line is taken out, its rollout"):
        await go(tasks(2), resume=True)
    report.files.output.write_bytes(report.files.output.read_bytes().removeprefix(b"nonsense\n"))
    assert (await go(tasks(2), resume=True)).complete


# Torn lines


async def test_a_torn_last_line_in_any_file_is_repaired_and_said(go, tasks, read, indices, tmp_path):
    """Cut anywhere in any of the three files, the resumed run is complete and has each rollout once."""

    async def run(attempt):
        if attempt.row["n"] == 2 and "_ng_attempt_index" not in attempt.row:
            raise ValueError("boo")
        return {"reward": 1.0}

    await go(tasks(3), run)
    whole = {name: (tmp_path / "out" / name).read_bytes() for name in (*FILES, "r_run.json")}
    for name in FILES:
        last = whole[name].rindex(b"\n", 0, -1) + 1 if whole[name].count(b"\n") > 1 else 0
        for cut in {*range(last, len(whole[name]), 11), *range(len(whole[name]) - 2, len(whole[name]) + 1)}:
            for other, content in whole.items():
                (tmp_path / "out" / other).write_bytes(content[:cut] if other == name else content)
            report = await go(tasks(3), resume=True)
            torn = cut not in (last, len(whole[name]))
            assert any(name in note for note in report.notes) == torn, (name, cut)
            assert sorted(indices(read(report.files.output))) == [(0, 0), (1, 0), (2, 0)]
            assert (tmp_path / "out" / FILES[2]).read_bytes() == whole[FILES[2]]


# Attempts


def _ledger(*keys, **options):
    return Ledger(NumberSet(pack(task, 0) for task in keys), **options)


def _row(attempt=0, **more):
    return {"_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_attempt_index": attempt, **more}


def test_a_late_result_of_an_older_attempt_never_replaces_a_newer_one():
    """Whatever the order in which they come, the newest attempt stands."""
    for rows in ([_row(1), _row(0)], [_row(0), _row(1)]):
        ledger = _ledger(0)
        for row in rows:
            ledger.record_result({**row, "mask_sample": row["_ng_attempt_index"] == 0})
        assert ledger.standing(_row()) is Standing.SCORED
    ledger = _ledger(0)
    ledger.record_failure(_row(1))
    assert ledger.is_late(_row(0))
    ledger.record_result(_row(0))
    assert ledger.standing(_row()) is Standing.FAILED
    assert ledger.next_attempt(_row(), 3) == 2
    assert not ledger.is_late(_row(1))


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 3), st.booleans(), st.booleans()),
        max_size=6,
    ).flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows)))
)
@settings(deadline=None)
def test_the_standing_does_not_depend_on_the_order_of_the_rows(both):
    """A ledger made from the rows in any order says the same."""

    def standing(rows):
        ledger = _ledger(0)
        for is_result, attempt, terminal, masked in rows:
            if is_result:
                ledger.record_result(_row(attempt, mask_sample=masked))
            else:
                ledger.record_failure(_row(attempt, _ng_failure_terminal=terminal))
        return ledger.standing(_row()), ledger.next_attempt(_row(), 3), ledger.coverage()

    given_rows, shuffled = both
    assert standing(given_rows) == standing(shuffled)


def test_a_skipped_rollout_is_terminal_by_its_class():
    """Whether or not it says so."""
    ledger = _ledger(0)
    ledger.record_failure(_row(_ng_failure_class="skipped"))
    assert ledger.standing(_row()) is Standing.TERMINAL


def test_what_the_ledger_does_not_know_is_open():
    """A row of another run, and one that says nothing of itself."""
    ledger = _ledger(0, 1)
    assert ledger.standing({"_ng_task_index": 5, "_ng_rollout_index": 0}) is Standing.OPEN
    assert ledger.standing({}) is Standing.OPEN
    assert ledger.next_attempt({}, 3) == 0
    assert list(ledger.missing()) == [(0, 0), (1, 0)]
    ledger.record_failure({})
    assert ledger.strangers == 1
    assert len(ledger) == 2


async def test_a_rollouts_own_id_gets_the_suffix_of_each_attempt(go, tasks, read):
    """And only that of its own."""

    async def run(attempt):
        raise ValueError("boo")

    rows = [
        {
            **tasks(1)[0],
            "_ng_rollout_id": "mine-a4",
            "_ng_task_index": 0,
            "_ng_rollout_index": 0,
            "_ng_attempt_index": 4,
        }
    ]
    for _ in range(3):
        report = await go(rows, run, resume=True)
    assert [row["_ng_rollout_id"] for row in read(report.files.failures)] == ["mine-a4", "mine-a5", "mine-a6"]


async def test_attempts_have_an_end_whatever_is_asked_for(go, tasks, prepare):
    """The highest attempt that a row can have is the last."""
    row = {**tasks(1)[0], "_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_attempt_index": 8191}
    with prepare([row], max_attempts=9999) as run:
        run.files.failures.write_text(json.dumps(_row(8191)) + "\n")
    with prepare([row], max_attempts=9999, resume=True) as run:
        assert list(run.rows()) == []


async def test_an_odd_index_in_a_result_file_is_named_by_line(go, tasks):
    """Not only that it is wrong, but where."""
    report = await go(tasks(1))
    with report.files.output.open("a") as file:
        file.write('{"_ng_task_index": "x", "_ng_rollout_index": 0}\n')
    said = r"/r\.jsonl:2: _ng_task_index must be 0 or a positive whole number, not 'x'; if the line is taken out, its"
    with pytest.raises(RowError, match=said):
        await go(tasks(1), resume=True)


async def test_what_a_killed_run_left_half_written_is_swept_away(go, tasks, tmp_path):
    """By the next run, which holds the lock."""
    await go(tasks(1))
    for name in (".r_materialized_inputs.jsonl.123.new", ".r_run.json.9.new", ".r.jsonl.77.probe"):
        (tmp_path / "out" / name).write_text("half")
    await go(tasks(1), resume=True)
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", ["r.jsonl", "r_failures.jsonl", "r_materialized_inputs.jsonl"])
async def test_a_run_does_not_read_what_it_is_about_to_replace(go, tasks, tmp_path, name):
    """Its own files are no input."""
    report = await go(tasks(2))
    before = report.files.output.read_bytes()
    with pytest.raises(UsageError, match="is a file that the run itself writes"):
        await go(tmp_path / "out" / name)
    assert report.files.output.read_bytes() == before


async def test_results_without_a_valid_judgement_are_made_again_on_request(go, tasks, read, indices):
    """They leave the score and count as attempts; moved by half by a killed run, they are moved once."""

    async def run(attempt):
        invalid = attempt.row["n"] == 1 and "_ng_attempt_index" not in attempt.row
        perf = {"total_latency_ms": 7000} if invalid else None
        return {"reward": 0.0, "response": {"output": []}, "invalid_judge_response": invalid, "ng_perf": perf}

    report = await go(tasks(3), run)
    before = report.files.output.read_bytes()
    assert (await go(tasks(3), run, resume=True)).completed == 0
    report = await go(tasks(3), run, resume=True, retry_invalid_judge_responses=True)
    assert report.notes == (f"{report.files.output}: 1 results without a valid judgement were taken back",)
    (failure,) = read(report.files.failures)
    assert (failure["_ng_failure_class"], failure["_ng_task_index"]) == ("judge_invalid", 1)
    assert failure["elapsed_seconds"] == 7.0
    assert sorted(indices(read(report.files.output))) == [(0, 0), (1, 0), (2, 0)]
    assert not any(row["invalid_judge_response"] for row in read(report.files.output))
    report.files.output.write_bytes(before)
    report = await go(tasks(3), run, resume=True, retry_invalid_judge_responses=True)
    assert len(read(report.files.failures)) == 1
    assert sorted(row.get("_ng_attempt_index", 0) for row in read(report.files.output)) == [0, 0, 1]
    assert (await go(tasks(3), run, resume=True, retry_invalid_judge_responses=True)).notes == ()


# Order


async def test_the_longest_tasks_go_first_on_resume(go, tasks, prepare, read):
    """By the longest measured attempt of any repeat; tasks of which nothing is known follow in their order."""
    rows = tasks(5)
    with prepare(rows, num_repeats=2) as run:
        lines = [
            {**_row(), "_ng_task_index": 1, "elapsed_seconds": 5.0},
            {**_row(), "_ng_task_index": 3, "ng_perf": {"total_latency_ms": 9000}},
            {**_row(), "_ng_task_index": 4, "elapsed_seconds": 7.0},
            {**_row(), "_ng_task_index": 4, "_ng_rollout_index": 1},
        ]
        run.files.output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with prepare(rows, num_repeats=2, resume=True, longest_first=True) as run:
        order = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in run.rows()]
    assert order == [(3, 1), (1, 1), (0, 0), (0, 1), (2, 0), (2, 1)]
    with prepare(rows, num_repeats=2, resume=True) as run:
        order = [row["_ng_task_index"] for row in run.rows()]
    assert order == [0, 0, 1, 2, 2, 3]


def test_rows_are_pulled_one_at_a_time_and_only_while_they_are_wanted(tasks, tmp_path):
    """The source of a run ends when it is told to."""
    with prepare_run(RunOptions(output=tmp_path / "r.jsonl", rows=tasks(9))) as run:
        wanted = iter([True, True, False])
        assert len(list(run.rows(lambda: next(wanted)))) == 2
        assert (run.pending, run.expected, run.agents) == (9, 9, ())
