"""OpenEnv servers that gym_trio starts itself: ready before the first rollout, gone after the last."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import socket
from typing import Any

import pytest
import trio

import gym_trio
from gym_trio.environments import openenv
from gym_trio.environments.openenv import OpenEnv
from gym_trio.errors import MissingExtraError, ServerStartError

HERE = str(pathlib.Path(__file__).parent)
ROW = {"responses_create_params": {"input": [{"role": "system", "content": "play"}]}}


def pid_in(result: dict[str, Any]) -> int:
    """The process of the environment, which its first observation names."""
    found = re.search(r"pid (\d+)", result["responses_create_params"]["input"][-1]["content"])
    assert found is not None
    return int(found[1])


def lives(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}").exists()


async def test_an_app_is_served_and_gone_with_the_gym(python_of_openenv: str, scripted: Any) -> None:
    """Its server is a process of its own, owned by the process of the environment that started it."""
    config = scripted(["hm", "right"], app="games:word_app", python=python_of_openenv, cwd=HERE)
    rows = list(OpenEnv.rows({"size": 4, "resets": [{}, {"answer": "left"}]}))
    async with gym_trio.open_gym(config, "processes") as gym, gym.run_examples(rows) as rollouts:
        results = [outcome.unwrap()[1] async for outcome in rollouts]
        (pid,) = {pid_in(one) for one in results}
        assert lives(pid)
    assert sorted((one["seed"], one["reward"]) for one in results) == [(1, 1.0), (2, 0.0), (3, 1.0), (4, 0.0)]
    assert not lives(pid)
    assert gym.supervisor is not None
    assert gym.supervisor.report is not None
    assert all((one.returncode, one.escalated) == (0, False) for one in gym.supervisor.report.exits)


async def until_nobody_listens(port: int) -> None:
    # A process that ends loses its connections a moment before its port.
    with trio.fail_after(60):
        while True:
            try:
                await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
            except OSError:
                return
            await trio.sleep(0.01)


async def test_a_server_that_dies_in_an_episode(python_of_openenv: str, scripted: Any) -> None:
    """What was under way has lost its peer, what comes later finds nobody; neither is a reward, and nothing is left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [python_of_openenv, "-m", "uvicorn", "games:word_app", "--port", str(port), "--log-level", "warning"]
    config = scripted(["hm", "die"], command=command, base_url=f"http://127.0.0.1:{port}", cwd=HERE)
    async with gym_trio.open_gym(config) as gym:
        failures = []
        for _ in range(2):
            async with gym.run_examples([ROW]) as rollouts:
                outcome = await rollouts.receive()
            assert isinstance(outcome, gym_trio.Failed)
            failures.append((outcome.failure.kind, outcome.failure.stage, outcome.failure.terminal))
            await until_nobody_listens(port)
    assert failures == [("transport_peer_drop", "agent", False), ("transport_unreachable", "seed", False)]


@pytest.mark.parametrize("python", [True, False])
async def test_an_app_that_does_not_come_up(python_of_openenv: str, scripted: Any, python: bool) -> None:
    """The start fails at once, with the last lines of its process, or by the name of what is no program."""
    block = {"app": "no_such_module:app", "python": python_of_openenv if python else "/no/such/python", "cwd": HERE}
    with trio.fail_after(50), pytest.raises(ServerStartError, match="no_such_module" if python else "/no/such/python"):
        async with gym_trio.open_gym(scripted(["right"], **block)):
            pass


async def test_a_port_that_is_taken_is_named(scripted: Any) -> None:
    """A command's port is looked at before the command is started."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServerStartError, match=r"base_url.*in use"):
            async with gym_trio.open_gym(scripted(["right"], command=["true"], base_url=url)):
                pass


async def test_without_the_package_an_app_is_refused_before_anything_starts(
    scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what to install, or which key names a Python that has it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"python.*pip install 'gym_trio\[openenv\]'"):
        OpenEnv(name="game", config={"app": "games:app"})
    with pytest.raises(MissingExtraError):
        async with gym_trio.open_gym(scripted(["right"], app="games:app")):
            pass
    assert OpenEnv(name="game", config={"base_url": "http://127.0.0.1:9"}).description == openenv.OpenEnv.description
