"""A dialogue between two models."""

from __future__ import annotations

from typing import Any

import pytest

from gym_trio.agents.user_simulator_agent import UserSimulatorAgent
from gym_trio.servers import RequestBody, ResourcesServer, Session, output_text, tool
from gym_trio.testing import ScriptedModel

STOP = "###STOP###"
USER = {"user_model_server": {"type": "responses_api_models", "name": "user_model"}}


class Shop(ResourcesServer):
    @tool
    async def order(self, session: Session, what: str) -> str:
        """Order a thing."""
        session.ordered = what  # type: ignore[attr-defined]
        return "ordered"

    async def verify(self, session: Session, request: RequestBody) -> dict[str, Any]:
        ordered = getattr(session, "ordered", None)
        return {"reward": float(ordered == "tea"), "said": output_text(request.response)}


@pytest.fixture
def talk(open_servers: Any) -> Any:
    async def talked(model: Any, user: Any, row: Any = None, **settings: Any) -> Any:
        models: dict[str, ScriptedModel] = {}

        def scripted(replies: Any) -> Any:
            def make(*, name: str, config: Any, client: Any) -> ScriptedModel:
                models[name] = ScriptedModel(replies, name=name)
                return models[name]

            return make

        made = (
            (Shop, "env", {}),
            (scripted(model), "policy_model", {}),
            (scripted(user), "user_model", {}),
            (UserSimulatorAgent, "agent", {**USER, **settings}),
        )
        whole = {"responses_create_params": {"input": "I am thirsty."}, **(row or {})}
        async with open_servers(*made) as gym:
            async with gym.run_examples([whole]) as rollouts:
                (outcome,) = [outcome async for outcome in rollouts]
            assert (await gym.client.get("env", "/status")).json()["sessions"]["ready"] == 0
        return outcome, models

    return talked


def said(result: Any) -> list[tuple[str, str]]:
    texts = []
    for item in result["response"]["output"]:
        if item.get("role"):
            content = item["content"]
            texts.append((item["role"], content if isinstance(content, str) else content[0]["text"]))
    return texts


async def test_a_dialogue_with_a_tool_call(talk: Any, calling: Any) -> None:
    """Both sides speak in turn, the tool is called in between, and the user's stop ends it."""
    outcome, models = await talk(
        ["What would you like?", [calling("order", '{"what": "tea"}')], "It is on its way."], ["Tea, please.", STOP]
    )
    result = outcome.unwrap()[1]
    assert result["reward"] == 1.0
    assert said(result) == [
        ("assistant", "What would you like?"),
        ("user", "Tea, please."),
        ("assistant", "It is on its way."),
    ]
    response = result["response"]
    assert response["status"] == "completed"
    assert response["user_turns"] == 1
    assert response["usage"]["total_tokens"] > 0
    assert response["user_usage"]["total_tokens"] > 0
    assert len(models["policy_model"].calls) == 3


async def test_the_user_sees_the_roles_exchanged(talk: Any) -> None:
    """It gets its prompt and the messages, and neither tools nor the model's system message."""
    row = {
        "responses_create_params": {
            "input": [{"role": "system", "content": "s"}, {"role": "user", "content": "Hello"}]
        },
        "user_prompt": "You want tea.",
    }
    outcome, models = await talk(["Hi!", "Bye!"], ["Tea.", STOP], row)
    first, second = (call["input"] for call in models["user_model"].calls)
    assert [(item["role"], item["content"]) for item in first[1:]] == [("assistant", "Hello"), ("user", "Hi!")]
    assert first[0]["role"] == "system"
    assert "You want tea." in first[0]["content"]
    assert STOP in first[0]["content"]
    assert [item["content"] for item in second[1:]] == ["Hello", "Hi!", "Tea.", "Bye!"]
    assert all("user_prompt" not in call for call in models["policy_model"].calls)
    assert outcome.unwrap()[1]["user_prompt"] == "You want tea."


async def test_without_a_user_message_the_user_begins(talk: Any) -> None:
    """The simulated user's first words are the model's first input."""
    outcome, models = await talk(["Hi!"], ["Hello.", STOP], {"responses_create_params": {"input": []}})
    assert said(outcome.unwrap()[1]) == [("user", "Hello."), ("assistant", "Hi!")]
    assert models["policy_model"].calls[0]["input"][-1]["content"] == "Hello."


async def test_a_user_with_nothing_to_say_at_all_is_a_failure(talk: Any) -> None:
    """There is no dialogue to judge."""
    outcome, _ = await talk(["Hi!"], [STOP], {"responses_create_params": {"input": []}})
    assert (outcome.failure.kind, outcome.failure.stage) == ("agent_run_error", "agent")


@pytest.mark.parametrize("user", [f"Bye. {STOP} ha", "", "  "])
async def test_the_stop_text_and_silence_end_it(talk: Any, user: str) -> None:
    """What stands beside the stop text is not part of the dialogue."""
    outcome, _ = await talk(["Hi!"], [user])
    assert said(outcome.unwrap()[1]) == [("assistant", "Hi!")]


async def test_turns_are_bounded(talk: Any) -> None:
    """After the last turn the model has the last word, and the response says why it is incomplete."""
    outcome, models = await talk(["a", "b", "c", "d"], ["x"] * 9, max_turns=3)
    response = outcome.unwrap()[1]["response"]
    assert response["incomplete_details"] == {"reason": "max_turns"}
    assert [text for _, text in said({"response": response})] == ["a", "x", "b", "x", "c", "x", "d"]
    assert len(models["user_model"].calls) == 3


async def test_a_user_model_that_fails_fails_the_rollout(talk: Any) -> None:
    """Its failure has stage agent and names the server."""
    outcome, _ = await talk(["a", "b"], ["x"])
    assert outcome.failure.stage == "agent"
    assert "user_model" in outcome.failure.message
