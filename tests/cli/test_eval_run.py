"""``gym-trio eval run``: files, report, exit codes, and every bad input as one line."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import orjson
import pytest

MODEL = ("--model-url", "http://127.0.0.1:9/v1", "--model", "m")


def test_a_run_leaves_its_files_and_a_table(run: Any, scripted: Any, read_rows: Any, tmp_path: pathlib.Path) -> None:
    """Every row has its result in the file, and the table shows the mean that the rows have."""
    ran = run("eval", "run", "mcqa", "--config", scripted("\\boxed{B}"), "--output", "out/r.jsonl")
    assert ran.code == 0, ran.err
    rows = read_rows(tmp_path / "out/r.jsonl")
    assert len(rows) == 20
    assert all(row["agent_ref"]["name"] == "mcqa_agent" and "response" in row for row in rows)
    mean = sum(row["reward"] for row in rows) / len(rows)
    assert 0 < mean < 1
    assert re.search(rf"mean/reward\W+{mean:.4g}\b", ran.out)
    assert "coverage: expected 20, scored 20, failed 0, masked 0, missing 0" in ran.out
    assert "20/20 rollouts" in ran.err
    for suffix in ("_materialized_inputs.jsonl", "_aggregate_metrics.json", "_timing.json", "_run.json"):
        assert (tmp_path / f"out/r{suffix}").stat().st_size > 0
    assert (tmp_path / "out/quality_summary.json").exists()
    [entry] = orjson.loads((tmp_path / "out/r_aggregate_metrics.json").read_bytes())
    assert entry["key_metrics"]["mean/reward"] == pytest.approx(mean)


def test_json_is_one_document(run: Any, scripted: Any) -> None:
    """With --json standard output holds one JSON document and nothing else."""
    ran = run("eval", "run", "mcqa", "--config", scripted("\\boxed{B}"), "--json", "--limit", "3")
    report = orjson.loads(ran.out)
    assert ran.code == 0
    assert report["complete"] is True
    assert report["coverage"]["scored"] == 3
    assert report["files"]["rollouts"] == "results/rollouts.jsonl"


def test_sockets_give_the_same_rewards(run: Any, scripted: Any, read_rows: Any, tmp_path: pathlib.Path) -> None:
    """Where the servers live changes nothing of the results."""
    found = {}
    for serve in ("memory", "sockets"):
        config = scripted("\\boxed{B}")
        ran = run("eval", "run", "mcqa", "--config", config, "--serve", serve, "--output", f"{serve}.jsonl")
        assert ran.code == 0, ran.err
        rows = read_rows(tmp_path / f"{serve}.jsonl")
        found[serve] = sorted((row["_ng_task_index"], row["reward"], row["extracted_answer"]) for row in rows)
    assert found["memory"] == found["sockets"]


def test_limit_and_repeats(run: Any, scripted: Any, read_rows: Any, tmp_path: pathlib.Path) -> None:
    """--limit 3 --num-repeats 4 is twelve rollouts, each (task, repeat) once."""
    config = scripted("\\boxed{B}")
    ran = run("eval", "run", "mcqa", "--config", config, "--limit", "3", "--num-repeats", "4", "-o", "r.jsonl")
    assert ran.code == 0, ran.err
    found = sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in read_rows(tmp_path / "r.jsonl"))
    assert found == [(task, repeat) for task in range(3) for repeat in range(4)]


def test_a_complete_run_resumes_to_nothing(run: Any, scripted: Any, tmp_path: pathlib.Path) -> None:
    """Resuming a complete run is exit code 0 and changes no row."""
    words = ("eval", "run", "mcqa", "--config", scripted("\\boxed{B}"), "-o", "r.jsonl", "--limit", "4")
    assert run(*words).code == 0
    before = (tmp_path / "r.jsonl").read_bytes()
    ran = run(*words, "--resume")
    assert ran.code == 0, ran.err
    assert (tmp_path / "r.jsonl").read_bytes() == before
    assert "scored 4" in ran.out
    assert "r.jsonl: nothing is left to run" in ran.err


def test_overrides_reach_the_servers(run: Any, scripted: Any) -> None:
    """++key=value changes a server's setting; a wrong key is named with the nearest right one."""
    place = "++mcqa_agent.responses_api_agents.simple_agent"
    config = scripted("\\boxed{B}")
    assert run("eval", "run", "mcqa", "--config", config, f"{place}.max_steps=2", "--limit", "1").code == 0
    ran = run("eval", "run", "mcqa", "--config", config, f"{place}.max_stepz=2", "--limit", "1")
    assert (ran.code, ran.out) == (2, "")
    assert "mcqa_agent.responses_api_agents.simple_agent.max_stepz" in ran.err
    assert "max_steps" in ran.err


def test_a_folder_that_cannot_be_written_is_named(run: Any, scripted: Any) -> None:
    """The folder is tried before anything starts."""
    ran = run("eval", "run", "mcqa", "--config", scripted("x"), "--output", "/proc/no/r.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert "/proc/no" in ran.err


GOOD_ROW = '{"responses_create_params": {"input": "hi"}, "options": [{"A": "x"}], "expected_answer": "A"}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD_ROW + "{\n", "rows.jsonl:2: is not JSON"),
        (GOOD_ROW + "[1]\n", "rows.jsonl:2: "),
        (GOOD_ROW + '{"a": 1}\n', "rows.jsonl:2: lacks 'responses_create_params'"),
        ('{"responses_create_params": {"input": "x"}, "agent_ref": {"name": "mcqa_agnet"}}\n', "mcqa_agnet"),
        ("", "has no rows"),
        (
            '{"responses_create_params": {"input": "x"}, "_ng_task_index": 1, "_ng_rollout_index": 0}\n' * 2,
            "rows.jsonl:2: repeats line 1",
        ),
    ],
)
def test_a_bad_row_is_one_line_before_anything_starts(
    run: Any, scripted: Any, tmp_path: pathlib.Path, content: str, said: str
) -> None:
    """The line names file, line and fault; the exit code is 2; no result file is made."""
    (tmp_path / "rows.jsonl").write_text(content)
    ran = run("eval", "run", "mcqa", "--config", scripted("x"), "--input", "rows.jsonl", "-o", "r.jsonl")
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "r.jsonl").exists() or not (tmp_path / "r.jsonl").stat().st_size


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reasoning_gim", "--model-type", "local"), "did you mean 'reasoning_gym'?"),
        ((), "name an environment"),
        (("mcqa", "reasoning_gym", *MODEL), "one environment at a time"),
        (("mcqa",), "--model-type local"),
        (("mcqa", "--model-type", "lokal"), "did you mean 'local'?"),
        (("mcqa", "--model-url", "http://127.0.0.1:9/v1"), "--model"),
        (("mcqa", *MODEL, "--input", "none.jsonl"), "none.jsonl: there is no such file"),
        (("mcqa", *MODEL, "--limit", "0"), "limit"),
        (("mcqa", *MODEL, "--limit", "many"), "--limit"),
        (("mcqa", *MODEL, "--config", "none.yaml"), "none.yaml"),
        (("mcqa", *MODEL, "--shard", "5/4"), "--shard"),
        (("mcqa", *MODEL, "++unknown_key=1"), "unknown_key"),
        (("mcqa", *MODEL, "--serve", "carrier_pigeon"), "--serve"),
        (("reasoning_gym", "++reasoning_gym.resources_servers.reasoning_gym.tasks=chain_sun", *MODEL), "chain_sum"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(run: Any, words: tuple[str, ...], said: str) -> None:
    """What the user got wrong is said in one line that names it."""
    ran = run("eval", "run", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def http(status: str, content_type: str, body: bytes, *, length: int | None = None, extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length or len(body)}\r\n{extra}"
    return f"{head}connection: close\r\n\r\n".encode() + body


def test_an_endpoint_that_is_down_is_found_before_anything_starts(run: Any, tmp_path: pathlib.Path) -> None:
    """Connection refused: exit code 2, the URL is named, and nothing was written."""
    ran = run("eval", "run", "mcqa", *MODEL, "-o", "r.jsonl")
    assert ran.code == 2
    assert "http://127.0.0.1:9/v1" in ran.err
    assert not (tmp_path / "r.jsonl").exists()


def test_an_endpoint_that_refuses_the_key_is_found_before_anything_starts(run: Any, endpoint: Any) -> None:
    """A 401 says where a key can be given, and never shows the key."""
    url = endpoint(
        lambda head: http("401 Unauthorized", "application/json", b'{"error": "bad key sk-secret123456789"}')
    )
    key = "sk-secret123456789"
    ran = run("eval", "run", "mcqa", "--model-url", url, "--model", "m", "--model-api-key", key)
    assert ran.code == 2
    assert "401" in ran.err
    assert "POLICY_API_KEY" in ran.err
    assert key not in ran.err + ran.out


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (http("500 Oops", "application/json", b'{"error": {"message": "boom"}}'), {"provider_unavailable"}),
        (http("200 OK", "text/html", b"<html>hello</html>"), {"provider_unavailable"}),
        (http("200 OK", "application/json", b'{"id": "resp_1", "outp', length=500), {"transport_peer_drop"}),
        (http("429 Too Many Requests", "application/json", b"{}"), {"provider_quota_exhausted"}),
        (http("400 Bad Request", "application/json", b'{"error": {"message": "too long"}}'), {"agent_run_error"}),
    ],
)
def test_a_broken_endpoint_makes_failure_rows_and_the_run_goes_on(
    run: Any, endpoint: Any, read_rows: Any, tmp_path: pathlib.Path, answer: bytes, kinds: set[str]
) -> None:
    """Each rollout is a failure row with its kind, never a reward of zero; the run ends with its report."""
    url = endpoint(lambda head: answer)
    quick = "++policy_model.responses_api_models.openai_model"
    ran = run(
        *("eval", "run", "mcqa", "--model-url", url, "--model", "m", "--limit", "2", "-o", "r.jsonl"),
        *(f"{quick}.retry_max_attempts=2", f"{quick}.retry_first_wait_seconds=0.01"),
    )
    assert ran.code == 0, ran.err
    assert "scored 0, failed 2" in ran.out
    assert not (tmp_path / "r.jsonl").read_bytes()
    assert {row["failure_kind"] for row in read_rows(tmp_path / "r_failures.jsonl")} == kinds


def test_the_key_of_env_yaml_reaches_the_endpoint_and_no_file(
    run: Any, endpoint: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """policy_api_key, then POLICY_API_KEY: sent as a bearer token, written nowhere."""
    heads: list[bytes] = []
    body = orjson.dumps(
        {
            "id": "r",
            "object": "response",
            "created_at": 1.0,
            "model": "m",
            "status": "completed",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "B"}]}],
        }
    )

    def answer(head: bytes) -> bytes:
        heads.append(head)
        return http("200 OK", "application/json", body)

    words = ("eval", "run", "mcqa", "--model-url", endpoint(answer), "--model", "m", "--limit", "1")
    (tmp_path / "env.yaml").write_text("policy_api_key: sk-fromenvyaml1234567\n")
    ran = run(*words, "-o", "one/r.jsonl")
    assert ran.code == 0, ran.err
    assert all(b"sk-fromenvyaml1234567" in head for head in heads)
    (tmp_path / "env.yaml").unlink()
    heads.clear()
    monkeypatch.setenv("POLICY_API_KEY", "sk-fromprocess1234567")
    assert run(*words, "-o", "two/r.jsonl").code == 0
    assert all(b"sk-fromprocess1234567" in head for head in heads)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"sk-from" not in written


def test_repeats_per_agent(run: Any, scripted: Any, read_rows: Any, tmp_path: pathlib.Path) -> None:
    """--num-repeats takes a number for each agent too."""
    config = scripted("\\boxed{B}")
    words = ("eval", "run", "mcqa", "--config", config, "--limit", "2", "-o", "r.jsonl")
    assert run(*words, "--num-repeats", "{mcqa_agent: 3}").code == 0
    assert len(read_rows(tmp_path / "r.jsonl")) == 6
    assert run(*words, "--num-repeats", "0").code == 2


def test_another_environments_rollouts_are_not_judged(run: Any, scripted: Any, read_rows: Any) -> None:
    """They would all be wrong, and count as zeros; --force judges them nevertheless."""
    assert run("eval", "run", "mcqa", "--config", scripted("x"), "--limit", "3", "--output", "a.jsonl").code == 0
    refused = run("eval", "reverify", "--rollouts", "a.jsonl", "-e", "calendar", "--output", "b.jsonl")
    assert refused.code == 2
    assert "its rows are not calendar's" in refused.err
    assert "exp_cal_state" in refused.err
    forced = run("eval", "reverify", "--rollouts", "a.jsonl", "-e", "calendar", "--output", "b.jsonl", "--force")
    assert forced.code == 0
    assert len(read_rows(pathlib.Path("b.jsonl"))) + len(read_rows(pathlib.Path("b_failures.jsonl"))) == 3
