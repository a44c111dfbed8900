"""``POST /rollouts/{id}/stop``: a running rollout is found under its id and attempt, and stopped once."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio.errors import RolloutFailure
from gym_trio.servers import failure_from_wire


async def run(peer: Any, row: dict[str, Any], answers: list[Any]) -> None:
    answers.append(await peer.another().post("/run", row))


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"_ng_rollout_id": "3-1"}, "3-1"),
        ({"_ng_rollout_id": "3-1-a2"}, "3-1-a2"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1}, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, "3-1-a2"),
    ],
)
async def test_stop_ends_a_running_rollout_once(agent: Any, open_peer: Any, row: Any, key: str) -> None:
    """True the first time; the run's caller learns that it was stopped; afterwards False."""
    answers: list[Any] = []
    async with open_peer(agent) as peer, trio.open_nursery() as nursery:
        nursery.start_soon(run, peer, {**row, "seconds": 3600}, answers)
        await wait_all_tasks_blocked()
        assert (await peer.get("/status"))["running_rollouts"] == 1
        assert (await peer.post("/rollouts/9-9/stop")).json() == {"stopped": False}
        assert (await peer.post(f"/rollouts/{key}/stop")).json() == {"stopped": True}
        await wait_all_tasks_blocked()
        assert (await peer.post(f"/rollouts/{key}/stop")).json() == {"stopped": False}
        assert (await peer.get("/status"))["running_rollouts"] == 0
    assert answers[0].status == 409
    failure = failure_from_wire("agent", 409, answers[0].body)
    assert isinstance(failure, RolloutFailure)
    assert failure.kind == "cancelled"


async def test_a_run_that_ended_cannot_be_stopped(agent: Any, open_peer: Any) -> None:
    """Its claim is gone with it."""
    async with open_peer(agent) as peer:
        assert (await peer.post("/run", {"_ng_rollout_id": "3-1"})).json() == {"reward": 1.0}
        assert (await peer.post("/rollouts/3-1/stop")).json() == {"stopped": False}


async def test_a_row_without_an_id_runs_unclaimed(agent: Any, open_peer: Any) -> None:
    """Nobody could name it."""
    async with open_peer(agent) as peer:
        assert (await peer.post("/run", {})).json() == {"reward": 1.0}
        assert (await peer.post("/run", {"_ng_task_index": 1})).json() == {"reward": 1.0}


async def test_a_run_whose_client_leaves_releases_its_claim(
    agent: Any, open_peer: Any, until: Any, nursery: trio.Nursery
) -> None:
    """Over a socket: the handler is cancelled, and there is nothing left to stop."""
    async with open_peer(agent, "sockets") as peer:
        scope = trio.CancelScope()

        async def gone() -> None:
            with scope:
                await peer.post("/run", {"_ng_rollout_id": "3-1", "seconds": 3600})

        nursery.start_soon(gone)
        await until(lambda: agent.sessions.claims.running == 1)
        scope.cancel()
        await until(lambda: agent.sessions.claims.running == 0)
        assert (await peer.post("/rollouts/3-1/stop")).json() == {"stopped": False}


async def test_a_session_is_claimed_under_its_episode_until_it_is_closed(agent: Any, open_peer: Any) -> None:
    """Attempts have claims of their own."""
    async with open_peer(agent) as peer:
        await peer.seed(episode_id={"rollout_id": "3-1", "attempt": 2})
        assert agent.sessions.claims.find("3-1-a2").sessions == ("a",)
        assert not agent.sessions.claims.find("3-1")
        await peer.close(episode={"rollout_id": "3-1", "attempt": 2})
        assert not agent.sessions.claims.find("3-1-a2")
