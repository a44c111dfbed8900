"""`within`: a bound where there is one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

import trio

__all__ = ["within"]

_UNBOUNDED: Final = nullcontext()


def within(seconds: float | None) -> AbstractContextManager[object]:
    """A block that is left after ``seconds``, as by ``trio.move_on_after``; with None one that costs nothing.

    A scope is five objects and a place in trio's tree, for as long as a rollout waits inside of it.
    """
    return _UNBOUNDED if seconds is None else trio.move_on_after(seconds)
