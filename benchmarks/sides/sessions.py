"""The drain of ``--sessions`` sessions in all, in ``--registries`` registries one after the other."""

from __future__ import annotations

import trio
from _side import Clock, options, report

from gym_trio.sessions import open_session_registry


async def main(arguments):
    closed, cpu, wall = 0, 0.0, 0.0

    async def open_one(*_):
        return {}

    async def close_one(*_):
        nonlocal closed
        await trio.lowlevel.checkpoint()
        closed += 1

    unconfirmed = 0
    for _ in range(arguments.registries):
        async with open_session_registry(name="benchmark") as registry:
            for number in range(arguments.sessions // arguments.registries):
                await registry.seed(str(number), fingerprint=number, open=open_one, close=close_one)
            with Clock() as clock:
                drained = await registry.drain()
            unconfirmed += len(drained.unconfirmed)
        cpu += clock.figures["cpu_seconds"]
        wall += clock.figures["wall_seconds"]
    work = {"sessions": closed, "unconfirmed": unconfirmed}
    report(work, {"cpu_seconds": cpu, "wall_seconds": wall}, ["gym_trio", "trio"])


trio.run(main, options(sessions=10000, registries=1))
