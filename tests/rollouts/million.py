"""Storms: schedules in which everything happens at once, until a million outcomes have been made.

    python tests/rollouts/million.py [outcomes] [first seed]

Each storm runs rows through rollouts that end, fail, resist cancellation or return in spite of it, while consumers
come, go and are cancelled in the middle of anything, until the stream is exhausted, drained, closed, left, or cancelled
from outside. Afterwards every row must be in exactly one place. Prints what it found; exits 1 if an outcome was lost
or delivered twice.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import attrs
import trio
from trio._core._run import _r as trios_own_dice

from gym_trio.errors import GymError
from gym_trio.rollouts import RolloutAttempt, RolloutStream, Statistics, open_rollout_stream

checkpoint = trio.lowlevel.checkpoint


class Abandoned(GymError):
    """The consumer's block gives up."""


@attrs.define
class Findings:
    """What storms have shown."""

    outcomes: int = 0
    storms: int = 0
    lost: int = 0
    doubled: int = 0
    misplaced: int = 0
    ends: Counter[str] = attrs.Factory(Counter)
    guilty: list[int] = attrs.Factory(list)  # seeds

    def add(self, storm: Storm) -> None:
        before = self.lost, self.doubled, self.misplaced
        statistics, unfinished = storm.statistics, {left.row["i"] for left in storm.stream.unfinished()}
        seen = Counter(storm.seen)
        self.storms += 1
        self.outcomes += len(storm.made)
        self.ends[storm.end] += 1
        self.doubled += sum(times - 1 for times in seen.values())
        self.lost += abs(len(storm.made - seen.keys()) - statistics.discarded)
        self.misplaced += len(unfinished ^ (set(range(statistics.pulled)) - storm.made))
        self.misplaced += abs(statistics.delivered - len(storm.seen)) + statistics.ready + statistics.in_flight
        if before != (self.lost, self.doubled, self.misplaced):
            self.guilty.append(storm.seed)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.misplaced)


class Storm:
    """One stream and everything that happens to it, decided by a seed."""

    ENDS = ("exhausted", "aclose", "drain", "drain with grace", "several at once", "left", "error", "outer")

    def __init__(self, seed: int, rows: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        trios_own_dice.seed(seed)
        self.rows = rows
        self.end = self.dice.choice(self.ENDS)
        self.made: set[int] = set()  # rows whose run returned or raised something of its own
        self.seen: list[int] = []
        self.stream: RolloutStream

    @property
    def statistics(self) -> Statistics:
        return self.stream.statistics()

    def plain(self) -> Iterator[dict[str, Any]]:
        for i in range(self.rows):
            yield {"i": i}

    async def asynchronous(self) -> AsyncIterator[dict[str, Any]]:
        for row in self.plain():
            if self.dice.random() < 0.2:
                await checkpoint()
            yield row

    async def run(self, attempt: RolloutAttempt) -> dict[str, Any]:
        i, dice = attempt.row["i"], self.dice
        try:
            for _ in range(dice.randrange(4)):
                await checkpoint()
        except trio.Cancelled:
            kind = dice.random()
            if kind < 0.2:
                with trio.CancelScope(shield=True):
                    await checkpoint()
            if kind > 0.1:
                raise
        self.made.add(i)
        if dice.random() < 0.1:
            raise ValueError(i)
        return {"i": i}

    async def consume(self, scope: trio.CancelScope) -> None:
        with scope:
            async for outcome in self.stream:
                self.seen.append(outcome.row["i"])
                if self.dice.random() < 0.1:
                    await checkpoint()

    async def drain(self, grace: float, scope: trio.CancelScope) -> None:
        with scope:
            self.seen += [outcome.row["i"] for outcome in await self.stream.aclose_and_drain(grace)]

    async def close(self, scope: trio.CancelScope) -> None:
        with scope:
            await self.stream.aclose()

    async def disturb(self, nursery: trio.Nursery) -> None:
        """Consumers come and are cancelled, for as long as the storm lasts."""
        dice, scopes = self.dice, list[trio.CancelScope]()
        lasts = self.rows * dice.random()
        while self.statistics.pulled < lasts:
            if not scopes or dice.random() < 0.3:
                scopes.append(trio.CancelScope())
                nursery.start_soon(self.consume, scopes[-1])
            elif dice.random() < 0.5:
                scopes.pop(dice.randrange(len(scopes))).cancel()
            for _ in range(dice.randrange(5)):
                await checkpoint()

    async def finish(self, nursery: trio.Nursery) -> None:
        match self.end:
            case "exhausted":
                await self.consume(trio.CancelScope())
            case "aclose":
                await self.close(trio.CancelScope())
            case "drain":
                await self.drain(0, trio.CancelScope())
            case "drain with grace":
                await self.drain(0.0005, trio.CancelScope())
            case "several at once":
                await self.finish_several_times(nursery)
            case "error":
                raise Abandoned

    async def finish_several_times(self, nursery: trio.Nursery) -> None:
        dice = self.dice
        for _ in range(dice.randrange(1, 6)):
            scope = trio.CancelScope()
            if dice.random() < 0.6:
                nursery.start_soon(self.drain, dice.choice((0, 0.0001, 0.001)), scope)
            else:
                nursery.start_soon(self.close, scope)
            if dice.random() < 0.5:
                await checkpoint()
            if dice.random() < 0.5:
                scope.cancel()
        if dice.random() < 0.5:
            await self.drain(0, trio.CancelScope())

    async def block(self, outer: trio.CancelScope) -> None:
        dice = self.dice
        bounds = (None, 1, 3, 16, 256)
        rows: Any = self.plain() if dice.random() < 0.5 else self.asynchronous()
        async with (
            open_rollout_stream(
                rows, self.run, max_concurrent=dice.choice(bounds), max_resident_tasks=dice.choice(bounds)
            ) as self.stream,
            trio.open_nursery() as nursery,
        ):
            await self.disturb(nursery)
            if self.end == "outer":
                outer.cancel()
            await self.finish(nursery)
            if self.end == "left":
                nursery.cancel_scope.cancel()

    async def play(self) -> None:
        with trio.CancelScope() as outer:
            try:
                await self.block(outer)
            except* Abandoned:
                pass


def weather(findings: Findings, seed: int, rows: int) -> None:
    """Play one storm and note what it shows."""
    storm = Storm(seed, rows)
    trio.run(storm.play)
    findings.add(storm)


def main(outcomes: int = 1_000_000, seed: int = 0) -> int:
    findings, began = Findings(), time.perf_counter()
    while findings.outcomes < outcomes:
        weather(findings, seed, random.Random(seed).choice((20, 200, 2000, 20000)))
        seed += 1
    f, took = findings, time.perf_counter() - began
    sys.stdout.write(
        f"outcomes = {f.outcomes}, storms = {f.storms}, seconds = {took:.1f}, ends = {dict(f.ends)}\n"
        f"lost = {f.lost}, doubled = {f.doubled}, misplaced = {f.misplaced}, guilty seeds = {f.guilty}\n"
    )
    return 0 if findings.clean else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
