"""Calling what an author wrote: async or plain, and never the end of the server."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

__all__ = ["EXITS", "authored", "refuse_exit"]

EXITS: Final = (SystemExit, BaseExceptionGroup)  # what `refuse_exit` has to look at


def refuse_exit(error: BaseException) -> None:
    """Raise a `SystemExit`, also one in a group, as `RuntimeError`; for anything else return.

    It would end the server and all other rollouts, for one request.
    """
    if isinstance(error, SystemExit):
        raise RuntimeError(f"SystemExit: {error}") from error
    only_exits = isinstance(error, BaseExceptionGroup) and error.split((Exception, SystemExit))[1] is None
    if only_exits and not isinstance(error, Exception):
        raise RuntimeError(f"SystemExit, in a group: {error}") from error


async def authored(method: Callable[..., Any], *arguments: Any) -> Any:
    """What ``method`` returns, awaited where it has to be.

    **Cancellation**: passes through.

    **Errors**: what it raises; a `SystemExit` as `RuntimeError`.
    """
    try:
        found = method(*arguments)
        return await found if inspect.isawaitable(found) else found
    except EXITS as error:
        refuse_exit(error)
        raise
