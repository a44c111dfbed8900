"""A thousand stateful rollouts at once, cancelled at random: nothing of them stays."""

from __future__ import annotations

import os
import pathlib
import random
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio

import gym_trio
from gym_trio.agents.simple_agent import SimpleAgent
from gym_trio.gym import open_gym_of
from gym_trio.http import ServerClient
from gym_trio.models.scripted_model import ScriptedModelServer
from gym_trio.servers import RequestBody, ResourcesServer, tool

RUNS = 20
PER_RUN = 50  # a thousand in all
PATIENT = 5  # runs of quick rollouts that are not disturbed


@attrs.define(eq=False)
class Workbench:
    """A state that holds something outside of memory."""

    folder: pathlib.Path
    lines: list[str] = attrs.Factory(list)


class Bench(ResourcesServer):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.created: list[Workbench] = []
        self.disposed: list[Workbench] = []
        self.seeded: dict[int, int] = {run: 0 for run in range(RUNS)}
        self.moments: dict[int, trio.Event] = {}

    async def create_session(self) -> Workbench:
        folder = tempfile.mkdtemp(dir=self.config["folder"])
        self.created.append(Workbench(pathlib.Path(folder)))
        return self.created[-1]

    async def dispose_session(self, session: Workbench) -> None:
        await trio.lowlevel.checkpoint()
        shutil.rmtree(session.folder)
        self.disposed.append(session)

    async def seed_session(self, session: Workbench, row: RequestBody) -> None:
        self.seeded[row["run"]] += 1
        if self.seeded[row["run"]] == self.config["leave_after"].get(row["run"]):
            self.moments[row["run"]].set()
        await trio.sleep(row["pace"] / 4)
        session.lines.append(row["own"])

    @tool
    async def write(self, session: Workbench, line: str) -> int:
        """Write a line."""
        await trio.sleep(0.001)
        session.lines.append(line)
        (session.folder / "lines").write_text("\n".join(session.lines))
        return len(session.lines)

    async def verify(self, session: Workbench, request: RequestBody) -> Mapping[str, Any]:
        await trio.sleep(request["pace"])
        return {"reward": float(session.lines == [request["own"], "a", "b"])}


def call(line: str) -> dict[str, Any]:
    return {"type": "function_call", "name": "write", "arguments": f'{{"line": "{line}"}}', "call_id": line}


REPLIES = [[call("a")], [call("b")], [{"type": "message", "role": "assistant", "content": "done"}]]

REFERENCES = {
    "resources_server": {"type": "resources_servers", "name": "env"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}


def children() -> set[str]:
    task = pathlib.Path(f"/proc/{os.getpid()}/task")
    found: set[str] = set()
    for thread in task.iterdir():
        found.update((thread / "children").read_text().split())
    return found


@pytest.mark.parametrize("serve", ["memory", "sockets"])
async def test_nothing_is_left_of_a_thousand_rollouts(serve: Any, tmp_path: pathlib.Path) -> None:
    """Runs that end at random moments, rollouts that pass deadlines: every session that was made was disposed of once,
    no rollout saw another's state, and no file, process or session is left."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    leave_after = {run: chance.randint(PER_RUN // 4, PER_RUN) for run in range(PATIENT, RUNS)}
    before = await trio.to_thread.run_sync(children)
    client = ServerClient()
    bench = Bench(name="env", config={"folder": str(tmp_path), "leave_after": leave_after}, client=client)
    bench.moments = {run: trio.Event() for run in leave_after}
    agent = SimpleAgent(name="agent", config=REFERENCES, client=client)
    model = ScriptedModelServer(name="policy_model", config={"replies": REPLIES}, client=client)
    rewards: list[float] = []

    async def be_patient(gym: Any, run: int) -> None:
        rows = [row_of(run, each, 0.0) for each in range(PER_RUN)]
        async with gym.run_examples(rows) as rollouts:
            rewards.extend([outcome.unwrap()[1]["reward"] async for outcome in rollouts])

    async def leave(gym: Any, run: int) -> None:
        rows = [row_of(run, each, chance.choice([0.0, 0.0, 0.02, 0.2, 60.0])) for each in range(PER_RUN)]
        deadline = chance.choice([None, 0.2, 2.0])
        async with gym.run_examples(rows, rollout_timeout_seconds=deadline) as rollouts:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call_off, run, nursery.cancel_scope)
                rewards.extend([one.result["reward"] async for one in rollouts if isinstance(one, gym_trio.Completed)])
                nursery.cancel_scope.cancel()
            if run % 3:
                drained = await rollouts.aclose_and_drain(grace_seconds=chance.choice([0.0, 0.1]))
                rewards.extend(one.result["reward"] for one in drained if isinstance(one, gym_trio.Completed))

    async def call_off(run: int, scope: trio.CancelScope) -> None:
        await bench.moments[run].wait()
        await trio.sleep(chance.choice([0.0, 0.01, 0.5]))
        scope.cancel()

    async with open_gym_of([bench, agent, model], client, serve=serve) as gym:
        async with trio.open_nursery() as nursery:
            for run in range(RUNS):
                nursery.start_soon(be_patient if run < PATIENT else leave, gym, run)
        with trio.fail_after(30):
            await settled(bench, gym)
        assert (await gym.client.get("env", "/status")).json()["sessions"]["ready"] == 0
        assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  while the servers still run
    assert len(bench.created) >= PATIENT * PER_RUN
    assert len(bench.disposed) == len(bench.created) == len(set(map(id, bench.disposed)))
    assert len(rewards) >= PATIENT * PER_RUN
    assert set(rewards) == {1.0}
    assert await trio.to_thread.run_sync(children) == before


def row_of(run: int, each: int, pace: float) -> dict[str, Any]:
    own = {"_ng_rollout_id": f"{run}-{each}", "own": f"{run}/{each}", "run": run, "pace": pace}
    return {"responses_create_params": {"input": "go"}, **own}


async def settled(bench: Bench, gym: Any) -> None:
    """Over sockets, the servers clean up for themselves after their clients have gone."""
    while len(bench.created) != len(bench.disposed):
        await gym.client.get("env", "/status")
