"""Streams over a whole gym: in memory, over sockets and with servers as processes, counted at the server."""

from __future__ import annotations

import itertools
import pathlib
import random
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gym_trio import open_gym
from gym_trio.errors import RowError
from gym_trio.gym import Gym
from gym_trio.rollouts import Completed, Failed, RolloutStream
from gym_trio.testing import open_fake_gym

Balanced = Callable[[RolloutStream], None]
in_memory_and_over_sockets = pytest.mark.parametrize("serve", ["memory", "sockets"])


@in_memory_and_over_sockets
async def test_a_trainer_of_today(serve: Any, balanced: Balanced) -> None:
    """A consumer as trainers write it: rows in, (row, result) out one by one, _rowidx kept, stop early."""

    async def run(row: dict[str, Any]) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"reward": row["x"] * 2, "response": {}}

    examples = [{"x": x, "responses_create_params": {"input": "hi"}} for x in range(20)]
    rows = [{**example, "_rowidx": place} for place, example in enumerate(examples)]
    results: dict[int, dict[str, Any]] = {}
    async with open_fake_gym(run, serve=serve) as gym, gym.run_examples(rows, max_concurrent=4) as rollouts:
        async for outcome in rollouts:
            row, result = outcome.unwrap()
            results[row["_rowidx"]] = result
            if len(results) == 10:
                break
    assert len(results) == 10
    assert all(result["reward"] == examples[place]["x"] * 2 for place, result in results.items())
    balanced(rollouts)


@in_memory_and_over_sockets
async def test_failures_are_outcomes(serve: Any) -> None:
    """What the agent raises comes back as a failure with a status, and the stream goes on."""

    async def run(row: dict[str, Any]) -> dict[str, Any]:
        if row["i"] % 2:
            raise ValueError("odd")
        return {}

    async with open_fake_gym(run, serve=serve) as gym, gym.run_examples([{"i": i} for i in range(6)]) as rollouts:
        outcomes = [outcome async for outcome in rollouts]
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert sorted(outcome.row["i"] for outcome in failed) == [1, 3, 5]
    assert all(outcome.failure.status == 500 for outcome in failed)
    assert all(outcome.failure.kind == "agent_run_error" for outcome in failed)


@in_memory_and_over_sockets
async def test_a_row_that_no_agent_takes(serve: Any) -> None:
    """Such a row ends admission with an error that names it, after what was started."""

    async def run(row: dict[str, Any]) -> dict[str, Any]:
        return {}

    rows = [{}, {"agent_ref": {"name": "nobody"}}, {}]
    async with open_fake_gym(run, serve=serve) as gym, gym.run_examples(rows) as rollouts:
        assert isinstance(await rollouts.receive(), Completed)
        with pytest.raises(RowError, match=r"row 2: .*nobody"):
            await rollouts.receive()


@in_memory_and_over_sockets
async def test_unfinished_rows_were_possibly_delivered(serve: Any, balanced: Balanced) -> None:
    """A row whose handler has begun is possibly_delivered, and its handler is cancelled by the close."""
    begun, ended = trio.Event(), trio.Event()

    async def run(row: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    async with open_fake_gym(run, serve=serve) as gym, gym.run_examples([{}]) as rollouts:
        await begun.wait()
        await rollouts.aclose()
        assert [left.delivery for left in rollouts.unfinished()] == ["possibly_delivered"]
        with trio.fail_after(10):
            await ended.wait()
        balanced(rollouts)


KEPT = """
import gc, sys
import trio
from trio.testing import wait_all_tasks_blocked
from gym_trio import Completed
from gym_trio.testing import open_fake_gym

async def run(row):
    await trio.lowlevel.checkpoint()
    return {"result_of": row["marked_row"]}

def alive():
    gc.collect()
    return sum(type(one) is dict and ("marked_row" in one or "result_of" in one) for one in gc.get_objects())

async def main():
    rows = ({"marked_row": [i]} for i in range(20))
    async with open_fake_gym(run, serve=sys.argv[1]) as gym, gym.run_examples(rows, max_concurrent=4) as rollouts:
        received = 0
        async for outcome in rollouts:
            assert isinstance(outcome, Completed)
            received += 1
            if received == 5:
                await wait_all_tasks_blocked(0.01)
                del outcome
                assert alive() <= 2 * rollouts.statistics().ready + 1, alive()  # the generator's own last row
        await wait_all_tasks_blocked(0.01)
        assert received == 20
        outcome = None
        assert alive() == 0, alive()

trio.run(main)
"""


@in_memory_and_over_sockets
async def test_nothing_below_keeps_what_was_delivered(serve: Any) -> None:
    """While the stream and its gym still stand, no row or result of a received outcome is anywhere.

    In a process of its own, where every object there is can be looked at and none is another test's.
    """
    done = await trio.run_process([sys.executable, "-c", KEPT, serve], capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@in_memory_and_over_sockets
async def test_two_streams_share_one_gym(serve: Any, balanced: Balanced) -> None:
    """Training and evaluation over one gym advance side by side, and closing one leaves the other alone."""

    async def run(row: dict[str, Any]) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {}

    def endless() -> Iterator[dict[str, Any]]:
        return ({"i": i} for i in itertools.count())

    done = {"training": 0, "evaluation": 0}
    spread: list[int] = []

    async def consume(name: str, stream: RolloutStream) -> None:
        async for outcome in stream:
            assert isinstance(outcome, Completed)
            done[name] += 1
            spread.append(abs(done["training"] - done["evaluation"]))
            if name == "training" and done[name] == 300:
                await stream.aclose()

    async with (
        open_fake_gym(run, serve=serve) as gym,
        gym.run_examples(endless(), max_concurrent=8) as training,
        gym.run_examples([{"i": i} for i in range(600)], max_concurrent=8) as evaluation,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consume, "training", training)
        nursery.start_soon(consume, "evaluation", evaluation)
    assert done == {"training": 300, "evaluation": 600}
    assert max(spread[:400]) < 100
    balanced(training)
    balanced(evaluation)


async def test_closing_one_stream_leaves_the_others_requests_alone() -> None:
    """Requests of a stream that is closed are withdrawn; those of the other go on and end well."""
    go = trio.Event()
    alive: set[str] = set()

    async def run(row: dict[str, Any]) -> dict[str, Any]:
        alive.add(row["name"])
        try:
            await go.wait()
        finally:
            alive.discard(row["name"])
        return {}

    async with (
        open_fake_gym(run) as gym,
        gym.run_examples([{"name": f"t{i}"} for i in range(5)]) as training,
        gym.run_examples([{"name": f"e{i}"} for i in range(5)]) as evaluation,
    ):
        await wait_all_tasks_blocked()
        assert len(alive) == 10
        await training.aclose()
        assert alive == {f"e{i}" for i in range(5)}
        go.set()
        assert [type(outcome) async for outcome in evaluation] == [Completed] * 5


AGENT = """
    import trio
    from gym_trio import AgentServer

    class CountingAgent(AgentServer):
        begun, ended = [], 0

        def routes(self):
            return [*super().routes(), self.route("POST", "/counts", self.counts)]

        async def run(self, request):
            self.begun.append(request["i"])
            try:
                await trio.sleep(request["seconds"])
                if request["fails"]:
                    raise ValueError("no")
                return {"i": request["i"]}
            finally:
                type(self).ended += 1

        async def counts(self, request):
            return {"begun": self.begun, "ended": self.ended}
"""


@asynccontextmanager
async def counting_gym(serve: Any, folder: pathlib.Path) -> AsyncIterator[Gym]:
    place = folder / f"counting_{serve}.py"
    place.write_text(textwrap.dedent(AGENT))
    block = {"entrypoint": f"{place}:CountingAgent"}
    async with open_gym({"agent": {"responses_api_agents": {"counting": block}}}, serve=serve) as gym:
        yield gym


class Abandoned(Exception):
    """The consumer's block gives up."""


class Schedule:
    """Rows, and how their stream is ended, by a seed."""

    ENDS = ("exhausted", "aclose", "drain", "grace", "leave", "error", "deadline")

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.end = self.dice.choice(self.ENDS)
        self.rows = [
            {
                "i": seed * 100 + place,
                "seconds": self.dice.choice((0, 0, 0.001, 0.003)),
                "fails": self.dice.random() < 0.2,
            }
            for place in range(self.dice.randrange(1, 12))
        ]
        self.seen: list[int] = []

    async def play(self, gym: Gym) -> None:
        bounds = {"max_concurrent": self.dice.choice((None, 1, 4)), "max_resident_tasks": self.dice.choice((None, 3))}
        try:
            with trio.move_on_after(self.dice.random() * 0.005) if self.end == "deadline" else trio.CancelScope():
                async with gym.run_examples(self.rows, **bounds) as self.stream:
                    await self.block(self.stream)
        except Abandoned:
            pass

    async def block(self, stream: RolloutStream) -> None:
        enough = self.dice.randrange(len(self.rows)) if self.end != "exhausted" else len(self.rows)
        while len(self.seen) < enough:
            self.seen.append((await stream.receive()).row["i"])
        if self.end == "aclose":
            await stream.aclose()
        elif self.end in ("drain", "grace"):
            drained = await stream.aclose_and_drain(0.002 if self.end == "grace" else 0)
            self.seen += [outcome.row["i"] for outcome in drained]
        elif self.end == "error":
            raise Abandoned

    def check(self, begun: set[int]) -> None:
        s = self.stream.statistics()
        assert len(self.seen) == len(set(self.seen)) == s.delivered
        assert s.pulled == s.delivered + s.discarded + s.unfinished
        for left in self.stream.unfinished():
            assert left.delivery == "possibly_delivered" or left.row["i"] not in begun


async def settled_counts(gym: Gym) -> set[int]:
    """The rows whose handlers have begun, once as many have ended: within a second, if the machine is not starved."""
    asked_at = trio.current_time()
    counts = (await gym.post("agent", "/counts", json={})).json()
    with trio.fail_after(1 + 20 * (trio.current_time() - asked_at)):
        while True:
            counts = (await gym.post("agent", "/counts", json={})).json()
            if counts["ended"] == len(counts["begun"]):
                return set(counts["begun"])


@pytest.mark.parametrize("serve", ["memory", "sockets", "processes"])
async def test_handlers_begun_are_handlers_ended(serve: Any, tmp_path: pathlib.Path) -> None:
    """Over 210 schedules, no handler is alive a second after its block, and no row is doubled or untruly told."""
    ends = set()
    async with counting_gym(serve, tmp_path) as gym:
        for seed in range(210):
            schedule = Schedule(seed)
            await schedule.play(gym)
            schedule.check(await settled_counts(gym))
            ends.add(schedule.end)
        begun = await settled_counts(gym)
    assert ends == set(Schedule.ENDS)
    assert len(begun) > 400
