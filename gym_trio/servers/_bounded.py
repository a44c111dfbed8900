"""`bounded`: a bound where there is one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import trio

from ..errors import FailureKind, RolloutFailure, Stage

__all__ = ["bounded"]

T = TypeVar("T")


def bounded(call: Coroutine[Any, Any, T], seconds: float | None, before: str, after: str) -> Coroutine[Any, Any, T]:
    """``call``, cut after ``seconds``. With None it is ``call`` itself: nothing waits around it for as long as it does.

    A scope is five objects and a place in trio's tree, for as long as a rollout waits inside of it.

    **Errors**: `RolloutFailure` (``agent_timeout``) that says ``before``, the seconds and ``after``.
    """
    return call if seconds is None else _cut(call, seconds, before, after)


async def _cut(call: Coroutine[Any, Any, T], seconds: float, before: str, after: str) -> T:
    with trio.move_on_after(seconds):
        return await call
    raise RolloutFailure(FailureKind.AGENT_TIMEOUT, f"{before} {seconds:g} s {after}", stage=Stage.AGENT)
