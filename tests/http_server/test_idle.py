"""How long a connection may wait for its next request."""

from __future__ import annotations

import random
from typing import Any, cast

import trio

from gym_trio.http._idle import IdleConnections


class Waiting:
    """A connection that waits since now."""

    def __init__(self) -> None:
        self.since = trio.current_time()
        self.ended: float | None = None

    def stop_waiting(self) -> None:
        self.ended = trio.current_time()


async def test_none_waits_shorter_than_it_may_and_none_an_eighth_longer(autojump_clock: Any) -> None:
    """Whenever it came, between two looks or in the moment of one; what has been taken out is left alone."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    idle = IdleConnections(20.0)
    waiting: list[Waiting] = []
    gone: list[Waiting] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(idle.run)
        for _ in range(300):
            await trio.sleep(chance.choice([0, 0.001, 2.5, chance.uniform(0, 3)]))
            one = Waiting()
            idle.add(cast("Any", one))
            if chance.random() < 0.3:
                idle.remove(cast("Any", one))
                gone.append(one)
            else:
                waiting.append(one)
        await trio.sleep(22.6)
        assert not idle
        nursery.cancel_scope.cancel()
    assert all(one.ended is None for one in gone)
    lengths = [one.ended - one.since for one in waiting if one.ended is not None]
    assert len(lengths) == len(waiting)
    assert min(lengths) >= 20 - 1e-6
    assert max(lengths) <= 22.5 + 1e-6
