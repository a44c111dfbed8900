"""Clients that leave, over real sockets: nothing that was opened stays open."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from gym_trio.http import open_server, open_socket_transport
from gym_trio.sessions import SessionPhase

TASK = {"taskset": "t", "task_id": "1"}


async def leave(nursery: trio.Nursery, call: Any, *args: Any) -> trio.CancelScope:
    """Start a call whose client can be made to leave by cancelling it, which closes its socket."""
    scope = trio.CancelScope()

    async def run() -> None:
        with scope:
            await call(*args)

    nursery.start_soon(run)
    return scope


@pytest.mark.parametrize("partial", [True, False])
async def test_a_seed_whose_client_leaves_is_cancelled_and_what_it_made_is_closed(
    agent: Any, open_peer: Any, until: Any, nursery: trio.Nursery, partial: bool
) -> None:
    """The open sees the cancellation; a partial state is closed without anyone asking."""
    agent.open_seconds, agent.partial_when_cancelled = 3600, partial
    async with open_peer(agent, "sockets") as peer:
        scope = await leave(nursery, peer.seed)
        await until(lambda: agent.sessions.phase("a") is SessionPhase.SEEDING)
        scope.cancel()
        await until(lambda: agent.cancelled_opens == 1)
        await until(lambda: agent.sessions.phase("a") is SessionPhase.CLOSED)
        assert agent.closed == agent.opened == (["a"] if partial else [])
        answer = (await peer.close()).json()
        assert answer["resources_cookies"] == ({} if partial else None)
        assert (await peer.seed()).status == 409


async def test_a_client_that_leaves_after_its_seed_can_come_back(
    agent: Any, open_peer: Any, until: Any, nursery: trio.Nursery
) -> None:
    """The session is there for an equal seed of another connection."""
    async with open_peer(agent, "sockets") as peer:
        scope = await leave(nursery, peer.seed)
        await until(lambda: agent.sessions.phase("a") is SessionPhase.READY)
        scope.cancel()
        assert (await peer.another().seed()).status == 200
        assert agent.opened == ["a"]


async def test_a_close_whose_client_leaves_goes_on_and_the_next_caller_joins_it(
    agent: Any, open_peer: Any, until: Any, nursery: trio.Nursery
) -> None:
    """One close, whose receipt the second client gets."""
    agent.close_seconds = 0.05
    async with open_peer(agent, "sockets") as peer:
        await peer.seed()
        scope = await leave(nursery, peer.close)
        await until(lambda: agent.closing == ["a"])
        scope.cancel()
        answer = await peer.another().close()
        assert answer.status == 200
        assert answer.json()["agent_observations"] == {"turns": 0}
        assert agent.closing == agent.closed == ["a"]


async def test_two_clients_seed_and_two_close(agent: Any, open_peer: Any, nursery: trio.Nursery) -> None:
    """Whoever comes second joins the first, and the answers are equal."""
    agent.open_seconds = agent.close_seconds = 0.05
    answers: dict[str, list[bytes]] = {"seed": [], "close": []}

    async def ask(what: str, client: Any) -> None:
        response = await getattr(client, what)()
        assert response.status == 200
        answers[what].append(response.body)

    async with open_peer(agent, "sockets") as peer:
        for what in answers:
            async with trio.open_nursery() as both:
                both.start_soon(ask, what, peer.another())
                both.start_soon(ask, what, peer.another())
    assert all(len(bodies) == 2 and len(set(bodies)) == 1 for bodies in answers.values())
    assert (agent.opened, agent.closed) == (["a"], ["a"])


async def test_shutdown_of_a_server_on_a_socket_closes_its_sessions(make_agent: Any, open_peer: Any) -> None:
    """A graceful shutdown ends with every session closed, those of running requests included."""
    agent = make_agent()
    async with open_peer(agent, "sockets") as peer:
        for number in range(20):
            await peer.another().seed(f"s{number}")
    assert sorted(agent.closed) == sorted(agent.opened)
    assert agent.sessions.statistics().last_drain.complete


@pytest.mark.timeout(120)
async def test_a_thousand_sessions_with_clients_killed_at_random(make_agent: Any) -> None:
    """After the shutdown every state that was made has been closed once, or its id is in the report."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)

    class Storm(make_agent):  # type: ignore[misc, valid-type]  # the class is the fixture's value
        async def open_session(self, request: Any) -> Any:
            self.open_seconds = rng.choice([0, 0.001, 0.02])
            return await super().open_session(request)

        async def close_session(self, state: Any) -> Any:
            self.closing.append(state["id"])
            await trio.sleep(rng.choice([0, 0.001, 0.02]))
            if rng.random() < 0.05:
                raise RuntimeError("the provider is down")
            self.closed.append(state["id"])

    agent = Storm(config={"session_close_timeout_seconds": 5})
    from gym_trio.http import ServerClient

    async with open_server(agent.app) as running, open_socket_transport() as transport:
        client = ServerClient({"agent": (transport, running.url)})

        async def one(number: int, limit: trio.CapacityLimiter) -> None:
            body = {"agent_session_id": f"s{number}", "episode_id": {"rollout_id": f"{number}-0", "attempt": 0}}
            async with limit:
                with trio.move_on_after(rng.choice([0.001, 0.005, 0.02, 5])) as scope:
                    await client.post("agent", "/v1/agent_sessions", json={**body, "task_id": TASK})
                if scope.cancelled_caught or rng.random() < 0.3:
                    return
                with trio.move_on_after(rng.choice([0.001, 0.01, 5])):
                    await client.post("agent", "/v1/agent_sessions/close", json=body)

        limit = trio.CapacityLimiter(100)
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(one, number, limit)
        assert agent.opened, f"seed {seed}"
    named = {session_id for session_id, _ in agent.sessions.statistics().last_drain.unconfirmed}
    assert set(agent.opened) - set(agent.closed) == named, f"seed {seed}"
    assert len(agent.opened) == len(set(agent.opened)), f"seed {seed}"
    assert len(agent.closed) == len(set(agent.closed)), f"seed {seed}"
