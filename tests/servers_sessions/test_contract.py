"""`check_session_contract`: what is built in keeps it, and each broken promise is named."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import trio

import gym_trio
from gym_trio.agents import IMPLEMENTATIONS as AGENTS
from gym_trio.environments import IMPLEMENTATIONS as ENVIRONMENTS
from gym_trio.errors import UsageError
from gym_trio.servers import AgentServer, EnvironmentServer, ResourcesServer
from gym_trio.testing import check_session_contract


def load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


# What an agent's block cannot do without.
NEEDED = {
    "remote_agent": {"agent_base_url": "http://127.0.0.1:9"},
    "user_simulator_agent": {"user_model_server": {"type": "responses_api_models", "name": "user"}},
}


@pytest.mark.parametrize("name", sorted(AGENTS))
async def test_the_built_in_agents_keep_the_contract(name: str, autojump_clock: Any) -> None:
    """Every rule, in memory."""
    await check_session_contract(lambda: load(AGENTS[name])(name=name, config=NEEDED.get(name, {})))


@pytest.mark.parametrize("name", sorted(set(ENVIRONMENTS) - {"openenv", "verifiers"}))  # whose blocks name another's
async def test_the_built_in_environments_keep_the_contract(name: str) -> None:
    """Every rule that needs no task row, in memory, on the real clock: some open real processes."""
    make = load(ENVIRONMENTS[name])
    row = next(iter(make.rows({})), {})
    data = {key: value for key, value in row.items() if key != "responses_create_params"}
    await check_session_contract(lambda: make(name=name), seed={"task_data": data} if data else None)


async def test_a_factory_may_be_async_and_slow_sessions_pass(make_agent: Any, autojump_clock: Any) -> None:
    """Opens and closes that take their time are what the contract is for."""

    async def make() -> Any:
        agent = make_agent()
        agent.open_seconds = agent.close_seconds = 0.5
        return agent

    await check_session_contract(make)
    await gym_trio.testing.check_session_contract(make)


async def test_an_environment_with_sessions_to_dispose_of_passes(make_shop: Any, autojump_clock: Any) -> None:
    """Cookie sessions and typed ones."""
    await check_session_contract(make_shop)


class RaisingOpen(AgentServer):
    async def open_session(self, seed: Any) -> Any:
        raise RuntimeError("cannot")


class NeverCloses(AgentServer):
    session_close_timeout_seconds = 1

    async def close_session(self, state: Any) -> Any:
        await trio.sleep_forever()


class FailsToClose(AgentServer):
    async def close_session(self, state: Any) -> Any:
        raise RuntimeError("cannot")


class OpensForever(AgentServer):
    async def open_session(self, seed: Any) -> Any:
        await trio.sleep_forever()


class IgnoresTheSession(AgentServer):
    def routes(self) -> Any:
        return [self.route("POST", "/v1/responses", self.responses), *super().routes()]

    async def responses(self, request: Any) -> Any:
        return {"output": []}


class FailsAtShutdown(AgentServer):
    closes = 0

    async def close_session(self, state: Any) -> Any:
        if state["agent_session_id"].startswith("s") and "side" not in state["episode_id"]["rollout_id"]:
            raise RuntimeError("cannot")


class LosesHalfMade(ResourcesServer):
    async def dispose_session(self, session: Any) -> None:
        raise RuntimeError("cannot dispose")


BROKEN: list[tuple[Callable[..., Any], str]] = [
    (RaisingOpen, "a repeated seed answers as the first: a seed must answer 200, not 500"),
    (NeverCloses, "a repeated seed answers as the first: shutdown left sessions"),
    (FailsToClose, "a repeated seed answers as the first: shutdown left sessions"),
    (OpensForever, "a repeated seed answers as the first: it took over"),
    (IgnoresTheSession, "a stale request is refused: a request with the cookie of a closed session must answer 409"),
    (FailsAtShutdown, "shutdown closes what is open: shutdown left sessions .* s0"),
    (LosesHalfMade, "a repeated seed answers as the first: shutdown left sessions"),
]


@pytest.mark.parametrize(("server", "said"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_broken_promise_is_named(server: Any, said: str, autojump_clock: Any) -> None:
    """The assertion begins with the rule."""
    with pytest.raises(AssertionError, match=f"^{said}"):
        await check_session_contract(lambda: server(name="author"), rule_bound_seconds=30)


async def test_a_server_without_sessions_is_a_usage_error() -> None:
    """The contract is about agents and environments."""
    with pytest.raises(UsageError, match="keeps no sessions"):
        await check_session_contract(lambda: EnvironmentServer(name="e"))
