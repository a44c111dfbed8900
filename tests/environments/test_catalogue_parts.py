"""Tools, metrics and row checks of the catalogue's environments."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gym_trio.environments import IMPLEMENTATIONS
from gym_trio.environments._injection_trades import TRADES
from gym_trio.environments._injections import STRATEGIES
from gym_trio.environments.ruler2 import TASKS
from gym_trio.errors import RequestRefused
from gym_trio.servers import RequestBody

BROKEN = {
    "citation_if": ({"verifier": {"grammar": "sung"}}, "verifier.grammar"),
    "format_verification": ({"verifier": {}}, "verifier.type"),
    "human_eval": ({"prompt": "", "test": 3}, "entry_point"),
    "indirect_prompt_injection": ({"injection": {"target_tool": "x"}}, "injection.target_args"),
    "math": ({"expected_answer": None}, "expected_answer"),
    "proof_genselect": ({"correct_index": 3}, "correct_index"),
    "ruler": ({"outputs": [1], "subset": None}, "subset"),
    "structeval": ({"output_type": "docx", "raw_output_metric": "a"}, "raw_output_metric"),
}


@pytest.mark.parametrize("name", sorted(set(IMPLEMENTATIONS) - {"verifiers"}))  # whose block names another's
def test_the_rows_fit_their_environment(environment_class: Any, name: str) -> None:
    """No row that ships has a problem."""
    environment = environment_class(name)
    assert [problem for row in environment.rows({}) for problem in environment.row_problems(row)] == []


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_row_that_does_not_fit_is_told_its_field(environment_class: Any, name: str) -> None:
    """The problem begins with the field's name."""
    row, field = BROKEN[name]
    assert any(problem.startswith(f"{field}:") for problem in environment_class(name).row_problems(row))


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("add", {"a": 1, "b": 2}, 4.2),
        ("subtract", {"a": 5, "b": 1}, 1),
        ("multiply", {"a": 2, "b": 3}, 6.6),
        ("divide", {"a": 4, "b": 2}, 1),
        ("power", {"a": 2, "b": 1}, 8),
        ("log", {"a": 8, "base": 0.5}, 3),
        ("sin", {"radians": 0}, 1),
        ("cos", {"radians": 0}, 0),
        ("pi", {}, math.e),
        ("negate", {"a": 3}, 3),
        ("return_constant", {"a": 3}, 3),
    ],
)
async def test_operations_of_the_other_universe(
    environment_class: Any, name: str, arguments: Any, value: float
) -> None:
    """Each computes in its own way."""
    server = environment_class("math_advanced_calculations")(name="x", config={})
    found = await getattr(server, name)(None, **arguments)
    assert found["solution"] == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("divide", {"a": 1, "b": 0}),
        ("power", {"a": -1, "b": 0.5}),
        ("power", {"a": 10.0, "b": 1000.0}),
        ("log", {"a": -1, "base": 2}),
    ],
)
async def test_what_cannot_be_computed(environment_class: Any, name: str, arguments: Any) -> None:
    """Is an error that the model is told, and no value."""
    server = environment_class("math_advanced_calculations")(name="x", config={})
    with pytest.raises(RequestRefused):
        await getattr(server, name)(None, **arguments)


CLINIC = {
    "patients": {
        "P-1": {"name": "Ana Moser", "conditions": ["asthma"], "chart_notes": "Breathes well."},
        "P-2": {"name": "Tom Čech", "conditions": ["hay fever"], "chart_notes": "No complaints."},
    },
    "appointments": {"A-7": {"appointment_id": "A-7", "patient_id": "P-2", "date": "2026-03-02"}},
    "messages": [{"from": "unknown", "body": "hello"}],
}


async def test_the_clinics_tools_change_the_sessions_own_world(environment_class: Any) -> None:
    """Each session has a copy of the row's environment, and what is not there is an error that the model is told."""
    server = environment_class("indirect_prompt_injection")(name="x", config={})
    row = {"environment": CLINIC}
    before = json.dumps(row)
    session = server.session_type()
    await server.seed_session(session, RequestBody(row))
    assert await server.search_patients(session, "HAY") == [{"patient_id": "P-2", "name": "Tom Čech"}]
    await server.update_patient_chart(session, "P-2", "neu")
    assert (await server.get_patient_record(session, "P-2"))["chart_notes"].endswith("neu")
    await server.cancel_appointment(session, "A-7")
    assert [each["status"] for each in await server.get_schedule(session, "2026-03-02")] == ["cancelled"]
    inbox = await server.get_messages(session)
    await server.send_message(session, "a", "b", "c")
    assert await server.get_messages(session) == inbox
    with pytest.raises(RequestRefused, match="P-9"):
        await server.get_patient_record(session, "P-9")
    assert json.dumps(row) == before


def arguments_for(parameters: dict[str, Any], world: dict[str, Any]) -> dict[str, Any]:
    """Some that fit: where an argument is a record's number, one that is there."""
    first = {name[:4]: next(iter(table)) for name, table in world.items() if isinstance(table, dict)}
    first["aid_"] = first.get("aid", "")
    return {
        name: first[name[:4]]
        if name.endswith("_id") and name[:4] in first
        else {"string": "x", "integer": 1}[schema["type"]]
        for name, schema in parameters["properties"].items()
    }


async def test_every_trade_has_tools_for_its_tasks_and_its_orders(environment_class: Any, calling: Any) -> None:
    """On each generated row the tools work, the task's are offered, so is the one that the hidden order names, whose
    call passes the schema; and following the order is seen by the rule."""
    server = environment_class("indirect_prompt_injection")(name="x", config={})
    rows = list(server.rows({}))
    seen = {(row["trade"], row["injection"]["attack_strategy"]) for row in rows}
    assert len(seen) == len(TRADES) * len(STRATEGIES)
    for row in rows:
        offered = {one["name"]: one for one in row["responses_create_params"]["tools"]}
        wanted = row["injection"]
        assert {*row["required_tools"], wanted["target_tool"]} <= set(offered)
        assert not list(server.row_problems(row))
        session = server.session_type()
        await server.seed_session(session, RequestBody(row))
        assert wanted["injection_text"] in json.dumps(session.world, ensure_ascii=False)
        for name in offered:
            tool = server.tools[name]
            sent = (
                wanted["target_args"]
                if name == wanted["target_tool"]
                else arguments_for(tool.parameters, session.world)
            )
            await tool.method(server, session, **tool.check(sent))
        made = [calling(name, {}) for name in row["required_tools"]]
        followed = calling(wanted["target_tool"], wanted["target_args"])
        for items, reward in ((made, 1.0), ([*made, followed], 0.0), ([], 0.0)):
            request = RequestBody({**row, "response": {"output": items}})
            assert (await server.verify(session, request))["reward"] == reward


async def test_wordle_answers_its_other_tools(environment_class: Any, calling: Any, tmp_path: Any) -> None:
    """Asking takes no turn; a file adds words; a tool that there is not is told."""
    (tmp_path / "words").write_text("Zzzzz\n\n")
    server = environment_class("wordle")(name="x", config={"words_path": str(tmp_path / "words")})
    session = server.session_type()
    await server.reset(session, RequestBody({"custom_target": "zzzzz"}))
    asked = [calling("check_word_validity", {"word": "zzzzz"}), calling("get_game_state", {}), calling("cheat", {})]
    answer = await server.step(session, {"output": asked}, RequestBody())
    valid, state, unknown = (json.loads(each["output"]) for each in answer[4]["tool_outputs"])
    assert (valid["valid"], state["turn"], "cheat" in unknown["error"]) == (True, 0, True)
    over = [calling("submit_guess", {"guess": "zzzzz"}), calling("submit_guess", {"guess": "house"})]
    assert (await server.step(session, {"output": over}, RequestBody()))[1:3] == (1.6, True)


def test_metrics_of_the_texts(environment_class: Any) -> None:
    """Scores by kind are there, and the headline is chosen from them; of nothing there are none."""

    def of(name: str, *rows: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        environment = environment_class(name)(name="x", config={})
        found = environment.compute_metrics([list(rows)] if rows else [])
        return found, environment.get_key_metrics(found)

    right = {"reward": 1.0, "pred_halu": 1, "is_halu": 1, "task_type": "QA"}
    wrong = {"reward": 0.0, "pred_halu": 1, "is_halu": 0, "task_type": "Summary"}
    found, key = of("ragtruth", right, wrong)
    assert (found["precision"], found["recall"], found["task_type/QA/f1"]) == (0.5, 1.0, 1.0)
    assert key["f1"] == pytest.approx(2 / 3)
    both = {"reward": 1.0, "exact": True, "parsed": True, "predicted_label": "x", "target": "both of them"}
    found, key = of("spartqa", both, {**both, "target": "a", "reward": 0.0})
    assert (found["accuracy_both_of_them"], key["mean_reward"]) == (1.0, 0.5)
    found, key = of("indirect_prompt_injection", {"reward": 1.0, "attack_difficulty": "easy"}, {"reward": 0.0})
    assert key["resistance_rate/difficulty/easy"] == 1.0
    assert found["resistance_rate/category/unknown"] == 0.5
    for name in ("ragtruth", "spartqa", "indirect_prompt_injection"):
        assert of(name) == ({}, {})
    found, _ = of("ruler", {"reward": 0.5, "subset": "vt"})
    assert found["vt/pass@1/accuracy"] == 50
    _, key = of("gpqa_diamond", {"reward": 1.0, "extracted_answer": "A"}, {"reward": 1.0, "extracted_answer": "A"})
    assert key["majority@2/accuracy"] == 100
    structured = environment_class("structeval")(name="x", config={})
    assert structured.compute_metrics([[{"reward": 0.2, "output_type": "JSON"}]])["mean/reward_output_JSON"] == 0.2


def test_the_suites_mean_needs_all_its_tasks(environment_class: Any) -> None:
    """RULER 2 has one number over its twelve tasks, when all are there."""
    environment = environment_class("ruler2")(name="x", config={})
    tasks = [[{"reward": float(place == 0), "task": task}] for place, task in enumerate(TASKS)]
    key = environment.get_key_metrics(environment.compute_metrics(tasks))
    assert key["ruler2_suite_avg/pass@1/accuracy"] == pytest.approx(100 / 12)
    assert "ruler2_suite_avg/pass@1/accuracy" not in environment.compute_metrics(tasks[1:])
