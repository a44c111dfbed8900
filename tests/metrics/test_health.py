"""Every health check, firing and silent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_trio import metrics
from gym_trio.errors import UsageError
from gym_trio.metrics import _checks

Make = Callable[..., dict[str, Any]]
Json = dict[str, Any]

MODEL = {"type": "responses_api_models", "name": "policy"}
JUDGE = {"type": "responses_api_models", "name": "judge"}


def said(text: str = "hi") -> Json:
    return {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}


def call(
    number: int = 0, *, tokens: tuple[int | None, int | None] = (10, 5), model: Json = MODEL, **facts: Any
) -> Json:
    """A model call as a trajectory has it."""
    metadata = {"response_id": f"r{number}", "model_ref": model, "status_code": 200, **facts}
    response = metadata.pop("response", said())
    started = metadata.pop("started_at", float(number))
    return {
        "model_call_id": metadata.pop("model_call_id", f"c{number}"),
        "started_at": started,
        "response": response,
        "response_metadata": metadata,
        "token_stats": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]},
    }


def turn(number: int = 0, answer: Any = "hi", refs: list[Json] | None = None, reasoning: str | None = None) -> Json:
    refs = [{"model_call_id": f"c{number}"}] if refs is None else refs
    return {"turn_no": number + 1, "answer": answer, "reasoning_content": reasoning, "model_calls": refs}


def trajectory(calls: list[Json], turns: list[Json], gaps: tuple[str, ...] = (), **more: Any) -> Json:
    return {"model_calls": calls, "turns": turns, "gaps": [{"code": code, "detail": "x:c9"} for code in gaps], **more}


def response(usage: tuple[int, int] | None = (10, 5), **facts: Any) -> Json:
    counts = {} if usage is None else {"usage": {"input_tokens": usage[0], "output_tokens": usage[1]}}
    return {**said(), "status": "completed", **counts, **facts}


def judge(row: Json) -> Json:
    (verdict,) = metrics.check_health([row]).verdicts()
    return verdict


def fired(row: Json) -> list[str]:
    return [finding["check"] for finding in judge(row)["findings"]]


def whole(make_row: Make, **fields: Any) -> Json:
    """A row on which every check is evaluable and silent."""
    return make_row(**{"ng_trajectory": trajectory([call()], [turn()]), "response": response(), **fields})


def test_a_row_with_all_its_evidence_is_healthy(make_row: Make) -> None:
    """Everything is evaluable and silent; the summary counts it."""
    report = metrics.check_health([whole(make_row)])
    (verdict,) = report.verdicts()
    assert verdict == {
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "rollout_id": "0-0",
        "verdict": "healthy",
        "findings": [],
        "unobserved": [],
    }
    run = report.summary["run"]
    assert run["verdicts"] == {"healthy": 1, "unhealthy": 0, "unobserved": 0}
    assert set(run["issues"]) == set(metrics.CHECK_IDS)
    assert len(metrics.CHECK_IDS) == 14
    assert run["artifacts"]["captures"] == 1
    assert run["artifacts"]["coverage"]["agent_turn_hollow"] == {"evaluated": 1, "unobserved": 0, "ignored": 0}
    assert run["stats"]["tokens"] == {"prompt": 10, "completion": 5, "capture_prompt": 10, "capture_completion": 5}
    assert report.summary["tasks"] == {"0": {"repeats": 1, "healthy": 1, "unhealthy": 0, "unobserved": 0, "flags": []}}
    assert report.line == "health of 1 rollouts: 1 healthy, 0 unhealthy, 0 unobserved"


FIRING: dict[str, Json] = {
    "rollout_missing_agent_turns": {"ng_trajectory": trajectory([call()], [], invocations=[turn()])},
    "agent_turn_hollow": {"ng_trajectory": trajectory([call()], [turn(answer="  ")])},
    "model_call_zero_completion_tokens": {"ng_trajectory": trajectory([call(tokens=(10, 0))], [turn()])},
    "model_call_missing_token_counts": {"ng_trajectory": trajectory([call(tokens=(10, None))], [turn()])},
    "trajectory_capture_mismatch": {"ng_trajectory": trajectory([call()], [turn(), turn(1)])},
    "model_call_failed": {
        "ng_trajectory": trajectory([call(status_code=500), call(1, tokens=(0, 5))], [turn(), turn(1)])
    },
    "rollout_token_count_mismatch": {"response": response((11, 5))},
    "model_call_runaway_generation": {
        "ng_trajectory": trajectory([call(finish_reason="length", response=said(""))], [turn()])
    },
    "rollout_ended_on_failed_model_call": {
        "ng_trajectory": trajectory([call(), call(1, status_code=503, model_call_id=None)], [turn()])
    },
}


@pytest.mark.parametrize("check", FIRING)
def test_each_check_of_a_rollout_fires_on_its_own_case(make_row: Make, check: str) -> None:
    """The check fires, the verdict is unhealthy, and the same row without the fault is healthy."""
    row = whole(make_row, **FIRING[check])
    assert check in fired(row)
    assert judge(row)["verdict"] == "unhealthy"
    assert fired(whole(make_row)) == []


def test_details_say_where_and_what(make_row: Make) -> None:
    """A finding has a locator for the turn or the call, and what was found there."""
    row = whole(make_row, **FIRING["model_call_failed"])
    (finding,) = judge(row)["findings"][:1]
    assert finding["locator"] == {"call_id": "c0"}
    assert finding["detail"] == {"status": 500, "error_category": None, "terminal": False}
    (finding,) = judge(whole(make_row, **FIRING["agent_turn_hollow"]))["findings"]
    assert finding["locator"] == {"turn": 1}
    (finding,) = judge(whole(make_row, **FIRING["rollout_token_count_mismatch"]))["findings"]
    assert finding["detail"]["transcript_prompt"] == 11
    assert finding["detail"]["capture_prompt"] == 10
    assert "locator" not in finding


@pytest.mark.parametrize(
    ("calls", "ended"),
    [
        ([call(status_code=500), call(1)], False),
        ([call(), call(1, status_code=500)], True),
        ([call(), call(1, status_code=500), call(2, model=JUDGE)], True),
        ([call(), call(1, model=JUDGE, error_category="timeout")], True),
        ([call(), call(1, status_code=500, started_at=None)], False),
        ([call(status_code=500, started_at=None), call(1, status_code=500)], True),
        ([call(response_status="failed")], True),
        ([call(response={"status": "failed"})], True),
        ([call(5, status_code=500), call(1)], True),
    ],
)
def test_a_rollout_ends_on_a_failure_by_model_and_in_time(make_row: Make, calls: list[Json], ended: bool) -> None:
    """Retried failures do not count, other models do not hide them, and what cannot be ordered is not judged."""
    row = whole(make_row, ng_trajectory=trajectory(calls, [turn(refs=[])]))
    assert ("rollout_ended_on_failed_model_call" in fired(row)) is ended
    stats = metrics.check_health([row]).summary["run"]["stats"]["model_call_errors"]
    assert stats["ended_on_error"] == ended
    assert stats["rollouts_affected"] == (1 if ended or stats["total"] else 0)


@pytest.mark.parametrize(
    ("refs", "kinds"),
    [
        ([{"model_call_id": "c0", "model_ref": MODEL, "response_id": "r0"}], []),
        ([{"model_ref": MODEL, "response_id": "r0"}], []),
        ([{"model_call_id": "c0"}, {"model_call_id": "c0"}], []),
        ([{"model_call_id": "c0", "model_ref": JUDGE}], ["missing_captured_call"]),
        ([{"model_call_id": "c0", "response_id": "r7"}], ["missing_captured_call"]),
        ([{"model_ref": JUDGE, "response_id": "r0"}], ["missing_captured_call"]),
        ([{"model_ref": MODEL, "response_id": "r1"}], ["duplicated_captured_call"]),
        ([{"response_id": "r0"}, {"model_call_id": "c0"}], []),
    ],
)
def test_claims_are_matched_by_id_or_by_model_and_response(make_row: Make, refs: list[Json], kinds: list[str]) -> None:
    """A claim means the one captured call with its identity; none or several is a mismatch."""
    calls = [call(), call(1), call(2, response_id="r1", model_call_id=None)]
    row = whole(make_row, ng_trajectory=trajectory(calls, [turn(refs=refs)]))
    found = [f["detail"]["kind"] for f in judge(row)["findings"] if f["check"] == "trajectory_capture_mismatch"]
    assert found == kinds


def test_a_gap_between_trajectory_and_capture_is_a_mismatch(make_row: Make) -> None:
    """What the trajectory itself reports as contradictory is a finding, once for each place."""
    gaps = ("model_call_reference_conflict", "model_call_reference_unmatched", "conversation_unavailable")
    row = whole(make_row, ng_trajectory=trajectory([call()], [turn(), turn(9)], gaps))
    details = [f["detail"] for f in judge(row)["findings"]]
    assert [detail["kind"] for detail in details] == ["missing_captured_call", "conflicting_call_ownership"]
    assert details[1]["observation_gap"] == "model_call_reference_conflict"


@pytest.mark.parametrize(
    ("gap", "unobserved"),
    [
        ("model_call_capture_incomplete", {"model_call_failed", "trajectory_capture_mismatch"}),
        ("turn_model_call_scope_incomplete", {"rollout_token_count_mismatch"}),
        ("trajectory_projection_failed", {"model_call_failed", "rollout_token_count_mismatch"}),
        ("conversation_unavailable", set()),
    ],
)
def test_a_gap_makes_what_it_hides_unobserved(make_row: Make, gap: str, unobserved: set[str]) -> None:
    """What a witness admits not to know is not judged, and the rollout is then unobserved rather than healthy."""
    verdict = judge(whole(make_row, ng_trajectory=trajectory([call()], [turn()], (gap,))))
    assert unobserved <= set(verdict["unobserved"])
    assert verdict["verdict"] == ("unobserved" if unobserved else "healthy")


def test_turns_come_from_the_response_when_the_trajectory_has_none(make_row: Make) -> None:
    """With its turns unavailable, a trajectory leaves them to the response."""
    row = whole(make_row, ng_trajectory=trajectory([call()], [], ("turns_unavailable",), invocations=[turn()]))
    assert fired(row) == []
    assert "rollout_missing_agent_turns" not in judge(row)["unobserved"]


@pytest.mark.parametrize("reason", ["length", "max_output_tokens", "max_tokens"])
@pytest.mark.parametrize(
    ("answer", "runaway"),
    [
        (said("x"), False),
        (said(""), True),
        ({}, True),
        ({"choices": [{"message": {"content": "x"}}]}, False),
        ({"choices": [{"text": ""}, "junk", {"message": None}]}, True),
        ({"content": [{"type": "text", "text": "x"}]}, False),
        ({"output": [{"type": "function_call", "name": "f"}]}, False),
        ("x", True),
    ],
)
def test_a_runaway_has_no_content_in_any_dialect(make_row: Make, reason: str, answer: Any, runaway: bool) -> None:
    """Only a call that ran into its limit and says nothing is a runaway generation."""
    row = whole(make_row, ng_trajectory=trajectory([call(finish_reason=reason, response=answer)], [turn()]))
    assert (fired(row) == ["model_call_runaway_generation"]) is runaway


def test_a_limited_call_without_its_response_cannot_be_judged(make_row: Make) -> None:
    """Whether a call that ran into its limit has content cannot be told without its response."""
    row = whole(make_row, ng_trajectory=trajectory([call(finish_reason="length", response=None)], [turn()]))
    assert judge(row)["unobserved"] == ["model_call_runaway_generation"]


UNHEALTHY_RESPONSES: dict[str, tuple[Any, str]] = {
    "no output": ({"output": []}, "rollout_missing_agent_turns"),
    "nothing at all": ({}, "rollout_missing_agent_turns"),
    "null": (None, "rollout_missing_agent_turns"),
    "a blank message": (said("  "), "rollout_missing_agent_turns"),
    "a blank message, hollow": (said(""), "agent_turn_hollow"),
    "an empty chat": ({"choices": []}, "rollout_missing_agent_turns"),
    "only tool outputs": ({"output": [{"type": "function_call_output"}]}, "rollout_missing_agent_turns"),
    "reasoning alone": ({"output": [{"type": "reasoning", "summary": ["why"]}]}, "agent_turn_hollow"),
    "cut off by its limit": (
        response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        "model_call_runaway_generation",
    ),
    "cut off, reason only": (
        {**said(), "incomplete_details": {"reason": "length"}},
        "model_call_runaway_generation",
    ),
    "cut off, status only": ({**said(), "status": "incomplete"}, "model_call_runaway_generation"),
    "a finish reason": ({**said(), "finish_reason": "length"}, "model_call_runaway_generation"),
    "its last item": (
        {"output": [{**said()["output"][0], "status": "incomplete"}]},
        "model_call_runaway_generation",
    ),
    "failed": (response(status="failed"), "rollout_ended_on_failed_model_call"),
    "an error": (response(error={"code": "server_error"}), "rollout_ended_on_failed_model_call"),
    "no completion": (response((10, 0)), "model_call_zero_completion_tokens"),
}


@pytest.mark.parametrize("case", UNHEALTHY_RESPONSES)
def test_a_bad_response_is_unhealthy_without_a_trajectory(make_row: Make, case: str) -> None:
    """An empty, cut-off or failed response is unhealthy on its own evidence."""
    answer, check = UNHEALTHY_RESPONSES[case]
    row = make_row(response=answer)
    assert check in fired(row)
    assert judge(row)["verdict"] == "unhealthy"


@pytest.mark.parametrize(
    "answer",
    [
        response(),
        response((0, 0)),
        {"output": [{"type": "reasoning", "summary": ["why"]}, {"type": "function_call", "name": "f"}]},
        {"choices": [{"message": {"content": "x"}}]},
        {"usage": {"input_tokens": 3, "output_tokens": 3}},
    ],
)
def test_a_good_response_alone_is_unobserved(make_row: Make, answer: Json) -> None:
    """Nothing speaks against it, and not everything could be looked at."""
    verdict = judge(make_row(response=answer))
    assert (verdict["verdict"], verdict["findings"]) == ("unobserved", [])
    assert "trajectory_capture_mismatch" in verdict["unobserved"]


def test_a_row_without_a_response_says_nothing(make_row: Make) -> None:
    """A thin row is not an empty response."""
    verdict = judge(make_row())
    assert verdict["verdict"] == "unobserved"
    assert set(verdict["unobserved"]) == set(metrics.CHECKS)


def test_captured_calls_are_judged_without_a_trajectory(make_row: Make) -> None:
    """With model calls captured and no trajectory, all of them are taken as the agent's own."""
    good = {"model_call_id": "a", "tokens_in": 3, "tokens_out": 4, "started_at": 1, "response": said()}
    bad = {"response_id": "b", "tokens_in": 3, "tokens_out": 0, "started_at": 2, "error_category": "timeout"}
    row = make_row(response=response((6, 4)), ng_model_call_capture={"calls": [good, bad, "junk"]})
    assert fired(row) == [
        "rollout_ended_on_failed_model_call",
        "model_call_zero_completion_tokens",
        "model_call_failed",
    ]
    gap = {"calls": [good], "gaps": [{"code": "model_call_capture_incomplete"}]}
    assert "model_call_failed" in judge(make_row(response=response(), ng_model_call_capture=gap))["unobserved"]
    fine = judge(make_row(response=response((3, 4)), ng_model_call_capture={"calls": [good]}))
    assert fine["unobserved"] == ["trajectory_capture_mismatch", "rollout_token_count_mismatch"]


@pytest.mark.parametrize("broken", ["text", {"turns": 3}, {"model_calls": ["x"]}, []])
def test_a_trajectory_that_is_none_is_an_unreadable_record(make_row: Make, broken: Any) -> None:
    """The record is unhealthy, and the response is judged in its place."""
    row = make_row(ng_trajectory=broken, response=response())
    assert fired(row) == ["record_unreadable"]
    assert "rollout_missing_agent_turns" not in judge(row)["unobserved"]


def test_an_unreadable_line_is_a_task_of_its_own() -> None:
    """A line that is no object has a pseudo task named after its place, and nothing else about it is known."""
    checker = metrics.HealthChecker()
    checker.add_unreadable("r.jsonl", 8, "JSONDecodeError")
    checker.add([1], source_file="s.jsonl", line=2, source_index=1)
    checker.add({"_ng_task_index": 0.5}, source_file="s.jsonl", line=3, source_index=1)
    report = checker.finish()
    first, second, third = report.verdicts()
    assert first["_ng_task_index"] == "__unreadable_record__:input-0:line-8"
    assert first["rollout_id"] == "__unreadable_record__:input-0:line-8-0"
    (finding,) = first["findings"]
    assert (finding["check"], finding["locator"]) == ("record_unreadable", {"source_file": "r.jsonl", "line": 8})
    assert set(first["unobserved"]) == set(metrics.CHECK_IDS[:12]) - {"record_unreadable"}
    assert second["_ng_task_index"] == "__unreadable_record__:input-1:line-2"
    assert "whole number" in third["findings"][0]["detail"]["error"]
    assert report.summary["run"]["issues"]["record_unreadable"] == 3
    assert list(metrics.HealthChecker(ignored="record_unreadable").add(3).findings) == []


def test_two_records_of_one_rollout_are_both_unhealthy(make_row: Make) -> None:
    """Records that claim the same repeat are flagged; stages of one repeat are not; the task counts it once."""
    rows = [whole(make_row), whole(make_row), whole(make_row, stage_index=1)]
    report = metrics.check_health(rows)
    verdicts = list(report.verdicts())
    assert [v["verdict"] for v in verdicts] == ["healthy", "unhealthy", "unhealthy"]
    assert verdicts[0]["stage_index"] == 1
    assert verdicts[1]["findings"] == [{"check": "rollout_duplicate_identity", "detail": {"duplicate_count": 2}}]
    assert report.summary["tasks"]["0"] == {"repeats": 1, "healthy": 0, "unhealthy": 0, "unobserved": 1, "flags": []}
    ignored = metrics.check_health(rows, ignored=["rollout_duplicate_identity"])
    assert ignored.summary["run"]["verdicts"]["healthy"] == 3


def test_a_task_whose_repeats_are_all_unhealthy(make_row: Make) -> None:
    """At least two repeats with a verdict, all unhealthy; unobserved ones do not count."""
    bad = {"response": {"output": []}}
    rows = [make_row(0, 0, **bad), make_row(0, 1, **bad), make_row(0, 2), make_row(1, 0, **bad), make_row(2, 0, **bad)]
    rows += [whole(make_row, task=2, rollout=1)]
    summary = metrics.check_health(rows).summary
    assert [summary["tasks"][task]["flags"] for task in "012"] == [["task_consistently_unhealthy"], [], []]
    coverage = summary["run"]["artifacts"]["coverage"]["task_consistently_unhealthy"]
    assert coverage == {"evaluated": 2, "unobserved": 1, "ignored": 0}
    assert summary["run"]["issues"]["task_consistently_unhealthy"] == 1
    ignored = metrics.check_health(rows, ignored="task_consistently_unhealthy").summary
    assert ignored["tasks"]["0"]["flags"] == []
    assert ignored["run"]["artifacts"]["coverage"]["task_consistently_unhealthy"]["ignored"] == 3


def test_a_task_without_a_successful_call(make_row: Make) -> None:
    """Fires when the calls of all repeats are known and none succeeded; silent with one success; else unobserved."""
    failed = trajectory([call(status_code=500)], [turn()])
    rows = [whole(make_row, rollout=r, ng_trajectory=failed) for r in range(2)]
    rows += [whole(make_row, task=1, ng_trajectory=failed), whole(make_row, task=1, rollout=1)]
    rows += [whole(make_row, task=2, ng_trajectory=failed), make_row(2, 1)]
    summary = metrics.check_health(rows).summary
    flags = [summary["tasks"][task]["flags"] for task in "012"]
    assert flags == [["task_consistently_unhealthy", "task_no_successful_model_calls"], [], []]
    coverage = summary["run"]["artifacts"]["coverage"]["task_no_successful_model_calls"]
    assert coverage == {"evaluated": 2, "unobserved": 1, "ignored": 0}


def raising(evidence: Any) -> None:
    raise LookupError("not my kind of row")


def test_a_check_that_raises_is_reported_and_costs_itself(make_row: Make) -> None:
    """The other checks go on; the one that raised is unobserved and named."""
    checker = metrics.HealthChecker(checks={"agent_turn_hollow": raising, **FIRST})
    checker.add(whole(make_row))
    (verdict,) = checker.finish().verdicts()
    (finding,) = verdict["findings"]
    assert finding["check"] == "check_execution_error"
    assert finding["detail"] == {"check": "agent_turn_hollow", "error": "LookupError: not my kind of row"}
    assert verdict["unobserved"] == ["agent_turn_hollow"]
    quiet = metrics.HealthChecker(checks={"agent_turn_hollow": raising}, ignored="check_execution_error")
    assert quiet.add(whole(make_row)).verdict is metrics.Verdict.UNOBSERVED


FIRST = {"rollout_missing_agent_turns": _checks.rollout_missing_agent_turns}


def test_ignored_checks_are_not_run_and_are_named(make_row: Make) -> None:
    """An ignored check finds nothing, is no reason to be unobserved, and stands in the summary."""
    names = "rollout_missing_agent_turns, agent_turn_hollow"
    report = metrics.check_health([make_row(response={"output": []})], ignored=names)
    assert report.summary["run"]["ignored_checks"] == ["agent_turn_hollow", "rollout_missing_agent_turns"]
    assert report.summary["run"]["artifacts"]["coverage"]["agent_turn_hollow"]["ignored"] == 1
    assert "ignored: agent_turn_hollow" in report.line
    with pytest.raises(UsageError, match="no such health check: agent_turn_holow"):
        metrics.HealthChecker(ignored=["agent_turn_holow"])
    assert metrics.normalize_ignored(None) == frozenset()


def test_rollouts_have_ids_and_rows_may_lack_indices(make_row: Make) -> None:
    """An id is the row's own, else the trajectory's, else made of the indices; a row without a task is its own."""
    checker = metrics.HealthChecker()
    ids = [
        checker.add(make_row(3, 1, _ng_rollout_id="mine")).rollout_id,
        checker.add(make_row(3, 2, ng_trajectory={"rollout_id": "its"})).rollout_id,
        checker.add(make_row("t", 3)).rollout_id,
        checker.add({"reward": 1}).rollout_id,
    ]
    assert ids == ["mine", "its", "t-3", "3-0"]
    assert repr(checker) == "<HealthChecker records=4>"


def test_repeated_captures_of_a_call_are_counted(make_row: Make) -> None:
    """Calls with one identity are replays of each other; calls without any are not."""
    calls = [call(), call(), call(1, model_call_id=None), call(1, model_call_id=None), call(2, model_call_id=None)]
    anonymous = [call(model_call_id=None, response_id=None)] * 2
    row = whole(make_row, ng_trajectory=trajectory([*calls, *anonymous], [turn(refs=[])]))
    stats = metrics.check_health([row]).summary["run"]["stats"]["duplicated_calls"]
    assert stats == {"replayed": 2, "rollouts": 1}


def test_an_empty_run_has_a_summary() -> None:
    """Nothing was checked, and the summary has all its keys."""
    summary = metrics.check_health([]).summary
    assert summary["tasks"] == {}
    assert summary["run"]["stats"]["tokens"]["prompt"] == 0


# Every name that the checks read, so that random records reach them.
NAMES = sorted(
    {"type", "role", "content", "text", "output", "status", "error", "usage", "input_tokens", "output_tokens", "calls"}
    | {"model_calls", "turns", "gaps", "code", "answer", "model_call_id", "response_id", "model_ref", "name", "choices"}
    | {"response_metadata", "token_stats", "prompt_tokens", "completion_tokens", "finish_reason", "incomplete_details"}
    | {"reason", "message", "started_at", "status_code", "tool_calls", "invocations", "response", "error_category"}
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 600) | st.sampled_from(["failed", "length", "x", "", "incomplete"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)
ROWS = st.fixed_dictionaries(
    {}, optional={"response": JSON, "ng_trajectory": JSON, "ng_model_call_capture": JSON, "stage_index": JSON}
)


@given(st.lists(ROWS, max_size=4))
@settings(deadline=None, max_examples=150)
def test_no_json_breaks_the_checks(rows: list[Json]) -> None:
    """Whatever a record holds, every row has a verdict, no check raises, and the report is JSON."""
    report = metrics.check_health([{"_ng_task_index": 0, "_ng_rollout_index": i, **r} for i, r in enumerate(rows)])
    assert len(json.dumps(list(report.verdicts()))) > 0
    assert json.dumps(report.summary)
    assert report.summary["run"]["issues"]["check_execution_error"] == 0
    for row in rows:
        metrics.rollout_perf(row)
        metrics.summarize(row)
