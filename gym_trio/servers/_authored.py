"""Calling what an author wrote: async or plain, and never the end of the server."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any

__all__ = ["authored", "pending", "sparing"]


async def authored(method: Callable[..., Any], *arguments: Any) -> Any:
    """What ``method`` returns, awaited where it has to be; for a task that is no request's.

    **Cancellation**: passes through.

    **Errors**: what it raises, as by `sparing`.
    """
    try:
        return await pending(method(*arguments))
    except (SystemExit, BaseExceptionGroup) as error:
        made = sparing(error)
    raise made


def pending(found: Any) -> Awaitable[Any]:
    """``found``, which a method returned that may be plain, as something to be awaited. A request's endpoint calls
    `sparing`; below it nothing stands between a coroutine and who awaits it.
    """
    return found if type(found) is CoroutineType or inspect.isawaitable(found) else _ready(found)


async def _ready(value: Any) -> Any:
    return value


def sparing(error: BaseException) -> Exception:
    """``error`` as one that ends what was asked for alone: a `SystemExit`, also one in a group, as `RuntimeError`. It
    would end the server and all other rollouts, for one request.

    **Errors**: ``error`` itself, when it must end more: an interrupt, a cancellation, a group with one of them.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, SystemExit):
        made = RuntimeError(f"SystemExit: {error}")
    elif isinstance(error, BaseExceptionGroup) and error.split((Exception, SystemExit))[1] is None:
        made = RuntimeError(f"SystemExit, in a group: {error}")
    else:
        raise error
    made.__cause__ = error
    return made
