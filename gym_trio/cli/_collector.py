"""What the command line does to Python's garbage collector. A library must not; here the process is its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_for_rollouts"]

# How many objects more than before, collections of the youngest, and of the young, make the next one due. Python's own
# (700, 10, 10) are for objects that mostly die young. What belongs to a rollout, a hundred objects, lives until that is
# over: with thousands in flight each is looked at again and again, and is a quarter of the process's time.
_THRESHOLDS = (10_000, 50, 10)


@contextmanager
def collector_for_rollouts() -> Iterator[None]:
    """In the block, the collector passes over all that is there when it begins, and looks less often at the rest.

    Imports and servers leave some hundred thousand objects that stay as long as the process. Each full collection goes
    over them, and stops every rollout meanwhile: 60 to 100 ms on a slow machine, for nothing.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
