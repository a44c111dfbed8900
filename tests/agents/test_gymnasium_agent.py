"""The agent of environments that are stepped: what it hands from the environment to the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gym_trio.agents.gymnasium_agent import GymnasiumAgent
from gym_trio.models.scripted_model import ScriptedModelServer
from gym_trio.servers import GymnasiumServer, RequestBody, ResetAnswer, StepAnswer

TOOL = {"type": "function", "name": "lift", "parameters": {"type": "object", "properties": {}}}


class Workshop(GymnasiumServer):
    async def reset(self, session: Any, row: RequestBody) -> ResetAnswer:
        return "go", {"tools": row.get("offered")}

    async def step(self, session: Any, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        outputs = [{"call_id": item["call_id"], "output": "up"} for item in response["output"]]
        return None, 1.0, True, False, {"tool_outputs": outputs}


@pytest.mark.parametrize(
    ("own", "offered", "seen"),
    [(None, [TOOL], ["lift"]), ([{**TOOL, "name": "own"}], [TOOL], ["own", "lift"]), (None, "hammer", None)],
)
async def test_tools_that_a_reset_offers_are_the_models(
    open_servers: Any, own: Any, offered: Any, seen: list[str] | None
) -> None:
    """They stand behind the row's own; what is no list of tools is left alone."""
    call = {"type": "function_call", "name": "lift", "arguments": "{}", "call_id": "c"}
    made = (
        (Workshop, "env", {}),
        (ScriptedModelServer, "policy_model", {"replies": [[call]]}),
        (GymnasiumAgent, "agent", {}),
    )
    params = {"input": "x", **({"tools": own} if own else {})}
    async with open_servers(*made) as gym:
        async with gym.run_examples([{"responses_create_params": params, "offered": offered}]) as rollouts:
            _, result = (await rollouts.receive()).unwrap()
    tools = result["responses_create_params"].get("tools")
    assert (tools if seen is None else [one["name"] for one in tools]) == seen
    assert result["response"]["output"][1] == {"type": "function_call_output", "call_id": "c", "output": "up"}


class Hoard(GymnasiumServer):
    async def step(self, session: Any, response: Mapping[str, Any], row: RequestBody) -> StepAnswer:
        return "more", 1e308, False, False, {}


async def test_rewards_that_add_up_to_infinity_are_no_reward(open_servers: Any) -> None:
    """Each step's is finite; their sum is not, and the rollout fails where a verifier's would."""
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    made = (
        (Hoard, "env", {}),
        (ScriptedModelServer, "policy_model", {"replies": [[said], [said]]}),
        (GymnasiumAgent, "agent", {}),
    )
    async with open_servers(*made) as gym, gym.run_examples([{"responses_create_params": {"input": "x"}}]) as rollouts:
        outcome = await rollouts.receive()
    assert (outcome.failure.kind, outcome.failure.stage) == ("verifier_error", "verification")
    assert "add up to inf" in outcome.failure.message
