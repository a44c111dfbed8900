"""Environments of the verifiers package: the children and what becomes of rollouts in them, without the package."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio

import gym_trio
from gym_trio.environments._verifiers import Transcript, example_of
from gym_trio.environments.verifiers import Verifiers
from gym_trio.errors import ConfigError, GymError, MissingExtraError, RolloutFailure
from gym_trio.rollouts import Completed, Failed

HERE = pathlib.Path(__file__).parent / "verifiers_stand_in"
Json = dict[str, Any]


def block(**keys: Any) -> Json:
    return {"env_id": "plain-env", "search_path": [str(HERE)], "python": sys.executable, **keys}


def config_of(model: Json, **keys: Any) -> Json:
    return {
        "plain": {"resources_servers": {"verifiers": {"domain": "other", **block(**keys)}}},
        "plain_agent": {
            "responses_api_agents": {
                "environment_driven_agent": {
                    "resources_server": {"type": "resources_servers", "name": "plain"},
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                }
            }
        },
        "policy_model": {"responses_api_models": model},
    }


def says(*texts: str) -> Json:
    return {"scripted_model": {"replies": [[{"role": "assistant", "content": text}] for text in texts]}}


def silent() -> tuple[Json, Callable[[], Json]]:
    found = "gym_trio_user_models"
    path = HERE.parent / "verifiers_models" / "models.py"
    return {"own": {"entrypoint": f"{path}:Silent"}}, lambda: sys.modules[found].SEEN


def row(does: str, answer: str = "yes", **info: Any) -> Json:
    example = {"prompt": "hello", "answer": answer, "info": {"does": does, **info}}
    return {"responses_create_params": {"input": "hello"}, "example": example}


async def outcomes(config: Json, rows: list[Json], serve: Any = "memory") -> list[Any]:
    """In the order of the rows."""
    async with gym_trio.open_gym(config, serve=serve) as gym, gym.run_examples(rows) as rollouts:
        found = [outcome async for outcome in rollouts]
    return sorted(found, key=lambda outcome: int(outcome.row["_ng_rollout_id"].partition("-")[0]))


async def until(condition: Callable[[], Any]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110  what it waits for happens in another process
            await trio.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("serve", ["memory", "sockets", "processes"])
async def test_its_own_dataset_is_scored_by_its_own_rubric(serve: str) -> None:
    """Rows keep the example whole; a right answer earns all, a wrong one nothing; every metric has its name."""
    rows = list(Verifiers.rows(block()))
    assert [made["responses_create_params"]["input"] for made in rows] == [
        [{"role": "user", "content": text}] for text in ("one", "two", "three")
    ]
    assert rows[1]["example"] == {"prompt": "two", "answer": "two", "info": {"of": "two"}}
    rows[0]["responses_create_params"]["temperature"] = 0.5
    first, second, _ = await outcomes(config_of(says("one!")), rows, serve)
    result = first.result
    assert (result["reward"], second.result["reward"]) == (1.0, 0.0)
    assert result["reward_components"] == {
        "right": 1.0,
        "checked": 1.0,
        "process": result["process"],
        "temperature": 0.5,
    }
    assert second.result["temperature"] == -1.0
    assert result["response"]["output"][0]["content"][0]["text"] == "one!"
    assert result["response"]["usage"]["total_tokens"] > 0
    assert result["example"] == rows[0]["example"]


def test_the_block_chooses_the_rows() -> None:
    """By split, and by number."""
    assert [made["example"]["answer"] for made in Verifiers.rows(block(split="train"))] == ["train"]
    assert len(list(Verifiers.rows(block(num_examples=2)))) == 2
    rows = iter(Verifiers.rows(block()))
    assert next(rows)["example"]["answer"] == "one"
    rows.close()  # type: ignore[attr-defined]


def test_prompts_and_inputs_are_each_others_form() -> None:
    """Pictures, calls and their results included; an input that is no chat is said to be none."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "auto"}}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    prompt = [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": [{"type": "text", "text": "here"}, picture]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "a cat"},
    ]
    (made,) = Verifiers.rows(block(env_args={"examples": [{"prompt": prompt, "answer": "cat"}]}))
    kinds = [item.get("role") or item["type"] for item in made["responses_create_params"]["input"]]
    assert kinds == ["system", "user", "function_call", "function_call_output"]
    assert made["example"]["prompt"] == prompt
    bare = {"responses_create_params": made["responses_create_params"], "answer": "cat", "other": 1}
    assert example_of(bare) == {"example_id": 0, "answer": "cat", "prompt": prompt}
    with pytest.raises(RolloutFailure, match="cannot be the environment's prompt"):
        example_of({"responses_create_params": {"input": [{"type": "computer_call"}]}})


async def test_turns_streams_and_rows_of_other_make() -> None:
    """What the environment said stands between the model's turns; a stream reaches it; a row needs no example."""
    plain = {"responses_create_params": {"input": [{"role": "user", "content": "hi"}]}, "answer": "yes"}
    config = config_of(says("no", "yes"))
    turns, stream, made = await outcomes(config, [row("two turns"), row("stream", "no"), plain])
    assert turns.result["reward"] == 1.0
    said = [item.get("content") for item in turns.result["response"]["output"]]
    assert [text if isinstance(text, str) else text[0]["text"] for text in said] == ["no", "sure?", "yes"]
    assert (stream.result["reward"], made.result["reward"]) == (1.0, 0.0)
    assert stream.result["response"]["output"][0]["content"][0]["text"] == "no"


async def test_programs_of_an_environment_find_what_it_finds() -> None:
    """Its modules, and what is installed beside its Python: tool servers are such programs."""
    (found,) = await outcomes(config_of(says("yes")), [row("program")])
    assert found.result["reward"] == 1.0


async def test_many_rollouts_at_once_share_a_child() -> None:
    """Twelve that wait for each other all end, in one process."""
    rows = [row("meet", count=12) for _ in range(12)]
    found = await outcomes(config_of(says("yes")), rows)
    assert [outcome.result["reward"] for outcome in found] == [1.0] * 12
    assert len({outcome.result["process"] for outcome in found}) == 1


async def test_what_goes_wrong_is_a_failure_and_never_a_zero() -> None:
    """A raise in the rubric, in the environment, a failed model call, a reward that is no number: each by its name."""
    rows = [
        row("broken rubric"),
        row("raise"),
        row("two turns"),
        row("endless reward"),
        {"responses_create_params": {}},
    ]
    found = await outcomes(config_of(says("yes")), rows)
    assert all(isinstance(outcome, Failed) for outcome in found)
    seen = [(str(f.failure.kind), str(f.failure.stage), f.failure.message) for f in found]
    rubric, raised, model, endless, empty = seen
    assert rubric[:2] == ("verifier_error", "verification")
    assert "checked raised ZeroDivisionError: the rubric is broken" in rubric[2]
    assert raised == ("agent_run_error", "agent", "LookupError: no such room")
    assert model[:2] == ("agent_run_error", "agent")
    assert endless[:2] == ("verifier_error", "verification")
    assert empty[:2] == ("agent_run_error", "seed")


async def test_the_models_own_failure_is_the_rollouts() -> None:
    """Not what the environment's client made of it."""
    (found,) = await outcomes(config_of({"scripted_model": {"replies": []}}), [row("")])
    assert "the script has 0 replies" in found.failure.message
    assert found.failure.terminal


@pytest.mark.parametrize(("does", "kind"), [("die", "kill_shaped"), ("exit", "session_lost")])
async def test_a_child_that_ends_fails_its_own_rollouts_alone(tmp_path: pathlib.Path, does: str, kind: str) -> None:
    """Both in it fail; the one in the other child is scored; the next is scored by a new child."""
    first, second = tmp_path / "first", tmp_path / "second"
    async with gym_trio.open_gym(config_of(says("yes"), processes=2)) as gym:
        async with gym.run_examples([row("wait", path=str(first))]) as lost:
            await until(first.exists)
            async with gym.run_examples([row("wait", path=str(second))]) as others:
                await until(second.exists)
                async with gym.run_examples([row(does)]) as rollouts:
                    found = [await rollouts.receive(), await lost.receive()]
                await trio.Path(f"{second}.go").touch()
                other = await others.receive()
        async with gym.run_examples([row("")]) as rollouts:
            again = await rollouts.receive()
    assert [(outcome.failure.kind, outcome.failure.stage) for outcome in found] == [(kind, "agent")] * 2
    assert isinstance(other, Completed)
    assert (other.result["reward"], again.result["reward"]) == (1.0, 1.0)
    assert other.result["process"] != again.result["process"]


async def test_cancelling_in_the_middle_of_a_model_call_reaches_both_ends(tmp_path: pathlib.Path) -> None:
    """The environment's task and the model's call are cancelled when the rollouts' close returns."""
    model, seen = silent()
    path = tmp_path / "end"
    async with gym_trio.open_gym(config_of(model)) as gym:
        before = dict(seen())
        async with gym.run_examples([row("", path=str(path))]) as rollouts:
            await until(lambda: seen()["asked"] > before["asked"])
            await rollouts.aclose()
            assert seen()["left"] == before["left"] + 1
            assert path.read_text() == "cancelled"
        async with gym.run_examples([row("raise")]) as rollouts:
            assert "no such room" in (await rollouts.receive()).failure.message


async def test_a_cancellation_that_is_not_confirmed_ends_the_child(tmp_path: pathlib.Path) -> None:
    """The others in it fail as killed, with the reason; the next child takes over."""
    path = tmp_path / "here"
    async with gym_trio.open_gym(config_of(says("yes"), cancel_timeout_seconds=0.2)) as gym:
        waiting = tmp_path / "waiting"
        async with gym.run_examples([row("wait", path=str(waiting))]) as others:
            async with gym.run_examples([row("stay", path=str(path))]) as rollouts:
                await until(lambda: path.exists() and waiting.exists())
                await rollouts.aclose()
            other = await others.receive()
        assert (other.failure.kind, other.failure.stage) == ("kill_shaped", "agent")
        assert "did not end within 0.2 s" in other.failure.message
        async with gym.run_examples([row("")]) as rollouts:
            assert (await rollouts.receive()).result["reward"] == 1.0


async def test_stopping_leaves_no_process(tmp_path: pathlib.Path) -> None:
    """Neither the child nor what the environment started, though a rollout is under way."""
    path = tmp_path / "pid"
    async with gym_trio.open_gym(config_of(says("yes"))) as gym:
        async with gym.run_examples([row("own child", path=str(path))]) as rollouts:
            pid = int((await rollouts.receive()).result["process"])
        waiting = tmp_path / "waiting"
        async with gym.run_examples([row("wait", path=str(waiting))]) as rollouts:
            await until(waiting.exists)
    assert is_gone(pid)
    assert is_gone(int(path.read_text()))


WRONG = [
    ({"env_id": "nothing-there"}, "no environment 'nothing-there'"),
    ({"env_args": {"fails": "raise"}}, "'plain-env': load_environment raised RuntimeError: no such data"),
    ({"env_args": {"unknown": 1}}, "unexpected keyword argument 'unknown'"),
    ({"env_args": {"fails": "return"}}, "returned a object, not an environment"),
    ({"env_args": {"fails": "group"}}, "compares the rollouts of a group"),
    ({"env_args": {"fails": "die"}}, "exit code 7"),
    ({"python": "/nowhere/python"}, "no program /nowhere/python"),
    ({"split": "test"}, "split"),
    ({"env_id": ""}, "env_id"),
]


@pytest.mark.parametrize(("keys", "said"), [*WRONG, ({"env_args": {"examples": [{"prompt": []}]}}, "0 .*no prompt")])
def test_rows_of_what_cannot_be_loaded_are_refused_in_one_line(keys: Json, said: str) -> None:
    """The environment, and what is wrong with it, before anything has started."""
    with pytest.raises(ConfigError, match=said) as caught:
        list(Verifiers.rows(block(**keys)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("keys", "said"), [WRONG[1], WRONG[5], WRONG[6]])
async def test_a_server_of_what_cannot_be_loaded_does_not_start(keys: Json, said: str) -> None:
    """The same words, also where the rows came from a file."""
    with pytest.raises(GymError, match=said):
        await outcomes(config_of(says("yes"), **keys), [row("")])


@pytest.mark.skipif("verifiers" in sys.modules, reason="the package is installed")
def test_without_the_package_one_line_says_what_to_install() -> None:
    """And that another Python will do."""
    keys = {key: value for key, value in block().items() if key != "python"}
    with pytest.raises(MissingExtraError, match=r"key python .*pip install 'gym_trio\[verifiers\]'"):
        Verifiers(name="plain", config=keys)
    with pytest.raises(MissingExtraError):
        list(Verifiers.rows(keys))


async def test_sessions_are_kept_as_by_any_environment() -> None:
    """Though its rollouts need none."""
    await gym_trio.testing.check_session_contract(lambda: Verifiers(name="plain", config=block()))


def test_another_conversation_adds_its_answer_alone() -> None:
    """Of a second role's calls only the answers are known to be the model's; what cannot be read is left out."""
    transcript = Transcript()

    def said(text: str) -> Json:
        return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"prompt_tokens": 2}}

    def asked(*texts: str) -> Json:
        return {"messages": [{"role": "user", "content": text} for text in texts]}

    transcript.add("chat_completions", asked("a"), said("1"))
    transcript.add("chat_completions", asked("b"), said("2"))
    transcript.add("chat_completions", asked("b", "c"), said("3"))
    transcript.add("chat_completions", asked("b"), {"choices": []})
    response = transcript.response()
    texts = [item["content"] if item["role"] == "user" else item["content"][0]["text"] for item in response["output"]]
    assert texts == ["1", "2", "c", "3"]
    assert response["usage"]["input_tokens"] == 6
    assert Transcript().response()["output"] == []
