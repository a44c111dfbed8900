"""What is asked for wrongly, or ends early, is told in one line; and costs nothing that was there."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import orjson
import pytest

ROW = {"responses_create_params": {"input": "x"}, "response": {"output": []}}


def put(path: pathlib.Path, *rows: dict[str, Any]) -> pathlib.Path:
    path.write_bytes(b"".join(orjson.dumps({**ROW, **row}) + b"\n" for row in rows))
    return path


def rollout(task: int, reward: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": 0, "reward": reward, **more}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--drain-grace-seconds", "-1"], "--drain-grace-seconds: must be finite and not negative, not -1.0"),
        (["--health-check-ignore", "no_such"], "no such health check: no_such"),
        (["++telemetry={exporter: pigeon}"], "telemetry.exporter: must be one of otlp, file"),
        (
            ["++telemetry={exporter: file, path: /dev/null/spans.jsonl}"],
            "telemetry.path: /dev/null/spans.jsonl: cannot",
        ),
        (["--agent", "mcqa_agent", "++agent_map={_default: other}"], "agent_map._default is 'other', and --agent is"),
        (
            ["--num-repeats", "{mcqa_agnet: 2}"],
            "num_repeats says nothing of mcqa_agent, and has no '_default'; did you",
        ),
    ],
)
def test_an_earlier_run_is_not_moved_by_a_command_that_cannot_be(
    run: Any, scripted: Any, tmp_path: pathlib.Path, words: list[str], said: str
) -> None:
    """Whatever is wrong is found before the files of the run that is there are touched."""
    command = ("eval", "run", "mcqa", "--config", scripted("x"), "--limit", "2", "-o", "out/r.jsonl")
    assert run(*command).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    ran = run(*command, *words)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--concurrency", "0"], "--concurrency: must be a whole number of at least 1, not 0"),
        (["--limit", "0"], "--limit: must be a whole number of at least 1, not 0"),
        (["--rollout-timeout-seconds", "-1"], "--rollout-timeout-seconds: must be finite and not negative, not -1.0"),
        (["--drain-grace-seconds", "nan"], "--drain-grace-seconds: must be finite and not negative, not nan"),
    ],
)
def test_a_reverification_names_the_flag(run: Any, tmp_path: pathlib.Path, words: list[str], said: str) -> None:
    """Before a file is looked at."""
    ran = run("eval", "reverify", "--rollouts", "no.jsonl", "-e", "mcqa", "-o", "out/r.jsonl", *words)
    assert (ran.code, ran.err) == (2, f"gym-trio: {said}\n")


def test_files_that_are_not_named_or_hold_nothing(run: Any, tmp_path: pathlib.Path) -> None:
    """One line with the file, and with what to do."""
    nothing, some = put(tmp_path / "nothing.jsonl"), put(tmp_path / "r.jsonl", rollout(0))
    other = put(tmp_path / "o.jsonl", rollout(0, agent_ref={"name": "other"}))
    lost = put(tmp_path / "lost.jsonl")
    put(tmp_path / "lost_failures.jsonl", rollout(0, _ng_failure_class="timeout_exceeded"))
    for words, said in [
        (["aggregate"], "name the files of rollouts to aggregate"),
        (["aggregate", nothing], "nothing.jsonl: no rollouts to aggregate"),
        (
            ["aggregate", lost],
            "lost.jsonl: no rollouts to aggregate (expected 1, scored 0, failed 1 (1 timeout_exceeded)",
        ),
        (["profile", "--rollouts", "no.jsonl"], "gym-trio: no.jsonl: there is no such file"),
        (["profile", "--rollouts", some], "r_materialized_inputs.jsonl: there is no such file; name the rows"),
        (["compare", "--baseline", some, "--candidates", nothing], "nothing.jsonl: has no rollouts to compare"),
        (["compare", "--baseline", some, "--candidates", other], "with --baseline-agent and --candidate-agents"),
    ]:
        ran = run("eval", *words)
        assert ran.code == 2
        assert said in ran.err
        assert ran.err.count("\n") == 1
    ran = run("env", "validate", "mcqa", "--input", nothing)
    assert (ran.code, ran.err) == (2, f"gym-trio: {nothing}: has no rows\n")


def test_a_folder_a_device_and_a_file_that_should_be_a_folder(run: Any, scripted: Any, tmp_path: pathlib.Path) -> None:
    """Each is named with what to give in its place; a device is not replaced by a file."""
    put(tmp_path / "r.jsonl", rollout(0))
    os.mkfifo(tmp_path / "pipe")
    for words, said in [
        (["aggregate", "."], ".: is a folder; name its files, such as *.jsonl"),
        (["aggregate", "r.jsonl", "-o", "."], ".: must be a file such as rollouts.jsonl, not a folder"),
        (["profile", "--rollouts", "."], ".: must be a file such as rollouts.jsonl, not a folder"),
        (["health-check", "r.jsonl/x"], "r.jsonl/x: there is no such folder"),
        (["run", "mcqa", "--config", scripted("x"), "-o", "pipe"], "pipe: must be a file, for it is read"),
    ]:
        ran = run("eval", *words)
        assert ran.code == 2
        assert said in ran.err
        assert ran.err.count("\n") == 1
    assert (tmp_path / "pipe").is_fifo()


def test_a_pipe_cannot_be_read_twice(run: Any, scripted: Any, tmp_path: pathlib.Path) -> None:
    """Every command says so of every file, and none waits for who might write to it."""
    pipe, out = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    rollouts = put(tmp_path / "r.jsonl", rollout(0))
    for words in (
        ["eval", "run", "mcqa", "--config", scripted("x"), "-i", pipe, "-o", out / "r.jsonl"],
        ["eval", "reverify", "--rollouts", pipe, "-e", "mcqa", "-o", out / "r.jsonl"],
        ["eval", "aggregate", pipe],
        ["eval", "profile", "--rollouts", rollouts, "--inputs", pipe],
        ["eval", "compare", "--baseline", pipe, "--candidates", rollouts],
        ["eval", "compare", "--baseline", rollouts, "--candidates", rollouts, "--baseline-agg-metrics", pipe],
        ["env", "validate", "mcqa", "--input", pipe],
        ["view", pipe],
    ):
        ran = run(*words)
        said = f"gym-trio: {pipe}: must be a file, for it is read more than once; it is a device or a pipe\n"
        assert (ran.code, ran.err) == (2, said)
    assert not out.exists()


def test_no_device_is_replaced(run: Any, scripted: Any, tmp_path: pathlib.Path) -> None:
    """Whatever /dev/stdout is a link to; and what stands beside an output may be a pipe as well."""
    words = ("eval", "run", "mcqa", "--config", scripted("x"), "--limit", "1", "-o")
    ran = run(*words, "/dev/stdout")
    said = "gym-trio: /dev/stdout: must be a file, for it is read and appended to; it is a device or a pipe\n"
    assert (ran.code, ran.err) == (2, said)
    os.mkfifo(tmp_path / "r_failures.jsonl")
    ran = run(*words, "r.jsonl")
    said = "r_failures.jsonl: is a device or a pipe, and the run writes a file of that name; choose another --output"
    assert (ran.code, ran.err) == (2, f"gym-trio: {said}\n")


def test_a_file_of_rollouts_is_looked_at_while_it_is_written(run: Any, tmp_path: pathlib.Path) -> None:
    """What is torn is left out and told of; as many rows are kept as are shown; what is not there is named."""
    rollouts = put(tmp_path / "r.jsonl", rollout(0), rollout(1), rollout(2))
    rollouts.write_bytes(rollouts.read_bytes() + b'{"_ng_task_i')
    ran = run("view", rollouts, "--limit", "2")
    assert (ran.code, ran.err) == (0, f"{rollouts}:4: the last line is torn and was left out\n")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["0-0", "1-0", "…"]
    assert "… 1 more (--limit)" in ran.out
    rollouts = put(tmp_path / "r.jsonl", rollout(0))
    for words, said in [
        ([rollouts, "--task", "7"], f"{rollouts}: has no rollout of task 7"),
        ([rollouts, "--task", "7", "--repeat", "1"], f"{rollouts}: has no rollout of task 7 repeat 1"),
        ([rollouts, "--repeat", "1"], f"{rollouts}: has no rollout of repeat 1"),
        ([put(tmp_path / "nothing.jsonl")], f"{tmp_path}/nothing.jsonl: has no rows"),
        ([tmp_path], f"{tmp_path}: cannot be read (Is a directory)"),
        ([rollouts, "--limit", "0"], "--limit: must be a whole number of at least 1, not 0"),
    ]:
        ran = run("view", *words)
        assert (ran.code, ran.err) == (2, f"gym-trio: {said}\n")


@pytest.mark.parametrize("name", ["r_failures.jsonl", "r_aggregate_metrics.json", "r_run.json", "quality_summary.json"])
def test_a_folder_where_a_file_is_to_be_written(run: Any, scripted: Any, tmp_path: pathlib.Path, name: str) -> None:
    """It is named before anything is written or removed."""
    folder = tmp_path / "out" / name
    folder.mkdir(parents=True)
    output = put(tmp_path / "out" / "r.jsonl", rollout(0))
    ran = run("eval", "run", "mcqa", "--config", scripted("x"), "--limit", "1", "-o", output)
    said = f"gym-trio: {folder}: is a folder, and the run writes a file of that name; choose another --output\n"
    assert (ran.code, ran.err) == (2, said)
    assert {path.name for path in output.parent.iterdir()} == {"r.jsonl", name}


def test_the_torn_last_line_of_recorded_rollouts_is_left_out(run: Any, tmp_path: pathlib.Path) -> None:
    """As by the other commands that read what a run has written, or is writing."""
    answers = {"options": [{"A": "1"}, {"B": "2"}], "expected_answer": "A"}
    source = put(tmp_path / "r.jsonl", rollout(0, 0.0, **answers))
    source.write_bytes(source.read_bytes() + b'{"_ng_task_i')
    ran = run("eval", "reverify", source, "-e", "mcqa", "-o", "out/r.jsonl")
    assert ran.code == 0, ran.err
    assert ran.err.splitlines()[0] == f"{source}:2: the last line is torn and was left out"
    assert "scored 1," in ran.out


def test_the_file_of_a_run_is_named_without_an_option(run: Any, tmp_path: pathlib.Path) -> None:
    """As view and aggregate take it, so do profile, compare and health-check, which leaves a folder's other files."""
    for name in ("a", "b"):
        put(tmp_path / f"{name}.jsonl", rollout(0))
        put(tmp_path / f"{name}_materialized_inputs.jsonl", rollout(0))
        assert run("eval", "aggregate", f"{name}.jsonl", "-o", f"{name}.jsonl").code == 0
    for words, said in (
        (["profile", "a.jsonl"], "completed_rollout_rows: 1"),
        (["compare", "a.jsonl", "b.jsonl"], "# b compared with a"),
        (["health-check", "a.jsonl"], "health of 1 rollouts"),
    ):
        ran = run("eval", *words)
        assert (ran.code, said in ran.out) == (0, True), ran.err


def test_health_checks_are_left_out_by_name(run: Any, tmp_path: pathlib.Path) -> None:
    """One by one or with commas; and several files that are taken as one run are told of."""
    put(tmp_path / "a.jsonl", rollout(0))
    put(tmp_path / "b.jsonl", rollout(0))
    words = ("eval", "health-check", tmp_path, "--ignore", "model_call_failed,agent_turn_hollow", "--ignore")
    ran = run(*words, "rollout_duplicate_identity")
    assert ran.code == 0
    assert "(ignored: agent_turn_hollow, model_call_failed, rollout_duplicate_identity)" in ran.out
    assert ran.err == "2 files were taken as one run (a.jsonl, b.jsonl); --rollouts-file NAME checks one of them\n"
    assert run(*words, "task_consistently_unhealthy", "--rollouts-file", "a.jsonl").err == ""


def test_a_failure_class_that_nobody_gives_is_told(run: Any, scripted: Any, tmp_path: pathlib.Path) -> None:
    """A misspelt one would count nothing as zero, and say nothing; one that a failure has is right."""
    command = ("eval", "run", "mcqa", "--config", scripted("x"), "--limit", "1", "-o", "out/r.jsonl")
    ran = run(*command, "++count_failure_classes_as_zero=[judge_faild, agent_run_error]")
    told = "count_failure_classes_as_zero names 'judge_faild', which no failure has; did you mean 'judge_failed'?"
    assert ran.code == 0
    assert ran.err.splitlines()[0] == told
    put(tmp_path / "out" / "r_failures.jsonl", rollout(1, _ng_failure_class="own"))
    words = ("eval", "aggregate", "out/r.jsonl", "--count-failure-classes-as-zero")
    assert run(*words, "own").err == ""
    assert told in run(*words, "judge_faild").err


def test_zeros_that_are_asked_for_later_are_counted(run: Any, tmp_path: pathlib.Path) -> None:
    """A complete run's aggregate is told again only where it counts the same; and it says what it counts."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "agent.yaml").write_text('half: {responses_api_agents: {half: {entrypoint: "agent.py:Half"}}}\n')
    rows = put(tmp_path / "rows.jsonl", {"n": 0}, {"n": 1})
    command = ("eval", "run", "--config", "agent.yaml", "--input", rows, "-o", "out/r.jsonl", "--resume")
    command = (*command, "++max_rollout_attempts=1", "--no-health-check", "--json")
    zeros = "++count_failure_classes_as_zero=[agent_run_error]"

    def told(*words: str) -> tuple[float, Any]:
        (entry,) = orjson.loads(run(*command, *words).out)["metrics"]
        (stored,) = orjson.loads((tmp_path / "out" / "r_aggregate_metrics.json").read_bytes())
        assert stored["key_metrics"] == entry["key_metrics"]
        return entry["key_metrics"]["mean/reward"], stored.get("counted_as_zero")

    counted = {"failure_classes": ["agent_run_error"], "missing": False}
    assert told() == (1.0, None)
    assert told(zeros) == (0.5, counted)
    assert told(zeros) == (0.5, counted)
    assert told() == (1.0, None)
    run("eval", "aggregate", "out/r.jsonl", "-o", "all.jsonl", "--count-failure-classes-as-zero", "agent_run_error")
    compared = run("eval", "compare", "--baseline", "out/r.jsonl", "--candidates", "all.jsonl")
    assert "the runs do not count the same failed or missing rollouts as zero" in compared.out


AGENT = """
import gym_trio


class Half(gym_trio.AgentServer):
    async def run(self, request):
        if request["n"]:
            raise ValueError("boo")
        return {**request, "response": {"output": []}, "reward": 1.0}
"""


def test_a_run_that_ends_early_says_how_to_go_on(run: Any, scripted: Any) -> None:
    """What its dispatch budget left out is counted; the rest is a resume away; of a complete run nothing is left."""
    command = ("eval", "run", "mcqa", "--config", scripted("x"), "--limit", "3", "-o", "out/r.jsonl")
    ran = run(*command, "++dispatch_budget_s=0")
    assert ran.code == 0
    assert "the dispatch budget is used up: 3 rollouts are missing; the same command with --resume goes on\n" in ran.out
    ran = run(*command, "--resume")
    assert "3/3 rollouts" in ran.err
    assert "goes on" not in ran.out
    ran = run(*command, "--resume")
    assert (ran.code, ran.err) == (0, "out/r.jsonl: nothing is left to run\n")


def test_a_resumed_reverification_tells_of_all_of_it(run: Any, tmp_path: pathlib.Path) -> None:
    """Not of what was verified since it was resumed."""
    answers = {"options": [{"A": "1"}, {"B": "2"}], "expected_answer": "A"}
    source = put(tmp_path / "r.jsonl", rollout(0, 1.0, **answers), rollout(1, 0.0, **answers))
    words = ("eval", "reverify", "--rollouts", source, "-e", "mcqa", "-o", "out/r.jsonl")
    assert "rewards: 1 as before, 1 changed" in run(*words).out
    ran = run(*words, "--resume", "--json")
    rewards = orjson.loads(ran.out)["rewards"]
    assert (rewards["same"], rewards["changed"], len(rewards["changes"])) == (1, 1, 1)


def test_a_fleet_that_is_not_there_moves_nothing(run: Any, endpoint: Any, tmp_path: pathlib.Path) -> None:
    """It is asked before an earlier run's files are touched, and the line says where it was looked for."""
    output = put(tmp_path / "r.jsonl", rollout(0))
    words = ("eval", "run", "mcqa", "--no-serve", "-o", output)
    ran = run(*words, "++head_server={host: 127.0.0.1, port: 1}")
    assert ran.code == 2
    assert "no head server answers at http://127.0.0.1:1 (" in ran.err
    assert "gym-trio env start" in ran.err
    refusing = endpoint(lambda _: b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    host, _, port = refusing.removeprefix("http://").rstrip("/").partition(":")
    ran = run(*words, f"++head_server={{host: {host}, port: {port.partition('/')[0]}}}")
    assert ran.code == 2
    assert "wants another token than GYM_TRIO_HEAD_TOKEN has" in ran.err
    assert ran.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


def test_what_weakens_the_metrics_is_told(run: Any, tmp_path: pathlib.Path) -> None:
    """A warning of the aggregate is a line on standard error, and stands in the JSON; a clean run has none."""
    rows = [{**rollout(task), "_ng_rollout_index": r} for task, r in ((0, 0), (0, 1), (1, 0))]
    ran = run("eval", "aggregate", put(tmp_path / "r.jsonl", *rows))
    assert "warning: agent: pass@2 leaves out 1 of 2 tasks, which have fewer repeats" in ran.err
    assert "warning: agent: 1 of 2 repeats lack tasks" in ran.err
    assert run("eval", "aggregate", put(tmp_path / "r.jsonl", *rows[:2])).err == ""


def test_a_line_that_is_there_twice_is_told_of_once(run: Any, tmp_path: pathlib.Path) -> None:
    """By each command, with its file and its number, and nothing else is said of it."""
    answers = {"options": [{"A": "1"}, {"B": "2"}], "expected_answer": "A"}
    source = put(
        tmp_path / "r.jsonl", rollout(0, 0.0, **answers), rollout(1, 0.0, **answers), rollout(0, 0.0, **answers)
    )
    put(tmp_path / "r_materialized_inputs.jsonl", rollout(0), rollout(1))
    told = f"{source}: line 3 repeats line 1 (task 0, repeat 0); counted once"
    for words in (
        ("aggregate", source),
        ("profile", "--rollouts", source),
        ("compare", "--baseline", source, "--candidates", source),
        ("reverify", "--rollouts", source, "-e", "mcqa", "-o", "out/r.jsonl"),
    ):
        ran = run("eval", *words)
        assert ran.code == 0, ran.err
        assert [line for line in ran.err.splitlines() if "rollouts," not in line] == [told]
