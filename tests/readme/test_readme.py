"""What the README shows is what runs: its blocks are taken from the file and carried out."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import trio

import gym_trio
from gym_trio.http import open_server

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.S | re.M)


def say(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "call_id": "c1", "arguments": arguments}


@pytest.fixture
def sky_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "sky.py").write_text(blocks("python")[1])
    (tmp_path / "sky.yaml").write_text(blocks("yaml")[0])
    return tmp_path


async def test_the_trainers_lines_give_a_batch_and_what_is_unfinished() -> None:
    """`collect_batch` returns every outcome within its budget and names the rest."""
    space: dict[str, Any] = {}
    exec(compile(blocks("python")[0], "README.md", "exec"), space)
    config = {
        "mcqa": {"resources_servers": {"mcqa": {"domain": "other"}}},
        "agent": {
            "responses_api_agents": {
                "simple_agent": {
                    "resources_server": {"type": "resources_servers", "name": "mcqa"},
                    "model_server": {"type": "responses_api_models", "name": "model"},
                }
            }
        },
        "model": {"responses_api_models": {"scripted_model": {"replies": [[say("\\boxed{B}")]]}}},
    }
    rows = [{"responses_create_params": {"input": "?"}, "options": [{"B": "x"}], "expected_answer": "B"}] * 20
    batch, unfinished = await space["collect_batch"](config, rows, 60)
    assert [outcome.unwrap()[1]["reward"] for outcome in batch] == [1.0] * 20
    assert unfinished == ()


async def test_the_authors_environment_rewards_what_it_says(sky_folder: pathlib.Path) -> None:
    """The README's environment and configuration run together, and the reward is the documented one."""
    replies = [[call("get_sky", '{"city": "Bergen"}')], [say("It is rainy.")]]
    text = (sky_folder / "sky.yaml").read_text()
    head, _, _ = text.partition("policy_model:\n")
    (sky_folder / "sky.yaml").write_text(head)
    model = {"policy_model": {"responses_api_models": {"scripted_model": {"replies": replies}}}}
    row = {"responses_create_params": {"input": "How is the sky over Bergen?"}}
    async with gym_trio.open_gym([sky_folder / "sky.yaml", model]) as gym, gym.run_examples([row]) as rollouts:
        outcome = await rollouts.receive()
    assert outcome.unwrap()[1]["reward"] == 1.0


def test_the_configuration_block_loads_with_an_env_yaml(sky_folder: pathlib.Path) -> None:
    """`${policy_base_url}` and its like come from env.yaml."""
    from gym_trio.config import load_config

    env = sky_folder / "env.yaml"
    env.write_text("policy_base_url: http://127.0.0.1:1/v1\npolicy_api_key: k\npolicy_model_name: m\n")
    loaded = load_config(sky_folder / "sky.yaml", env_yaml=env)
    assert loaded.server("policy_model").settings["openai_base_url"] == "http://127.0.0.1:1/v1"
    assert [block.name for block in loaded.servers] == ["sky", "sky_agent", "policy_model"]


async def test_the_evaluators_five_lines_run_against_an_endpoint(tmp_path: pathlib.Path) -> None:
    """Each of the five commands ends with exit code 0; the resumed run has nothing to do."""
    model = gym_trio.testing.ScriptedModel(["\\boxed{B}"])
    lines = blocks("bash")[3].strip().splitlines()
    assert len(lines) == 5
    environment = {
        "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    async with open_server(model.app) as server:
        for line in lines:
            words = shlex.split(line.replace("http://127.0.0.1:8000", server.url))
            run = partial(
                subprocess.run, words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            done = await trio.to_thread.run_sync(run)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            if line.startswith("gym-trio eval run"):
                assert "coverage: expected 40, scored 40, failed 0" in done.stdout
    assert len(model.calls) == 40


def test_every_command_of_the_table_exists() -> None:
    """The table of commands names all commands and no others."""
    from gym_trio.cli._app import COMMANDS

    listed = set()
    for cell in re.findall(r"^\| (`gym-trio [^|]+) \|", TEXT, re.M):
        first, *others = re.findall(r"`([^`]+)`", cell)
        words = first.removeprefix("gym-trio ").split()
        listed.add(" ".join(words))
        listed |= {" ".join([*words[:-1], other]) for other in others}
    assert listed == set(COMMANDS)
