"""A configuration's servers as managed processes: same results, named failures, nothing left."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import sys
from typing import Any

import pytest
import trio

import gym_trio
from gym_trio.environments.example_single_tool_call import SingleToolCall
from gym_trio.gym import ProcessOptions

ECHO = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def do_POST(self):
        length = int(self.headers["content-length"]); self.rfile.read(length)
        body = b'{"reward": 0.5, "by": "echo"}'
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


BROKEN = """
import gym_trio

class Broken(gym_trio.ResourcesServer):
    def lifespan(self):
        raise RuntimeError("no luck today")
"""


def exists(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}").exists()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def rewards(gym: gym_trio.Gym, rows: Any) -> list[float]:
    async with gym.run_examples(rows, max_concurrent=8) as rollouts:
        return [outcome.unwrap()[1]["reward"] async for outcome in rollouts]


async def test_processes_give_the_same_rewards_and_stop_in_order(scripted: Any, calling: Any, saying: Any) -> None:
    """Three processes play the rollouts; each exits 0 after one SIGINT and is reaped."""
    lines: list[str] = []
    config = scripted("example_single_tool_call", [[calling("get_weather", city="Rome")], [saying("cold")]])
    async with gym_trio.open_gym(config, "processes", processes=ProcessOptions(output=lines.append)) as gym:
        assert await rewards(gym, list(SingleToolCall.rows({}))[:6] * 3) == [1.0] * 18
    assert gym.supervisor is not None
    report = gym.supervisor.report
    assert report is not None
    assert {one.name: (one.returncode, one.escalated) for one in report.exits} == {
        "example_single_tool_call": (0, False),
        "my_agent": (0, False),
        "policy_model": (0, False),
    }
    for one in report.exits:
        assert not exists(one.pid)
    assert any(line.startswith("(my_agent) ") for line in lines)


async def test_a_server_that_cannot_start_names_its_last_lines(scripted: Any, saying: Any, tmp_path: Any) -> None:
    """The first server that fails stops the rest, and the error has its own words."""
    (tmp_path / "broken.py").write_text(BROKEN)
    config = scripted("mcqa", [[saying("x")]])
    config["mcqa"] = {"resources_servers": {"mine": {"entrypoint": f"{tmp_path}/broken.py:Broken", "domain": "other"}}}
    with pytest.raises(gym_trio.ServerStartError, match="no luck today") as caught:
        async with gym_trio.open_gym(config, "processes", processes=ProcessOptions(output=lambda line: None)):
            raise AssertionError("the gym opened")
    assert caught.value.server == "mcqa"


async def test_what_gym_trio_raised_at_startup_is_told_without_a_traceback(
    tmp_path: pathlib.Path, scripted: Any, saying: Any
) -> None:
    """A server whose own child does not come up says so in a line."""
    (tmp_path / "broken.py").write_text(BROKEN.replace("RuntimeError", "gym_trio.ConfigError"))
    config = scripted("mcqa", [[saying("x")]])
    config["mcqa"] = {"resources_servers": {"mine": {"entrypoint": f"{tmp_path}/broken.py:Broken", "domain": "other"}}}
    lines: list[str] = []
    with pytest.raises(gym_trio.ServerStartError, match="no luck today"):
        async with gym_trio.open_gym(config, "processes", processes=ProcessOptions(output=lines.append)):
            raise AssertionError("the gym opened")
    assert not any("Traceback" in line for line in lines)


async def test_a_port_in_use_names_port_key_and_holder(scripted: Any, saying: Any) -> None:
    """Before anything starts, the error says which port, which key, and who holds it."""
    config = scripted("mcqa", [[saying("x")]])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config["mcqa"]["resources_servers"]["mcqa"]["port"] = port
        with pytest.raises(gym_trio.ServerStartError) as caught:
            async with gym_trio.open_gym(config, "processes"):
                raise AssertionError("the gym opened")
    assert str(port) in str(caught.value)
    assert "mcqa.resources_servers.mcqa.port" in str(caught.value)
    assert str(os.getpid()) in str(caught.value)


async def test_a_command_block_runs_any_program(tmp_path: pathlib.Path) -> None:
    """A server of other make, ready by its URL, takes rollouts and is stopped with the rest."""
    port = free_port()
    (tmp_path / "echo.py").write_text(ECHO)
    config = {
        "echo": {
            "responses_api_agents": {
                "echo": {"command": [sys.executable, str(tmp_path / "echo.py"), str(port)], "port": port}
            }
        }
    }
    async with gym_trio.open_gym(config, "processes") as gym:
        assert await rewards(gym, [{"i": i} for i in range(5)]) == [0.5] * 5
        assert gym.supervisor is not None
        pid = gym.supervisor.processes["echo"].pid
    assert not exists(pid)


async def test_workers_share_one_port(scripted: Any, saying: Any) -> None:
    """num_workers processes of a stateless server listen together; a server with sessions refuses."""
    config = scripted("mcqa", [[saying("x")]])
    config["policy_model"] = {
        "responses_api_models": {
            "openai_model": {
                "openai_base_url": "http://127.0.0.1:9",
                "openai_api_key": "",
                "openai_model": "m",
                "num_workers": 2,
            }
        }
    }
    async with gym_trio.open_gym(config, "processes", processes=ProcessOptions(output=lambda line: None)) as gym:
        assert gym.supervisor is not None
        names = sorted(gym.supervisor.processes)
        assert names == ["mcqa", "my_agent", "policy_model/1", "policy_model/2"]
        assert (await gym.client.get("policy_model", "/health")).status == 200
    config["my_agent"]["responses_api_agents"]["simple_agent"]["num_workers"] = 2
    with pytest.raises(gym_trio.ConfigError, match="num_workers"):
        async with gym_trio.open_gym(config, "processes"):
            raise AssertionError("the gym opened")


@pytest.mark.parametrize("on_exit", ["report", "raise"])
async def test_a_server_that_dies_fails_its_rollouts_or_ends_the_gym(scripted: Any, saying: Any, on_exit: Any) -> None:
    """Killed with rollouts in flight: they become transport failures, or the block ends with `ServerDied`."""
    config = scripted("mcqa", [[saying("x")]])
    config["policy_model"]["responses_api_models"]["scripted_model"]["delay_seconds"] = 600
    row = {"responses_create_params": {"input": "?"}}

    async def scene() -> gym_trio.Failed | gym_trio.Completed | gym_trio.Drained:
        options = ProcessOptions(on_exit=on_exit, output=lambda line: None)
        async with gym_trio.open_gym(config, "processes", processes=options) as gym:
            assert gym.supervisor is not None
            agent = gym.supervisor.processes["my_agent"].pid
            async with gym.run_examples([row]) as rollouts, trio.open_nursery() as nursery:
                nursery.start_soon(kill_when_busy, gym, agent)
                outcome = await rollouts.receive()
                if on_exit == "raise":  # the rollout may fail before the process is known to have ended
                    await trio.sleep(60)
                return outcome

    if on_exit == "report":
        outcome = await scene()
        assert isinstance(outcome, gym_trio.Failed)
        assert outcome.failure.kind == "transport_peer_drop"
    else:
        with pytest.raises(gym_trio.ServerDied) as caught:
            await scene()
        assert caught.value.server == "my_agent"


async def kill_when_busy(gym: gym_trio.Gym, pid: int) -> None:
    with trio.fail_after(30):
        while True:
            if (await gym.client.get("my_agent", "/status")).json()["running_rollouts"]:
                break
    os.kill(pid, signal.SIGKILL)
