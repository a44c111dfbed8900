"""Fleets and runs as real processes: started, looked at, interrupted and stopped, with nothing left."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

BOUND_SECONDS = 50.0
MARK = "GYM_TRIO_TEST_MARK"


class Machine:
    """A folder, an environment with a mark, and the processes that carry it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.mark = f"{folder}-{time.monotonic_ns()}"
        self.env = {
            "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            MARK: self.mark,
        }
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["gym-trio", *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["gym-trio", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
        )

    def alive(self) -> list[str]:
        """The commands of all processes that carry the mark."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found

    def wait_until(self, said: str, file: Any) -> str:
        text = ""
        for line in file:
            text += line
            if said in line:
                return text
        raise AssertionError(f"ended without saying {said!r}: {text}")


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for process in made.running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=BOUND_SECONDS)
    deadline = time.monotonic() + BOUND_SECONDS
    while (left := made.alive()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_model(folder: pathlib.Path, *, delay_seconds: float = 0, **more: Any) -> str:
    reply = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "\\boxed{B}"}]}
    settings = {"replies": [[reply]], "delay_seconds": delay_seconds}
    content = {"policy_model": {"responses_api_models": {"scripted_model": settings}}, **more}
    (folder / "model.yaml").write_text(json.dumps(content))
    return "model.yaml"


def get(url: str, token: str | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=BOUND_SECONDS) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_fleet_starts_answers_serves_a_run_and_stops(machine: Machine) -> None:
    """start, status, a run over the head server, stop from another terminal: nothing is left."""
    port = free_port()
    write_model(machine.folder, policy_api_key="sk-verysecret123456")
    fleet = machine.start(
        *("env", "start", "mcqa", "--config", "model.yaml", "--name", "trial", "--head-token", "sesame"),
        *("--logs", "logs", f"++head_server.port={port}"),
    )
    machine.wait_until("all servers are ready", fleet.stderr)
    head = f"http://127.0.0.1:{port}"
    assert get(f"{head}/readyz") == (200, {"status": "ok"})
    assert get(f"{head}/server_instances")[0] == 401
    status, instances = get(f"{head}/server_instances", "sesame")
    assert status == 200
    assert {one["name"]: one["state"] for one in instances} == dict.fromkeys(
        ("mcqa", "mcqa_agent", "policy_model"), "ready"
    )
    status, text = get(f"{head}/global_config_dict_yaml", "sesame")
    assert "mcqa_agent_environment" in text
    assert "verysecret" not in text

    [described] = json.loads(machine.run("env", "status", "--json").stdout)
    assert described["name"] == "trial"
    assert {one["name"]: one["health"] for one in described["servers"]}["mcqa"] == "ok"
    assert "trial" in machine.run("env", "status").stdout
    again = machine.run(
        "env", "start", "mcqa", "--config", "model.yaml", "--name", "trial", f"++head_server.port={free_port()}"
    )
    assert again.returncode == 2
    assert "running already" in again.stderr

    machine.env["GYM_TRIO_HEAD_TOKEN"] = "sesame"
    ran = machine.run("eval", "run", "mcqa", "--no-serve", f"++head_server.port={port}", "-o", "r.jsonl")
    assert ran.returncode == 0, ran.stderr
    assert "expected 20, scored 20" in ran.stdout

    stopped = machine.run("env", "stop", "trial")
    assert stopped.returncode == 0, stopped.stderr
    assert all(name in stopped.stdout for name in ("trial", "mcqa", "mcqa_agent", "policy_model"))
    out, _ = fleet.communicate(timeout=BOUND_SECONDS)
    assert fleet.returncode == 143
    assert re.search(r"mcqa_agent\W+\d+\W+0\W+no", out)
    assert (machine.folder / "logs" / "mcqa.log").stat().st_size > 0
    assert json.loads(machine.run("env", "status", "--json").stdout) == []
    assert machine.run("env", "stop").returncode == 2


def test_a_killed_fleet_is_told_of_until_it_is_stopped_or_started_again(machine: Machine) -> None:
    """By its name, by its folder and among all; nothing of it is left, so there is nothing to stop."""
    model = write_model(machine.folder)
    words = ("env", "start", "mcqa", "--config", model, "--name", "trial", f"++head_server.port={free_port()}")
    for end in ("stop", "start"):
        fleet = machine.start(*words)
        machine.wait_until("all servers are ready", fleet.stderr)
        os.kill(fleet.pid, signal.SIGKILL)
        fleet.communicate(timeout=BOUND_SECONDS)  # its end: no server holds the pipes any more
        said = f"trial (pid {fleet.pid}, {machine.folder}): ended without being stopped"
        assert said in machine.run("env", "status").stdout
        assert said in machine.run("env", "status", "trial").stdout
        [described] = json.loads(machine.run("env", "status", str(machine.folder), "--json").stdout)
        assert (described["running"], described["servers"], described["pid"]) == (False, [], fleet.pid)
        nameless = machine.run("env", "stop")
        assert (nameless.returncode, "ended without being stopped: trial" in nameless.stderr) == (2, True)
        if end == "stop":
            stopped = machine.run("env", "stop", "trial")
            assert (stopped.returncode, "nothing to stop: trial" in stopped.stdout) == (0, True)
            assert json.loads(machine.run("env", "status", "--json").stdout) == []
    again = machine.start(*words)
    machine.wait_until("all servers are ready", again.stderr)
    [described] = json.loads(machine.run("env", "status", "--json").stdout)
    assert (described["running"], described["pid"]) == (True, again.pid)
    assert machine.run("env", "stop").returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("serve", ["memory", "processes"])
def test_an_interrupted_run_drains_and_a_resumed_one_completes(
    machine: Machine, serve: str, number: signal.Signals, code: int
) -> None:
    """What had finished is written, the report is printed, servers are gone; resume does the rest, each once."""
    write_model(machine.folder, delay_seconds=0.15)
    words = ("eval", "run", "mcqa", "--config", "model.yaml", "-o", "r.jsonl", "--num-repeats", "3")
    process = machine.start(*words, "--serve", serve, "--concurrency", "2", "--drain-grace-seconds", "20")
    output = machine.folder / "r.jsonl"
    deadline = time.monotonic() + BOUND_SECONDS
    while not (output.exists() and output.read_bytes().count(b"\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == code, err
    assert "coverage: expected 60, scored " in out
    done = output.read_bytes().count(b"\n")
    assert f"scored {done}," in out
    assert 3 <= done < 60
    assert machine.alive() == []
    resumed = machine.run(*words, "--concurrency", "32", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    keys = sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows)
    assert keys == [(task, repeat) for task in range(20) for repeat in range(3)]


def test_an_interrupt_during_the_start_leaves_nothing(machine: Machine) -> None:
    """Ctrl-C before the servers are ready: exit code 130, and no process is left."""
    write_model(machine.folder)
    (machine.folder / "slow.py").write_text("import time\ntime.sleep(3600)\n")
    port = free_port()
    config = {
        "slow": {
            "responses_api_models": {
                "slow": {"command": f"{sys.executable} slow.py", "port": port, "cwd": str(machine.folder)}
            }
        }
    }
    (machine.folder / "slow.yaml").write_text(json.dumps(config))
    process = machine.start(
        *(
            "env",
            "start",
            "mcqa",
            "--config",
            "model.yaml",
            "--config",
            "slow.yaml",
            f"++head_server.port={free_port()}",
        )
    )
    deadline = time.monotonic() + BOUND_SECONDS
    while not any("slow.py" in command for command in machine.alive()) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 130, err
    assert machine.alive() == []


def test_a_short_grace_is_a_warning_that_names_both_keys(machine: Machine) -> None:
    """A grace shorter than the session drain that it must contain is said before the servers start."""
    write_model(machine.folder, server_shutdown_timeout_seconds=5)
    process = machine.start("env", "start", "mcqa", "--config", "model.yaml", f"++head_server.port={free_port()}")
    text = machine.wait_until("warning", process.stderr)
    assert "server_shutdown_timeout_seconds" in text
    assert "session_close_timeout_seconds" in text
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=BOUND_SECONDS)


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for the signal."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.M)[1], 16)  # type: ignore[index]  # every status has it
    return bool(caught >> (number - 1) & 1)


SLOW = """
import gym_trio, trio

class Slow(gym_trio.AgentServer):
    async def run(self, request):
        return {"reward": 1.0}

    async def open_session(self, seed):
        return seed["agent_session_id"]

    async def close_session(self, state):
        await trio.sleep_forever()
"""


@pytest.mark.parametrize(("grace_seconds", "said"), [(1, "closing 1 sessions: as-7"), (20, "as-7 is not confirmed")])
def test_sessions_that_were_not_confirmed_are_named(machine: Machine, grace_seconds: int, said: str) -> None:
    """Cut by its deadline, or killed in its drain for a grace that was too short: the session's id is shown."""
    (machine.folder / "slow.py").write_text(SLOW)
    port = free_port()
    block = {"entrypoint": "slow.py:Slow", "session_close_timeout_seconds": 2, "port": port}
    config = {"slow": {"responses_api_agents": {"slow": block}}, "server_shutdown_timeout_seconds": grace_seconds}
    (machine.folder / "slow.yaml").write_text(json.dumps(config))
    process = machine.start("env", "start", "--config", "slow.yaml", f"++head_server.port={free_port()}")
    machine.wait_until("all servers are ready", process.stderr)
    seed = {
        "agent_session_id": "as-7",
        "episode_id": {"rollout_id": "3-1", "attempt": 0},
        "task_id": {"taskset": "t", "task_id": "1"},
    }
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/agent_sessions", json.dumps(seed).encode())
    with urllib.request.urlopen(request, timeout=BOUND_SECONDS) as response:
        assert response.status == 200
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 130
    assert said in err
    assert re.search(r"slow\W+\d+\W+" + ("-9" if grace_seconds == 1 else "0"), out)


@pytest.mark.parametrize("serve", ["memory", "processes"])
def test_stuck_rollouts_are_named_with_stage_and_age(machine: Machine, serve: str) -> None:
    """SIGUSR1 during a run: each rollout in flight with its agent, its stage and its age; the run goes on."""
    write_model(machine.folder, delay_seconds=3600)
    process = machine.start(
        *("eval", "run", "mcqa", "--config", "model.yaml", "--limit", "2", "--serve", serve, "-o", "r.jsonl"),
        *("--drain-grace-seconds", "0"),
    )
    deadline = time.monotonic() + BOUND_SECONDS
    while not handles(process.pid, signal.SIGUSR1) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.stderr is not None
    told = ""
    while "model," not in told and time.monotonic() < deadline:
        time.sleep(0.5)  # the servers start, and a signal that comes before only says that nothing is in flight
        os.kill(process.pid, signal.SIGUSR1)
        told = process.stderr.readline()
    assert re.search(r"task \d repeat 0 at mcqa_agent: model, \d+\.\d s", told)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 130
