"""The table of commands."""

from __future__ import annotations

import os
import pathlib
import socket
import sys
from typing import Any

import orjson
import pytest

import gym_trio
from gym_trio.cli._app import COMMANDS
from gym_trio.cli._serve import load_target
from gym_trio.config import load_config
from gym_trio.http import ServerClient

HOLDER = pathlib.Path("/proc/self/comm")


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(run: Any, command: str) -> None:
    """--help of each command shows its options and ends with 0."""
    ran = run(*command.split(), "--help")
    assert ran.code == 0
    assert command.split()[-1] in ran.out


def test_the_overview_names_all_commands(run: Any) -> None:
    """The groups' helps list each command."""
    texts = {"": run("--help").out, "eval": run("eval", "--help").out, "env": run("env", "--help").out}
    for command in COMMANDS:
        group, _, leaf = command.rpartition(" ")
        assert leaf in texts[group]


def test_the_version(run: Any) -> None:
    """--version is the package's."""
    assert run("--version").out.strip() == gym_trio.__version__


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evil",), "eval"),
        (("eval", "rum"), "run"),
        (("eval", "run", "--limmit", "3"), "--limit"),
        (("serve",), "target"),
    ],
)
def test_a_wrong_word_is_named_with_the_nearest_right_one(run: Any, words: tuple[str, ...], said: str) -> None:
    """Exit code 2 and one line."""
    ran = run(*words)
    assert ran.code == 2
    assert said in ran.err


def test_list_and_describe(run: Any) -> None:
    """Environments, agents and models, as lines and as JSON; one of them with settings and tools."""
    assert "mcqa" in run("list").out
    names = {entry["name"] for entry in orjson.loads(run("list", "--json").out)}
    assert {"mcqa", "reasoning_gym", "example_single_tool_call", "example_session_state_mgmt"} <= names
    assert "simple_agent" in run("list", "agents").out
    assert "scripted_model" in run("list", "models").out
    described = orjson.loads(run("list", "environments", "example_single_tool_call", "--json").out)
    assert [tool["name"] for tool in described["tools"]] == ["get_weather"]
    described = orjson.loads(run("list", "reasoning_gym", "--json").out)
    assert described["settings"]["size"] == described["rows"] == 100
    shown = run("list", "wordle").out
    assert "49 rows, played by gymnasium_agent" in shown
    assert "gym-trio eval run wordle" in shown
    assert "did you mean 'mcqa'?" in run("list", "mcqb").err


def test_list_describes_what_is_the_users_own(run: Any, tmp_path: pathlib.Path) -> None:
    """A folder as env init writes it, with its own rows and agent; a class in a file; each also after its kind."""
    run("env", "init", "my_env", "--description", "Skies")
    for words in (["./my_env"], ["environments", "my_env"]):
        described = orjson.loads(run("list", *words, "--json").out)
        assert (described["rows"], described["agent"], described["description"]) == (3, "simple_agent", "Skies")
        assert [tool["name"] for tool in described["tools"]] == ["get_weather"]
    assert "gym-trio eval run ./my_env" in run("list", "./my_env").out
    assert "tool get_weather" in run("list", "my_env/environment.py:MyEnv").out
    (tmp_path / "agent.py").write_text(
        'import gym_trio\n\n\nclass Mine(gym_trio.AgentServer):\n    """One of mine."""\n'
    )
    for words in (["agent.py:Mine"], ["agents", "agent.py:Mine"]):
        assert "One of mine." in run("list", *words).out
    for words, said in (
        (["models", "agent.py:Mine"], "there is no model 'agent.py:Mine'"),
        (["agents", "my_env"], "there is no agent 'my_env'"),
        (["agent.py:Min"], "did you mean 'Mine'?"),
        (["."], ".: the folder has no config.yaml"),
        (["nothing"], "there is nothing called 'nothing'"),
    ):
        ran = run("list", *words)
        assert (ran.code, said in ran.err) == (2, True), ran.err


def test_a_folder_without_a_model_can_be_served(
    run: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment needs none, whatever the agent beside it refers to."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    # What stands there now, also where nothing does, stands there again afterwards.
    monkeypatch.setitem(sys.modules, "environment", sys)
    del sys.modules["environment"]
    run("env", "init", "sky")
    loaded = load_config(tmp_path / "sky/config.yaml", env_yaml=False, whole=False)
    for name in (None, "sky"):
        _app, shown = load_target("sky/environment.py:Sky", loaded, name, ServerClient())
        assert shown == "sky"


def test_the_key_of_a_model_is_asked_for_where_the_model_is_served(run: Any, tmp_path: pathlib.Path) -> None:
    """One configuration for all: the agent that asks the model needs its address alone."""
    (tmp_path / "all.yaml").write_text(
        "policy:\n  responses_api_models:\n    openai_model:\n      port: 8001\n"
        "      openai_base_url: http://h/v1\n      openai_api_key: ${oc.env:NO_SUCH_KEY}\n      openai_model: m\n"
        "sky:\n  responses_api_agents:\n    simple_agent:\n"
        "      model_server: {type: responses_api_models, name: policy}\n"
        "      resources_server: {type: resources_servers, name: env}\n"
        "env:\n  resources_servers:\n    mcqa:\n      port: 8002\n"
    )
    loaded = load_config(tmp_path / "all.yaml", env_yaml=False, whole=False)
    assert load_target("simple_agent", loaded, None, ServerClient())[1] == "sky"
    ran = run("serve", "openai_model", "--config", "all.yaml", "--port", 0)
    key = "policy.responses_api_models.openai_model.openai_api_key"
    assert (ran.code, ran.err) == (
        2,
        f"gym-trio: {tmp_path}/all.yaml: {key}: the environment variable 'NO_SUCH_KEY' is not set\n",
    )


def test_what_cannot_be_served_is_one_line(run: Any, tmp_path: pathlib.Path) -> None:
    """A port in use with its holder, and a file that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("serve", "mcqa", "--port", port)
    assert ran.code == 1
    assert (
        ran.err
        == f"gym-trio: mcqa: port {port} on 127.0.0.1 is in use by {HOLDER.read_text().strip()} (pid {os.getpid()})\n"
    )
    run("env", "init", "sky")
    ran = run("serve", "simple_agent", "--config", "sky/config.yaml", "--port", 0)
    key = "sky_agent.responses_api_agents.simple_agent.model_server.name"
    said = f"sky/config.yaml: {key}: there is no server 'policy_model' of type 'responses_api_models'"
    assert (ran.code, said in ran.err) == (2, True), ran.err
    ran = run("serve", "nope.py:Sky")
    assert (ran.code, ran.err) == (2, f"gym-trio: nope.py:Sky: there is no file {tmp_path}/nope.py\n")
