"""What an outcome costs, and a resident rollout weighs, while ``--resident`` rollouts are resident.

A rollout waits until as many others have come after it, so that the clock runs from the outcome at which the stream was
full to the one at which the rows had ended; filling it is told apart. ``--layer stream`` is the stream alone,
``memory`` a whole gym without sockets, where each rollout is a ``POST /run`` into its agent.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager

import trio
import trio.testing
from _side import Clock, options, report, resident_bytes

from gym_trio.rollouts import open_rollout_stream
from gym_trio.testing import open_fake_gym


class Turnstile:
    """Keeps ``width`` rollouts waiting; each that comes lets the one that has waited longest go."""

    def __init__(self, width):
        self._width = width
        self._waiting = deque()
        self.filling, self.full = Clock(), Clock()

    async def wait(self, _):
        event = trio.Event()
        self._waiting.append(event)
        if len(self._waiting) >= self._width:
            if self.full.is_new:
                self.filling.__exit__()
                self.full.__enter__()
            self._waiting.popleft().set()
        await event.wait()
        return {"reward": 1.0}

    def rows(self, count):
        self.filling.__enter__()
        for i in range(count):
            yield {"i": i}
        self.full.__exit__()
        self._width = 0
        for event in self._waiting:
            event.set()


class Steps(trio.abc.Instrument):
    def __init__(self, task):
        self.task, self.count = task, 0

    def before_task_step(self, task):
        self.count += task is self.task


@asynccontextmanager
async def open_layer(layer, run, rows, resident):
    if layer == "stream":
        async with open_rollout_stream(rows, run, max_resident_tasks=resident) as stream:
            yield stream
    else:
        async with open_fake_gym(run) as gym, gym.run_examples(rows, max_resident_tasks=resident) as stream:
            yield stream


async def cost(layer, resident, rows):
    """Of ``rows`` outcomes, after as many as fill the stream."""
    turnstile = Turnstile(resident - 1)
    received = 0
    async with open_layer(layer, turnstile.wait, turnstile.rows(resident + rows), resident) as stream:
        async for _ in stream:
            received += 1
    figures = turnstile.full.figures
    figures["filling_each_seconds"] = turnstile.filling.figures["cpu_seconds"] / resident
    return received - resident, figures


async def resumptions(layer, resident, rows):
    """Of the consumer, per outcome; counted apart, for the counting costs time."""
    turnstile = Turnstile(resident - 1)
    steps = Steps(trio.lowlevel.current_task())
    async with open_layer(layer, turnstile.wait, turnstile.rows(rows), resident) as stream:
        trio.lowlevel.add_instrument(steps)
        async for _ in stream:
            pass
        trio.lowlevel.remove_instrument(steps)
    return steps.count / rows


async def weight(layer, resident):
    async def park(_):
        await trio.sleep_forever()

    async with open_layer(layer, park, ({"i": i} for i in range(16)), 16):
        await trio.testing.wait_all_tasks_blocked()
    before = resident_bytes()
    async with open_layer(layer, park, ({"i": i} for i in range(resident)), resident):
        await trio.testing.wait_all_tasks_blocked()
        return (resident_bytes() - before) / resident


arguments = options(layer="stream", resident=256, rows=65536)
each = trio.run(weight, arguments.layer, arguments.resident)
received, figures = trio.run(cost, arguments.layer, arguments.resident, arguments.rows)
figures["each_bytes"] = each
figures["resumptions"] = trio.run(resumptions, arguments.layer, arguments.resident, arguments.resident)
report({"outcomes": received}, figures, ["gym_trio", "trio"])
