"""What verifiers, tools and models get wrong, each in one of many rollouts at once."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from gym_trio.agents.simple_agent import SimpleAgent
from gym_trio.gym import open_gym_of
from gym_trio.http import ServerClient
from gym_trio.rollouts import Completed
from gym_trio.servers import ModelRequest, ModelServer, RequestBody, ResourcesServer, Session, tool

REFERENCES = {
    "resources_server": {"type": "resources_servers", "name": "env"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}

# What a row's verifier, or its tool, does; each is one failure of that stage.
VERIFIERS = ("raise", "hang", "nan", "inf", "text", "none", "exit", "kill")
TOOLS = ("raise", "hang", "nan", "inf", "object")
# Only a tool that is isolated may also do these.
ISOLATED_TOOLS = (*TOOLS, "burn", "exit", "kill", "fault")


class Model(ModelServer):
    """Calls what the row says and then stops."""

    async def responses(self, request: ModelRequest) -> Mapping[str, Any]:
        outputs = [item for item in request["input"] if item.get("type") == "function_call_output"]
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
        return {"output": [said] if outputs else request["metadata"]["calls"]}


def make_environment() -> type[ResourcesServer]:
    class Env(ResourcesServer):
        @tool
        async def act(self, session: Session, what: str = "") -> Any:
            """Do what is asked."""
            if what == "raise":
                raise ZeroDivisionError("bang")
            if what == "hang":
                await trio.sleep_forever()
            return {"nan": float("nan"), "inf": float("inf"), "object": object()}.get(what, "fine")

        @tool
        def act_apart(self, session: Session, what: str = "") -> Any:
            """Do what is asked, in a process."""
            return misbehave(what)

        def verify(self, session: Session, request: RequestBody) -> Any:
            return judge(request.get("verifier"))

    return Env


def misbehave(what: str) -> Any:
    if what == "fault":
        ctypes.string_at(0)
    if what == "hang":
        time.sleep(600)
    found = judge("hang" if what == "burn" else what)
    return {"object": object()}.get(what, found)


def judge(what: Any) -> Any:
    if what == "raise":
        raise ZeroDivisionError("bang")
    if what == "exit":
        os._exit(1)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while what == "hang":
        sys.getsizeof(what)
    return {"nan": float("nan"), "inf": float("inf"), "text": "1", "none": None}.get(what, 1.0)


def row(calls: Any, **own: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "go", "metadata": {"calls": calls}}, **own}


def call(name: str = "act", arguments: Any = "{}", number: int = 0) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": arguments, "call_id": f"c{number}"}


@pytest.mark.parametrize("serve", ["memory", "sockets"])
async def test_each_is_one_failure_of_its_own_rollout(serve: Any) -> None:
    """Every broken verifier and tool fails its rollout with kind and stage; what the model gets wrong, and every
    rollout between them, is completed, and no session is left."""
    client = ServerClient()
    bounds = {"verify_timeout_seconds": 5, "tool_timeout_seconds": 5, "verify_processes": 4}
    environment = make_environment()(name="env", config=bounds, client=client)
    agent = SimpleAgent(name="agent", config=REFERENCES, client=client)
    rows = [
        *(row([call()], verifier=what, expected=("verifier_error", "verification")) for what in VERIFIERS),
        *(
            row(
                [call(name, arguments=f'{{"what": "{what}"}}')],
                expected=("agent_timeout" if what in ("hang", "burn") else "agent_run_error", "agent"),
            )
            for name, acts in (("act", TOOLS), ("act_apart", ISOLATED_TOOLS))
            for what in acts
        ),
        row([call("not_there")]),
        row([call(arguments='{"what": 3}')]),
        row([call(arguments="{")]),
        row([call(arguments='{"what": "' + "x" * 10_000_000 + '"}')]),
        row([call(number=number) for number in range(100)]),
        row([call("act_apart", number=number) for number in range(20)]),
        *(row([call()]) for _ in range(10)),
    ]
    async with open_gym_of([environment, agent, Model(name="policy_model", client=client)], client, serve=serve) as gym:
        async with gym.run_examples(rows) as rollouts:
            outcomes = [outcome async for outcome in rollouts]
        assert (await gym.client.get("env", "/status")).json()["sessions"]["ready"] == 0
    assert len(outcomes) == len(rows)
    for outcome in outcomes:
        expected = outcome.row.get("expected")
        if expected is None:
            assert isinstance(outcome, Completed), outcome
            assert outcome.result["reward"] == 1.0
        else:
            assert not isinstance(outcome, Completed), outcome.row
            assert (outcome.failure.kind, outcome.failure.stage) == tuple(expected), outcome.row
