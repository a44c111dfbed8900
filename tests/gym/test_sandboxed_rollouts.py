"""A thousand rollouts with a sandbox each, cancelled at random: no process, directory or session of them stays."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
import trio

from gym_trio.agents.simple_agent import SimpleAgent
from gym_trio.gym import open_gym_of
from gym_trio.http import ServerClient
from gym_trio.models.scripted_model import ScriptedModelServer
from gym_trio.processes import Sandbox, SandboxLimits, Supervisor, open_supervisor
from gym_trio.servers import RequestBody, ResourcesServer, tool

PER_RUN = 50  # twenty times that are a thousand
QUICK = 12  # rollouts before them whose programs end by themselves
PLACES = 3  # programs at once

PROGRAM = "import os, sys, time; open('mark', 'w').write(sys.argv[1]); time.sleep(float(sys.argv[2]))"

REFERENCES = {
    "resources_server": {"type": "resources_servers", "name": "env"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}
REPLIES = [
    [{"type": "function_call", "name": "work", "arguments": "{}", "call_id": "c"}],
    [{"type": "message", "role": "assistant", "content": "done"}],
]


@attrs.define(eq=False)
class Bench:
    """The state of one session."""

    sandbox: Sandbox
    own: str = ""
    pace: float = 0


class Workshop(ResourcesServer):
    """Each session has a sandbox, in which its tool runs a program; few run at once."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.created: list[Bench] = []
        self.disposed: list[Bench] = []
        self.programs = 0
        self.most = 0
        self.begun = trio.Event()  # as many programs as there are places have been at work
        self.awaited: dict[str, int] = {}  # of each run, how many of its sandboxes are yet to be made before it leaves
        self.moments: dict[str, trio.Event] = {}
        self.places = trio.CapacityLimiter(PLACES)
        self.supervisor: Supervisor | None = None

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        async with open_supervisor(0) as supervisor, super().lifespan():
            self.supervisor = supervisor
            yield

    async def create_session(self) -> Bench:
        assert self.supervisor is not None
        self.created.append(Bench(Sandbox(self.supervisor, SandboxLimits(time_seconds=600))))
        return self.created[-1]

    async def dispose_session(self, session: Bench) -> None:
        await session.sandbox.aclose()
        self.disposed.append(session)

    async def seed_session(self, session: Bench, row: RequestBody) -> None:
        run = row["own"].partition("/")[0]
        self.awaited[run] = self.awaited.get(run, 0) - 1
        if self.awaited[run] == 0:
            self.moments[run].set()
        session.own, session.pace = row["own"], row["pace"]

    @tool
    async def work(self, session: Bench) -> int | None:
        """Run the program."""
        command = [sys.executable, "-I", "-c", PROGRAM, session.own, str(session.pace)]
        async with self.places:
            self.programs += 1
            self.most = max(self.most, self.programs)
            if session.pace and self.programs == PLACES:
                self.begun.set()
            try:
                return (await session.sandbox.exec(command)).returncode
            finally:
                self.programs -= 1

    async def verify(self, session: Bench, request: RequestBody) -> float:
        return float(await session.sandbox.get("mark") == request["own"].encode())


def children() -> set[str]:
    task = pathlib.Path(f"/proc/{os.getpid()}/task")
    found: set[str] = set()
    for thread in task.iterdir():
        found.update((thread / "children").read_text().split())
    return found


def row_of(run: int, each: int, pace: float) -> dict[str, Any]:
    own = {"_ng_rollout_id": f"{run}-{each}", "own": f"{run}/{each}", "pace": pace}
    return {"responses_create_params": {"input": "go"}, **own}


@pytest.mark.parametrize(("serve", "runs"), [("memory", 20), ("sockets", 4)])
async def test_nothing_is_left_of_a_thousand_sandboxes(
    serve: Any, runs: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quick programs finish, then a thousand hang or wait for a place until their runs end, each at a moment of its
    own; every sandbox that was made is closed once, and the servers are not needed for it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    before = await trio.to_thread.run_sync(children)
    client = ServerClient()
    workshop = Workshop(name="env", client=client)
    agent = SimpleAgent(name="agent", config=REFERENCES, client=client)
    model = ScriptedModelServer(name="policy_model", config={"replies": REPLIES}, client=client)

    workshop.awaited = {str(run): chance.randint(PER_RUN // 2, PER_RUN) for run in range(runs)}
    workshop.moments = {run: trio.Event() for run in workshop.awaited}

    async def leave(gym: Any, run: int) -> None:
        rows = [row_of(run, each, 600.0) for each in range(PER_RUN)]
        async with gym.run_examples(rows) as rollouts:
            await (workshop.moments[str(run)] if run else workshop.begun).wait()  # the first sees programs at work
            await trio.sleep(chance.choice([0.0, 0.05, 0.3]))
            if run % 2:
                await rollouts.aclose_and_drain(grace_seconds=chance.choice([0.0, 0.1]))

    async with open_gym_of([workshop, agent, model], client, serve=serve) as gym:
        async with gym.run_examples([row_of(runs, each, 0.0) for each in range(QUICK)]) as rollouts:
            rewards = [outcome.unwrap()[1]["reward"] async for outcome in rollouts]
        assert rewards == [1.0] * QUICK
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for run in range(runs):
                    nursery.start_soon(leave, gym, run)
            while len(workshop.created) != len(workshop.disposed):  # over sockets the servers clean up for themselves
                await gym.client.get("env", "/status")
        assert (await gym.client.get("env", "/status")).json()["sessions"]["ready"] == 0
        assert workshop.supervisor is not None
        assert dict(workshop.supervisor.processes) == {}
        assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240
    print(f"sandboxes made: {len(workshop.created)}")
    assert workshop.most == PLACES
    assert len(workshop.created) > runs * PER_RUN / 2
    assert len(workshop.created) == len(set(map(id, workshop.disposed))) == len(workshop.disposed)
    assert await trio.to_thread.run_sync(children) == before
