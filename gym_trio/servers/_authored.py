"""Calling what an author wrote: async or plain, and never the end of the server."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CoroutineType
from typing import Any

__all__ = ["authored"]


async def authored(method: Callable[..., Any], *arguments: Any) -> Any:
    """What ``method`` returns, awaited where it has to be.

    **Cancellation**: passes through.

    **Errors**: what it raises; a `SystemExit`, also one in a group, as `RuntimeError`, for it would end the server and
    all other rollouts, for one request.
    """
    try:
        found = method(*arguments)
        if type(found) is CoroutineType or inspect.isawaitable(found):  # nearly always the former
            return await found
        return found
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error
    except BaseExceptionGroup as error:
        if isinstance(error, Exception) or error.split((Exception, SystemExit))[1] is not None:
            raise
        raise RuntimeError(f"SystemExit, in a group: {error}") from error
