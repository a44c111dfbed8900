"""``env init``, ``env test`` and ``env validate``: what is written passes at once, and what is broken is named."""

from __future__ import annotations

import pathlib
from typing import Any

import orjson
import pytest


def test_what_init_writes_passes_its_test_at_once(run: Any, tmp_path: pathlib.Path) -> None:
    """Rows, contract, every fixture and the author's own test are looked at, and pass."""
    assert run("env", "init", "my_env", "--description", "Skies: of cities").code == 0
    ran = run("env", "test", "my_env", "--json")
    checks = {check["name"]: check["passed"] for check in orjson.loads(ran.out)}
    assert ran.code == 0, ran.out
    assert checks == dict.fromkeys(
        [
            "rows",
            "session contract",
            "fixture full reward",
            "fixture zero reward",
            "fixture no tool call",
            "fixture malformed",
            "the environment's own tests",
        ],
        True,
    )
    assert run("env", "validate", "my_env").code == 0


def test_a_folder_that_has_a_model_of_its_own_is_tested_without_it(run: Any, tmp_path: pathlib.Path) -> None:
    """Tests and rows need no endpoint, and a model that is named on the command line takes its place."""
    run("env", "init", "my_env")
    (tmp_path / "my_env" / "test_environment.py").unlink()
    with (tmp_path / "my_env" / "config.yaml").open("a") as file:
        file.write("policy_model: {responses_api_models: {openai_model: {openai_base_url: '${policy_base_url}'}}}\n")
    assert run("env", "test", "my_env").code == 0
    assert run("env", "validate", "my_env").code == 0
    ran = run("eval", "run", "my_env", "--model-url", "http://127.0.0.1:9/v1", "--model", "m", "++dry_run=true")
    assert "policy_base_url" not in ran.err
    ran = run("eval", "run", "my_env", "--model-type", "scripted_model", "++dry_run=true", "--output", "r.jsonl")
    assert "replies" in ran.err  # what the scripted model itself needs


def test_the_verifier_of_a_folder_judges_recorded_rollouts(run: Any, tmp_path: pathlib.Path) -> None:
    """No model is needed for it. The one that init writes needs its session, and that is said."""
    run("env", "init", "my_env")
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0, "response": {"output": []}, "reward": 1.0, "city": "Nuuk"}
    (tmp_path / "r.jsonl").write_bytes(orjson.dumps({**row, "responses_create_params": {"input": "x"}}) + b"\n")
    words = ("eval", "reverify", "r.jsonl", "-e", "my_env", "-o", "again.jsonl")
    refused = run(*words)
    assert (refused.code, "its reward depends on the state of the session" in refused.err) == (2, True), refused.err
    path = tmp_path / "my_env" / "environment.py"
    path.write_text(
        path.read_text().replace('"unsupported"', '"stateless"').replace("session.sky is not None", "False")
    )
    ran = run(*words)
    assert (ran.code, "1 changed" in ran.out) == (0, True), ran.err


def test_without_pytest_the_other_checks_are_made(
    run: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author's own tests have not passed, and how they could be run is said."""
    run("env", "init", "my_env")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ran = run("env", "test", "my_env")
    assert ran.code == 1
    assert "ok     fixture full reward" in ran.out
    assert "FAILED the environment's own tests: pytest, which runs them, is not installed" in ran.out


def test_without_fixtures_it_is_said_that_nothing_was_scored(run: Any, tmp_path: pathlib.Path) -> None:
    """What passes then says nothing of the verifier; of an environment that is built in, there are no such files."""
    run("env", "init", "my_env")
    (tmp_path / "my_env" / "fixtures.jsonl").unlink()
    (tmp_path / "my_env" / "test_environment.py").unlink()
    said = "my_env: there is no fixtures.jsonl, so the verifier was not tried"
    ran = run("env", "test", "my_env")
    assert (ran.code, said in ran.err) == (0, True)
    assert "fixtures.jsonl" not in run("env", "test", "mcqa").err


def test_a_fixture_that_does_not_hold_fails(run: Any, tmp_path: pathlib.Path) -> None:
    """The reward that came and the one that was expected are shown; the exit code is 1."""
    run("env", "init", "my_env")
    path = tmp_path / "my_env" / "fixtures.jsonl"
    path.write_text(path.read_text().replace('"reward":1.0', '"reward":0.25'))
    (tmp_path / "my_env" / "test_environment.py").unlink()
    ran = run("env", "test", "my_env")
    assert ran.code == 1
    assert "FAILED fixture full reward: reward 1.0, expected 0.25" in ran.out


def test_a_verifier_that_is_not_deterministic_fails(run: Any, tmp_path: pathlib.Path) -> None:
    """Each fixture is run twice."""
    run("env", "init", "my_env")
    path = tmp_path / "my_env" / "environment.py"
    path.write_text(path.read_text().replace("return 1.0 if", "import random\n        return random.random() if"))
    (tmp_path / "my_env" / "test_environment.py").unlink()
    ran = run("env", "test", "my_env")
    assert ran.code == 1
    assert "fixture full reward: not deterministic" in ran.out


def test_the_contract_is_checked_with_a_row_of_the_environment(run: Any, tmp_path: pathlib.Path) -> None:
    """A seed may count on what the environment's own rows have."""
    run("env", "init", "my_env")
    path = tmp_path / "my_env" / "environment.py"
    path.write_text(path.read_text().replace("session.sky = None", "session.sky, session.city = None, row['city']"))
    (tmp_path / "my_env" / "test_environment.py").unlink()
    ran = run("env", "test", "my_env")
    assert "ok     session contract" in ran.out
    assert ran.code == 0, ran.out


def test_a_row_that_does_not_fit_is_named_with_its_field(run: Any, tmp_path: pathlib.Path) -> None:
    """validate says file, line and field."""
    run("env", "init", "my_env")
    (tmp_path / "rows.jsonl").write_text(
        '{"responses_create_params": {"input": "x"}}\n'
        '{"responses_create_params": {"input": 3, "tools": [{"name": "get_wether"}]}}\n'
        '{"responses_create_params": []}\n'
    )
    ran = run("env", "validate", "my_env", "--input", "rows.jsonl")
    assert ran.code == 2
    assert "rows.jsonl:2: responses_create_params.input" in ran.out
    assert "rows.jsonl:2: responses_create_params.tools: there is no tool 'get_wether'" in ran.out
    assert "rows.jsonl:3: responses_create_params: must be an object" in ran.out


def test_init_writes_nothing_over_what_is_there(run: Any, tmp_path: pathlib.Path) -> None:
    """A folder with something in it, and a name that is none, are refused."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    ran = run("env", "init", "taken")
    assert ran.code == 2
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["file"]
    for name in ("My", "9lives", "a-b", "class", ""):
        assert run("env", "init", name).code == 2, name


def test_builtin_environments_pass_too(run: Any) -> None:
    """A built-in environment is tested by its name."""
    ran = run("env", "test", "mcqa")
    assert ran.code == 0
    assert "ok     session contract" in ran.out
