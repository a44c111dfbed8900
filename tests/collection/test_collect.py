"""The loop of a run: what is written of each outcome, and how it stops."""

from __future__ import annotations

import functools
import json
import resource

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_trio.collection import (
    Ending,
    Progress,
    RunOptions,
    StopRequest,
    aggregate_run,
    collect,
    prepare_run,
    read_rows,
)
from gym_trio.config import load_config
from gym_trio.errors import ConnectFailed, FailureKind, ResponseError, RolloutFailure, RunError, Stage, UsageError
from gym_trio.rollouts import Completed, Drained, Failed, open_rollout_stream


async def test_every_row_has_its_line(go, tasks, read, indices):
    """Results carry what identifies their rollout, and the report counts them."""
    report = await go(tasks(4), num_repeats=3, agent="a")
    rows = read(report.files.output)
    assert sorted(indices(rows)) == [(task, rollout) for task in range(4) for rollout in range(3)]
    assert rows[0]["agent_ref"] == {"type": "responses_api_agents", "name": "a"}
    assert rows[0]["_ng_rollout_id"] == f"{rows[0]['_ng_task_index']}-{rows[0]['_ng_rollout_index']}"
    assert (report.ending, report.complete, report.completed, report.mean_reward) == (Ending.DONE, True, 12, 1.0)
    assert str(report.coverage) == "expected 12, scored 12, failed 0, masked 0, missing 0"
    assert read(report.files.failures) == []
    assert len(read(report.files.materialized)) == 12


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ResponseError("refused", server="s", status=500, body="why"), ("agent_run_error", 500, "agent_run_error")),
        (ResponseError("busy", server="s", status=503), ("agent_request_failed", 503, "agent_request_failed")),
        (ResponseError("slow down", server="s", status=429), ("agent_request_failed", 429, "agent_request_failed")),
        (ConnectFailed("no one there"), ("agent_request_failed", None, "transport_unreachable")),
        (ValueError("boo"), ("agent_request_failed", None, "agent_run_error")),
        (RolloutFailure(FailureKind.JUDGE_FAILED, "j", 500), ("judge_failed", 500, "judge_failed")),
        (RolloutFailure(FailureKind.JUDGE_UNPARSEABLE, "j", 500), ("judge_invalid", 500, "judge_unparseable")),
        (RolloutFailure("shop:sold_out", "s", 422), ("agent_run_error", 422, "shop:sold_out")),
    ],
)
async def test_a_failure_is_a_row_of_its_own_file(go, tasks, read, error, wanted):
    """Its class tells whether the rollout ran; it has no reward, and the run goes on."""

    async def run(attempt):
        if attempt.row["n"] == 0:
            raise error
        return {"reward": 0.5}

    report = await go(tasks(2), run)
    (row,) = read(report.files.failures)
    assert (row["_ng_failure_class"], row["_ng_failure_http_status"], row["failure_kind"]) == wanted
    assert (row["_ng_task_index"], row["_ng_rollout_index"], row["_ng_failure_terminal"]) == (0, 0, False)
    assert row["elapsed_seconds"] >= 0
    assert "reward" not in row
    assert str(report.coverage) == "expected 2, scored 1, failed 1, masked 0, missing 0"
    assert report.failure_classes == {wanted[0]: 1}
    assert (report.failed, report.completed, report.mean_reward, report.complete) == (1, 1, 0.5, False)


async def test_a_failure_row_has_all_that_is_known(go, tasks, read):
    """The fields of the contract, texts cut to 2,000 characters."""

    async def run(attempt):
        raise RolloutFailure(
            "shop:broke",
            "m" * 3000,
            418,
            Stage.VERIFICATION,
            terminal=True,
            body="b" * 3000,
            exception_type="Teapot",
            details={"partial_response": {"output": []}, "judge_error": "je", "other": 1},
        )

    report = await go(tasks(1), run)
    (row,) = read(report.files.failures)
    row.pop("elapsed_seconds")
    assert row == {
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "_ng_rollout_id": "0-0",
        "_ng_failure_class": "agent_run_error",
        "_ng_failure_terminal": True,
        "_ng_failure_type": "Teapot",
        "_ng_failure_message": "m" * 2000,
        "_ng_failure_http_status": 418,
        "_ng_failure_response_body": "b" * 2000,
        "_ng_failure_stage": "verification",
        "_ng_failure_partial_response": {"output": []},
        "_ng_failure_judge_error": "je",
        "failure_kind": "shop:broke",
        "failure_reason": "m" * 2000,
        "delivery": "possibly_delivered",
    }


async def test_a_rollout_that_takes_too_long_is_a_failure_of_its_own_class(go, tasks, read, autojump_clock):
    """``timeout_exceeded``, which options can name."""

    async def run(attempt):
        await trio.sleep_forever()

    report = await go(tasks(1), run, stream={"rollout_timeout_seconds": 3})
    (row,) = read(report.files.failures)
    assert (row["_ng_failure_class"], row["failure_kind"]) == ("timeout_exceeded", "agent_timeout")
    assert row["elapsed_seconds"] == pytest.approx(3)


async def test_a_result_that_says_it_failed_is_a_failure_row(go, tasks, read):
    """An agent may answer with a failure as data; what is no object is a failure too."""

    async def run(attempt):
        if attempt.row["n"] == 0:
            return {"_ng_failure_class": "skipped", "_ng_failure_message": "sk-abcdef", "reward": 0.0}
        return [1, 2]

    report = await go(tasks(2), run)
    rows = sorted(read(report.files.failures), key=lambda row: row["_ng_task_index"])
    assert rows[0]["_ng_failure_class"] == "skipped"
    assert rows[0]["_ng_failure_message"] == "sk-****"
    assert "no JSON object but list" in rows[1]["_ng_failure_message"]
    assert report.coverage.failed == 2


async def test_withdrawn_rollouts_leave_no_line(go, tasks, read):
    """Their absence is what a resumed run goes by."""

    async def run(attempt):
        marks = [{"_ng_no_persist": True}, {"_ng_dispatch_drained": True}, {"_ng_failure_class": "cancelled"}]
        if attempt.row["n"] < 3:
            return {**marks[attempt.row["n"]], "reward": 1.0}
        raise RolloutFailure(FailureKind.CANCELLED, "withdrawn")

    report = await go(tasks(4), run)
    assert read(report.files.output) == read(report.files.failures) == []
    assert (report.withdrawn, report.coverage.missing, report.ending) == (4, 4, Ending.DONE)
    assert not report.complete


async def test_masked_rollouts_are_results_that_do_not_count(go, tasks, read):
    """They are written and covered, and are in no mean."""

    async def run(attempt):
        return {"reward": 5.0 * attempt.row["n"], "mask_sample": attempt.row["n"] == 1}

    report = await go(tasks(2), run)
    assert str(report.coverage) == "expected 2, scored 1, failed 0, masked 1, missing 0"
    assert report.mean_reward == 0.0
    assert report.complete


async def test_secrets_of_the_configuration_are_in_no_file(go, tasks, tmp_path):
    """A provider that quotes the key that it refused, and a configuration that has it."""
    config = load_config({"policy_api_key": "my-own-key", "policy_model_name": "tiny"}, env_yaml=False)

    async def run(attempt):
        raise ResponseError("Incorrect key my-own-key", server="m", status=401, body="my-own-key and sk-other-key")

    await go(tasks(1), run, config=config)
    for path in (tmp_path / "out").iterdir():
        assert "my-own-key" not in path.read_text()
        assert "sk-other" not in path.read_text()


async def test_outcomes_are_told_after_they_are_written(go, tasks, read, tmp_path):
    """The callback finds the line in the file, and the progress up to date."""
    progress = Progress()
    seen = []

    def note(outcome):
        seen.append((progress.finished, len(read(tmp_path / "out" / "r.jsonl")), type(outcome)))

    await go(tasks(3), more={"progress": progress, "on_outcome": note})
    assert seen == [(1, 1, Completed), (2, 2, Completed), (3, 3, Completed)]
    assert (progress.to_send, progress.completed, progress.mean_reward) == (3, 3, 1.0)
    assert progress.in_flight() == []


async def test_what_is_in_flight_can_be_asked_for(go, tasks, autojump_clock):
    """By task and age, the oldest first."""
    progress = Progress()
    stop = StopRequest()

    async def run(attempt):
        await trio.sleep(100 if attempt.row["n"] == 0 else 10)
        return {"reward": 1.0}

    async with trio.open_nursery() as nursery:

        async def watch():
            await trio.sleep(15)
            flying = progress.in_flight()
            assert [(one.task, one.rollout, one.rollout_id) for one in flying] == [(0, 0, "0-0"), (2, 0, "2-0")]
            assert {(one.attempt, one.agent) for one in flying} == {(0, "a")}
            assert [one.age_seconds for one in flying] == pytest.approx([15, 5])
            stop.cut()

        nursery.start_soon(watch)
        report = await go(
            tasks(9), run, stream={"max_concurrent": 2}, agent="a", more={"progress": progress, "stop": stop}
        )
    assert report.ending is Ending.STOPPED


# Stopping


async def _slow(attempt):
    await trio.sleep(attempt.row["n"] + 1)
    return {"reward": 1.0}


async def _stopped(go, rows, run, *, at, cut_at=None, grace=5, **stream):
    stop = StopRequest()

    async def signal():
        await trio.sleep(at)
        stop.drain()
        if cut_at is not None:
            await trio.sleep(cut_at - at)
            stop.cut()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(signal)
        report = await go(rows, run, stream=stream, more={"stop": stop, "grace_seconds": grace})
        nursery.cancel_scope.cancel()
    return report


async def test_a_stop_sends_no_further_row_and_gives_what_is_in_flight_its_grace(go, tasks, read, autojump_clock):
    """What ends within the grace is written as it ends; the rest is named."""
    report = await _stopped(go, tasks(50), _slow, at=2.5, grace=1, max_concurrent=4)
    assert report.ending is Ending.STOPPED
    assert sorted(row["_ng_task_index"] for row in read(report.files.output)) == [0, 1, 2]
    assert [(one.task, str(one.delivery)) for one in report.unfinished] == [
        (3, "not_sent"),
        (4, "not_sent"),
        (5, "not_sent"),
    ]
    assert str(report.coverage) == "expected 50, scored 3, failed 0, masked 0, missing 47"
    assert trio.current_time() == pytest.approx(3.5)
    timing = json.loads(report.files.timing.read_text())
    assert timing["coverage"] == {"expected": 50, "scored": 3, "failed": 0, "masked": 0, "missing": 47}
    assert timing["ending"] == "stopped"
    assert [one["_ng_task_index"] for one in timing["unfinished"]] == [3, 4, 5]
    assert timing["stages"]["rollout"]["count"] == 3


async def test_a_stop_ends_as_soon_as_nothing_is_in_flight(go, tasks, autojump_clock):
    """A long grace costs nothing."""
    report = await _stopped(go, tasks(50), _slow, at=1.5, grace=1000, max_concurrent=2)
    assert report.unfinished == ()
    assert trio.current_time() == pytest.approx(4)
    assert report.coverage.scored == 3


async def test_a_second_request_cuts_the_grace(go, tasks, read, autojump_clock):
    """And still loses nothing that had finished."""
    report = await _stopped(go, tasks(50), _slow, at=1.5, cut_at=2.5, grace=1000, max_concurrent=4)
    assert trio.current_time() == pytest.approx(2.5)
    assert sorted(row["_ng_task_index"] for row in read(report.files.output)) == [0, 1]
    assert len(report.unfinished) == 3


async def test_a_stop_before_anything_was_sent_is_a_run_of_nothing(go, tasks, read):
    """The files are there, and say so."""
    stop = StopRequest()
    stop.drain()
    report = await go(tasks(3), more={"stop": stop})
    assert (report.ending, report.coverage.missing, read(report.files.output)) == (Ending.STOPPED, 3, [])
    assert report.files.timing.exists()


async def test_a_stop_that_comes_after_the_last_row_changes_nothing(go, tasks, autojump_clock):
    """All rows have their outcomes: the run is done."""
    report = await _stopped(go, tasks(2), _slow, at=1.5, grace=5)
    assert (report.ending, report.complete) == (Ending.DONE, True)


async def test_a_budget_leaves_rows_for_the_next_run(go, tasks, read, autojump_clock):
    """Rows that could not finish are not started, leave no line, and are missing."""
    bounds = {"max_concurrent": 1, "dispatch_budget_seconds": 5, "drain_margin_seconds": 1}
    outcomes = []

    async def run(attempt):
        await trio.sleep(2)
        return {"reward": 1.0}

    report = await go(tasks(9), run, stream=bounds, more={"on_outcome": outcomes.append})
    assert report.ending is Ending.BUDGET
    assert report.coverage.scored + report.coverage.missing == 9
    assert report.coverage.missing > 0
    assert any(isinstance(outcome, Drained) for outcome in outcomes)
    report = await go(tasks(9), run, resume=True)
    assert report.complete


async def test_a_cancellation_from_outside_writes_what_had_finished(go, tasks, read, tmp_path, autojump_clock):
    """It is not lost, and the cancellation goes on."""
    finished = []

    async def run(attempt):
        await trio.sleep(1 if attempt.row["n"] < 3 else 100)
        return {"reward": 1.0}

    def slow_consumer(outcome):
        finished.append(outcome)
        if len(finished) == 1:
            scope.cancel()

    with trio.CancelScope() as scope:
        await go(tasks(5), run, more={"on_outcome": slow_consumer})
    assert scope.cancelled_caught
    assert len(read(tmp_path / "out" / "r.jsonl")) == 3
    assert len(finished) == 1


async def test_an_error_in_the_callers_own_callback_ends_the_run(go, tasks, autojump_clock):
    """It comes out bare, and the rollouts that were in flight are over."""
    running = []

    async def run(attempt):
        running.append(attempt.row["n"])
        try:
            await trio.sleep(attempt.row["n"])
        finally:
            running.remove(attempt.row["n"])
        return {"reward": 1.0}

    class Odd(Exception):
        pass

    def fail(outcome):
        raise Odd

    with pytest.raises(Odd):
        await go(tasks(5), run, more={"on_outcome": fail})
    assert running == []


async def test_an_error_of_a_callback_costs_no_finished_outcome(go, tasks, read, tmp_path, autojump_clock):
    """What was ready beside the outcome that it was told of is written."""

    async def run(attempt):
        await trio.sleep(1 if attempt.row["n"] < 3 else 9)
        return {"reward": 1.0}

    def fail(outcome):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await go(tasks(5), run, more={"on_outcome": fail})
    assert len(read(tmp_path / "out" / "r.jsonl")) == 3


async def test_a_cancellation_while_a_stop_drains_loses_nothing_either(go, tasks, read, tmp_path, autojump_clock):
    """A rollout that gives its result in spite of the cut still has its line."""
    stop = StopRequest()

    async def run(attempt):
        with trio.CancelScope(shield=True):
            await trio.sleep(4)
        return {"reward": 1.0}

    with trio.move_on_after(2) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cut_after, stop, 1)
            await go(tasks(2), run, more={"stop": stop})
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(4)
    assert len(read(tmp_path / "out" / "r.jsonl")) == 2


async def _cut_after(stop, seconds):
    await trio.sleep(seconds)
    stop.cut()


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=5)
    | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["output", "usage", "input_tokens", "type", "content", "id", "turns", "calls", "model_ms", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
_keys = ["response", "reward", "mask_sample", "ng_perf", "ng_trajectory", "ng_model_call_capture", "agent_ref"]
_own = ["_ng_task_index", "_ng_rollout_index", "_ng_attempt_index"]  # of the run's own rows


@given(st.dictionaries(st.sampled_from([*_keys, *_own, "elapsed_seconds", "failure_kind", "\udfff"]), _json))
@settings(deadline=None, max_examples=150)
def test_no_result_ends_a_run(tmp_path_factory, result):
    """Whatever an agent answers, there is one line of it, the line is JSON, and the run can be gone on with."""

    async def run(attempt):
        return result

    async def main(options):
        with prepare_run(options) as prepared:
            return await collect(prepared, functools.partial(open_rollout_stream, run=run))

    options = RunOptions(output=tmp_path_factory.mktemp("r") / "r.jsonl", rows=[{"responses_create_params": {}}])
    report = trio.run(main, options)
    assert report.completed + report.failed == 1
    rows = list(read_rows(report.files.output))
    assert [row["_ng_task_index"] for row in rows] == [0] * report.completed
    assert not any("_ng_attempt_index" in row for row in rows)
    with prepare_run(attrs.evolve(options, resume=True)) as prepared:
        assert prepared.pending == report.failed


async def test_a_result_that_no_file_can_hold_is_a_failure_row(go, tasks, read):
    """It contains itself; half characters and huge numbers are written as well as they can be."""

    async def run(attempt):
        if attempt.row["n"]:
            return {
                "text": "half \ud800",
                "number": 2**70,
                "vast": 10**400,
                "reward": 1.0,
                "set": {1},
                ("t",): (2**70,),
            }
        result = {"reward": 1.0}
        result["self"] = result
        return result

    report = await go(tasks(2), run)
    (row,) = read(report.files.output)
    assert (row["text"], row["number"], row["vast"]) == ("half ?", 2.0**70, str(10**400))
    assert (row["set"], row["('t',)"]) == ([1], [2.0**70])
    (row,) = read(report.files.failures)
    assert row["failure_kind"] == "persistence_failed"
    assert "cannot be written as JSON" in row["_ng_failure_message"]


async def test_a_grace_that_is_none_is_refused(go, tasks):
    """Negative, and no number."""
    for wrong in (-1, float("nan")):
        with pytest.raises(UsageError, match="the grace of a stop"):
            await go(tasks(1), more={"grace_seconds": wrong})


async def test_a_full_disk_ends_the_run_with_one_error_and_whole_lines(go, prepare, tasks, read):
    """What was written stays, the run can be resumed, and nothing is made twice."""

    async def run(attempt):
        return {"text": "x" * 300, "reward": 1.0}

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with prepare(tasks(9)) as prepared:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
        try:
            with pytest.raises(
                RunError, match=r"r\.jsonl: cannot be written \(File too large\); the run can be resumed"
            ):
                await collect(prepared, functools.partial(open_rollout_stream, run=run))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    written = len(read(prepared.files.output))
    assert 0 < written < 9
    report = await go(tasks(9), run, resume=True)
    assert (report.complete, report.completed, report.notes) == (True, 9 - written, ())


async def test_with_fsync_the_same_rows_are_written(go, tasks, read):
    """And each is on the disk before the next is looked at."""
    report = await go(tasks(4), fsync=True)
    assert len(read(report.files.output)) == 4


async def test_an_aggregate_is_made_when_the_run_has_ended_by_itself(go, tasks, autojump_clock):
    """Not after a stop: half a run has no score."""
    asked = []

    async def aggregate(run):
        asked.append(run.ledger.coverage())
        return [{"key_metrics": {}}]

    report = await go(tasks(2), more={"aggregate": aggregate})
    assert report.aggregate == [{"key_metrics": {}}]
    assert asked[0].scored == 2
    stop = StopRequest()
    stop.cut()
    report = await go(tasks(2), more={"aggregate": aggregate, "stop": stop})
    assert report.aggregate is None
    assert len(asked) == 1


async def test_a_stop_while_the_aggregate_is_made_cuts_it_at_once(go, tasks, autojump_clock):
    """The run is done, its timing is written, and a resumed run makes the aggregate."""
    stop = StopRequest()

    async def aggregate(run):
        stop.drain()
        await trio.sleep_forever()

    report = await go(tasks(2), more={"aggregate": aggregate, "stop": stop})
    assert (report.ending, report.aggregate, report.complete) == (Ending.DONE, None, True)
    assert report.files.timing.exists()
    report = await go(tasks(2), resume=True, agent=None, more={"aggregate": aggregate_run})
    assert report.aggregate[0]["agent_metrics"]["mean/reward"] == 1.0


async def test_the_aggregate_of_a_run_is_cut_between_rows(tasks, tmp_path):
    """Reading rows in a thread looks for a cancellation; nothing is written then."""
    with prepare_run(RunOptions(output=tmp_path / "r.jsonl", rows=tasks(1), num_repeats=600)) as prepared:
        await collect(prepared, functools.partial(open_rollout_stream, run=_at_once))
        with trio.CancelScope() as scope:
            await aggregate_run(prepared, hooks=lambda source: trio.from_thread.run_sync(scope.cancel))
    assert scope.cancelled_caught
    assert not prepared.files.aggregate.exists()


async def _at_once(attempt):
    return {"reward": 1.0}


async def test_an_error_of_the_aggregation_comes_out_bare(go, tasks):
    """Without the group of a nursery around it."""

    async def aggregate(run):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await go(tasks(1), more={"aggregate": aggregate})


async def test_the_time_of_a_run_is_told_by_stage(go, tasks, read, autojump_clock):
    """Queue and rollout from the stream's clock, the others as far as results tell."""

    async def run(attempt):
        await trio.sleep(2)
        perf = {"model_ms": 1500.0, "verify_ms": 100}
        return {"response": {"output": []}, "reward": 1.0, "ng_perf": perf if attempt.row["n"] else {"model_ms": "x"}}

    report = await go(tasks(3), run, stream={"max_concurrent": 1})
    stages = report.timing["stages"]
    assert set(stages) == {"queue", "model", "verify", "rollout"}
    assert stages["rollout"]["total_seconds"] == pytest.approx(6)
    assert stages["rollout"]["p50_seconds"] == pytest.approx(2, rel=0.02)
    assert stages["model"] == {**stages["model"], "count": 2, "total_seconds": pytest.approx(3)}
    assert len(report.timing["slowest"]) == 3
    perf = read(report.files.output)[0]["ng_perf"]
    assert perf["total_latency_ms"] == pytest.approx(2000)
    assert perf["queue_ms"] >= 0


async def test_only_the_slowest_rollouts_are_named(go, tasks, autojump_clock):
    """Ten of them, the slowest first."""
    report = await go(tasks(15), _slow)
    assert [one["_ng_task_index"] for one in report.timing["slowest"]] == list(range(14, 4, -1))


async def test_a_failed_outcome_is_told_like_any_other(go, tasks):
    """The callback gets the outcome itself."""
    told = []

    async def run(attempt):
        raise ValueError("boo")

    await go(tasks(1), run, more={"on_outcome": told.append})
    assert isinstance(told[0], Failed)
