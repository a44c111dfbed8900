"""What an outcome costs, and what a resident rollout weighs, while many rollouts are resident.

    python benchmarks/rollouts.py [--rows 65536] [--repeats 3] [--layer stream|memory]

Each run keeps a fixed number of rollouts in flight: a rollout waits until as many others have come after it. ``stream``
is the rollout stream alone, ``memory`` a whole gym without sockets, where each rollout is a ``POST /run`` into its
agent. Cost is CPU time per outcome, the best of the repeats; it should stay flat, within a fifth, however many are
resident. The part of Python's cyclic garbage collector is told apart: it grows with everything that is alive in the
process, whoever owns it. Weight is the growth of the process's resident set while that many rollouts are parked, each
number in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import pathlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from gym_trio.rollouts import RolloutAttempt, open_rollout_stream
from gym_trio.testing import open_fake_gym

RESIDENT = (256, 1024, 4096, 16384)


class Turnstile:
    """Keeps ``width`` rollouts waiting; each that comes lets the one that has waited longest go."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._waiting: deque[trio.Event] = deque()

    async def wait(self, _: Any) -> dict[str, Any]:
        event = trio.Event()
        self._waiting.append(event)
        if len(self._waiting) >= self._width:
            self._waiting.popleft().set()
        await event.wait()
        return {"reward": 1.0}

    def rows(self, count: int) -> Iterator[dict[str, Any]]:
        for i in range(count):
            yield {"i": i}
        self._width = 0
        for event in self._waiting:
            event.set()


@asynccontextmanager
async def open_layer(layer: str, wait: Callable[[Any], Awaitable[dict[str, Any]]], rows: Any, resident: int) -> Any:
    if layer == "stream":

        async def run(attempt: RolloutAttempt) -> dict[str, Any]:
            return await wait(attempt)

        async with open_rollout_stream(rows, run, max_resident_tasks=resident) as stream:
            yield stream
    else:
        async with open_fake_gym(wait) as gym, gym.run_examples(rows, max_resident_tasks=resident) as stream:
            yield stream


class Collector:
    """How much CPU time the garbage collector has taken."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> Collector:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.process_time()
        else:
            self.seconds += time.process_time() - self._began


async def cost_seconds(layer: str, resident: int, rows: int) -> tuple[float, float]:
    """CPU time per outcome, and the collector's part of it."""
    turnstile = Turnstile(resident - 1)
    received = 0
    async with open_layer(layer, turnstile.wait, turnstile.rows(rows), resident) as stream:
        began = time.process_time()
        with Collector() as collector:
            async for _ in stream:
                received += 1
        took = time.process_time() - began
    assert received == rows
    return took / rows, collector.seconds / rows


def resident_set_bytes() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def weight_bytes(layer: str, resident: int) -> float:
    async def park(_: Any) -> dict[str, Any]:
        await trio.sleep_forever()
        raise AssertionError

    async with open_layer(layer, park, ({"i": i} for i in range(16)), 16):
        await trio.testing.wait_all_tasks_blocked()
    before = resident_set_bytes()
    async with open_layer(layer, park, ({"i": i} for i in range(resident)), resident):
        await trio.testing.wait_all_tasks_blocked()
        return (resident_set_bytes() - before) / resident


def measure(layer: str, resident: int, rows: int, repeats: int) -> tuple[tuple[float, float], float]:
    weight = trio.run(weight_bytes, layer, resident)
    return min(trio.run(cost_seconds, layer, resident, rows) for _ in range(repeats)), weight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=65536)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--layer", choices=["stream", "memory"])
    arguments = parser.parse_args()
    for layer in [arguments.layer] if arguments.layer else ["stream", "memory"]:
        costs = []
        for resident in RESIDENT:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                (cost, collecting), weight = pool.apply(measure, (layer, resident, arguments.rows, arguments.repeats))
            costs.append((cost, cost - collecting))
            print(
                f"{layer:>6}  resident {resident:>6}  {cost * 1e6:7.1f} µs per outcome  {weight / 1024:6.1f} KiB each"
            )
        whole, without = ([pair[place] for pair in costs] for place in (0, 1))
        spread = f"{max(whole) / min(whole):.2f}, without the collector {max(without) / min(without):.2f}"
        print(f"{layer:>6}  dearest over cheapest: {spread}")


if __name__ == "__main__":
    main()
