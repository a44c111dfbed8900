"""``/aggregate_metrics``: the contract's four keys, from agents and environments, with the author's hooks."""

from __future__ import annotations

from typing import Any

import pytest

from gym_trio.agents.simple_agent import SimpleAgent
from gym_trio.servers import ResourcesServer

ROWS = [
    {"_ng_task_index": task, "_ng_rollout_index": repeat, "reward": float(task == repeat)}
    for task in range(2)
    for repeat in range(2)
]
KEYS = {"agent_metrics", "key_metrics", "group_level_metrics", "repeat_level_metrics"}


class Hooked(ResourcesServer):
    def compute_metrics(self, tasks: Any) -> dict[str, float]:
        return {"tasks_seen": float(len(tasks))}


class Broken(ResourcesServer):
    def compute_metrics(self, tasks: Any) -> dict[str, float]:
        raise RuntimeError("no")


AGENT = (SimpleAgent, "agent", {"resources_server": {"name": "env"}, "model_server": {"name": "m"}})


@pytest.mark.parametrize("server", ["env", "agent"])
async def test_the_four_keys_come_back_with_the_mean(open_servers: Any, server: str) -> None:
    """Agent and environment give the same metrics of the same rows."""
    async with open_servers((ResourcesServer, "env", {}), AGENT) as gym:
        answer = (await gym.post(server, "/aggregate_metrics", json={"verify_responses": ROWS})).json()
    assert answer.keys() >= KEYS
    assert answer["agent_metrics"]["mean/reward"] == 0.5


async def test_an_authors_hook_adds_its_metrics_through_the_agent(open_servers: Any) -> None:
    """The collector asks the agent; the hook stands in the environment."""
    async with open_servers((Hooked, "env", {}), AGENT) as gym:
        answer = (await gym.post("agent", "/aggregate_metrics", json={"verify_responses": ROWS})).json()
    assert answer["agent_metrics"]["tasks_seen"] == 2.0


async def test_a_hook_that_raises_costs_its_own_metrics_only(open_servers: Any) -> None:
    """The rest of the metrics is there all the same."""
    async with open_servers((Broken, "env", {})) as gym:
        response = await gym.post("env", "/aggregate_metrics", json={"verify_responses": ROWS})
    assert response.status == 200
    assert response.json()["agent_metrics"]["mean/reward"] == 0.5


@pytest.mark.parametrize("body", [{}, {"verify_responses": {}}, {"verify_responses": [1]}])
async def test_rows_that_are_none_are_refused(open_servers: Any, body: Any) -> None:
    """What is no list of objects is a 422."""
    async with open_servers((ResourcesServer, "env", {})) as gym:
        assert (await gym.post("env", "/aggregate_metrics", json=body)).status == 422
