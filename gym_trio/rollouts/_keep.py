"""Exceptions that are kept until the tasks beside them have ended, and raised then."""

from __future__ import annotations

from types import TracebackType

import trio


class Keep:
    """Like `contextlib.suppress`, but what it suppressed can be taken out and raised later."""

    __slots__ = ("_error", "_types")

    def __init__(self, *types: type[BaseException]) -> None:
        self._types = types
        self._error: BaseException | None = None

    def __enter__(self) -> Keep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, self._types):
            return False
        self._error = error
        return True

    def take(self) -> BaseException | None:
        """What was suppressed, once: keeping it would tie its traceback's frames into a cycle."""
        error, self._error = self._error, None
        return error


def raise_what_ended(block: BaseException | None, tasks: BaseException | None, pending: BaseException | None) -> None:
    """Raise what ended a block: its own exception as itself, or what its tasks raised, or what was still to be said.

    ``tasks`` came out of a nursery, whose groups are taken apart. Cancelled gives way to anything else. Only what a
    block and its tasks raised independently of each other becomes a group, so that neither is lost.
    """
    loud = [] if block is None or _is_cancellation(block) else [block]
    loud += [error for error in _leaves(tasks) if not isinstance(error, trio.Cancelled)]
    try:
        if len(loud) > 1:
            raise BaseExceptionGroup("a block over a rollout stream and its tasks ended at once", loud)
        for error in (*loud, block, *_leaves(tasks), pending):
            if error is not None:
                raise error
    finally:
        loud.clear()
        error = block = tasks = pending = None


def _leaves(error: BaseException | None) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [] if error is None else [error]


def _is_cancellation(error: BaseException) -> bool:
    return all(isinstance(leaf, trio.Cancelled) for leaf in _leaves(error))
