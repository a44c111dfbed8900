"""What the command line does to Python's garbage collector. A library must not; here the process is its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["startup_kept_apart"]


@contextmanager
def startup_kept_apart() -> Iterator[None]:
    """In the block, the collector passes over all that is there when it begins.

    Imports and servers leave some hundred thousand objects that stay as long as the process. Each full collection goes
    over them, and stops every rollout meanwhile: 60 to 100 ms on a slow machine, for nothing.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
