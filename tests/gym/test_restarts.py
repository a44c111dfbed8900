"""Servers that die in the middle of a run: their rollouts fail, and the run goes on with the server started again."""

from __future__ import annotations

import logging
import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

import gym_trio
from gym_trio.gym import ProcessOptions, _restarts
from gym_trio.processes import ManagedProcess, ServerState

ENVIRONMENT = """
import os, gym_trio

class Mortal(gym_trio.ResourcesServer):
    @gym_trio.tool
    async def act(self, session, what: str) -> str:
        '''Act, here in the server.'''
        if what == "die":
            os._exit(3)
        return what

    async def verify(self, session, request):
        return 1.0
"""

RESTART = ProcessOptions(output=lambda line: None, on_exit="restart")


def config_of(tmp_path: pathlib.Path, calling: Any, saying: Any) -> dict[str, Any]:
    (tmp_path / "mortal.py").write_text(ENVIRONMENT)
    config: dict[str, Any] = {
        "env": {"resources_servers": {"env": {"entrypoint": f"{tmp_path}/mortal.py:Mortal", "domain": "other"}}}
    }
    for what in ("live", "die"):
        replies = [[calling("act", what=what)], [saying("done")]]
        config[f"{what}_model"] = {"responses_api_models": {"scripted_model": {"replies": replies}}}
        config[what] = {
            "responses_api_agents": {
                "simple_agent": {
                    "resources_server": {"type": "resources_servers", "name": "env"},
                    "model_server": {"type": "responses_api_models", "name": f"{what}_model"},
                }
            }
        }
    return config


async def outcomes_of(gym: gym_trio.Gym, order: list[str]) -> list[Any]:
    rows = [{"responses_create_params": {"input": "go"}, "agent_ref": {"name": name}} for name in order]
    async with gym.run_examples(rows, max_concurrent=1) as rollouts:
        return [outcome async for outcome in rollouts]


async def test_a_tool_that_ends_its_server_costs_the_rollouts_under_way(
    tmp_path: pathlib.Path, calling: Any, saying: Any
) -> None:
    """The rollout that killed it is a failure and no zero; the next ones wait for the new server and are completed."""
    async with gym_trio.open_gym(config_of(tmp_path, calling, saying), "processes", processes=RESTART) as gym:
        outcomes = await outcomes_of(gym, ["live", "die", "live", "live"])
        assert gym.supervisor is not None
        again = gym.supervisor.processes["env"].pid
    assert [type(one).__name__ for one in outcomes] == ["Completed", "Failed", "Completed", "Completed"]
    failure = outcomes[1].failure
    assert (failure.kind, failure.stage) == ("transport_peer_drop", "agent")
    assert gym.supervisor.report is not None
    [end] = [one for one in gym.supervisor.report.exits if one.name == "env"]
    assert (end.pid, end.returncode) == (again, 0)


async def test_one_that_dies_again_and_again_is_given_up(
    tmp_path: pathlib.Path, calling: Any, saying: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, and later rollouts fail at once as unreachable."""
    monkeypatch.setattr(_restarts, "MOST_RESTARTS", 1)
    with caplog.at_level(logging.WARNING):
        async with gym_trio.open_gym(config_of(tmp_path, calling, saying), "processes", processes=RESTART) as gym:
            outcomes = await outcomes_of(gym, ["die", "die", "live"])
    assert [(one.failure.kind, one.failure.stage) for one in outcomes] == [
        ("transport_peer_drop", "agent"),
        ("transport_peer_drop", "agent"),
        ("transport_unreachable", "seed"),
    ]
    assert any("env has ended for the last time" in record.message for record in caplog.records)


async def test_a_worker_that_is_given_up_leaves_the_others_their_address(
    tmp_path: pathlib.Path, calling: Any, saying: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers of one server are started again each for itself; when the last is given up its rollouts fail at once."""
    monkeypatch.setattr(_restarts, "MOST_RESTARTS", 1)
    config = config_of(tmp_path, calling, saying)
    model = {"openai_base_url": "http://127.0.0.1:9", "openai_api_key": "", "openai_model": "m", "num_workers": 2}
    config["pair"] = {"responses_api_models": {"openai_model": model}}

    def ready_workers(gym: gym_trio.Gym) -> list[ManagedProcess]:
        assert gym.supervisor is not None
        workers = [one for name, one in gym.supervisor.processes.items() if name.startswith("pair/")]
        return [one for one in workers if one.state is ServerState.READY]

    async def until(true: Callable[[], bool]) -> None:
        with trio.fail_after(30):
            while not true():  # noqa: ASYNC110  nothing else tells of a restart
                await trio.sleep(0.01)

    def given_up() -> int:
        return sum("has ended for the last time" in record.message for record in caplog.records)

    async with gym_trio.open_gym(config, "processes", processes=RESTART) as gym:
        for left in (2, 1, 1, 0):  # one is started again and then given up, and then the other
            dying = ready_workers(gym)[-1]
            assert dying.pid is not None
            os.kill(dying.pid, signal.SIGKILL)
            await dying.wait()
            await until(lambda left=left: len(ready_workers(gym)) == left)
            if left:
                assert (await gym.client.get("pair", "/health")).status == 200
        await until(lambda: given_up() == 2)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(gym_trio.errors.ConnectFailed):
            await gym.client.get("pair", "/health")


async def test_what_the_body_raises_is_raised_as_it_is(tmp_path: pathlib.Path, calling: Any, saying: Any) -> None:
    """In no group, and the servers are stopped."""
    with pytest.raises(ZeroDivisionError):
        async with gym_trio.open_gym(config_of(tmp_path, calling, saying), "processes", processes=RESTART):
            raise ZeroDivisionError
