"""Calling what an author wrote: async or plain, and never the end of the server."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any

import trio

__all__ = ["authored", "pending", "sparing"]

_ENDS_MORE = (KeyboardInterrupt, trio.Cancelled, GeneratorExit)


async def authored(method: Callable[..., Any], *arguments: Any) -> Any:
    """What ``method`` returns, awaited where it has to be; for a task that is no request's.

    **Cancellation**: passes through.

    **Errors**: what it raises, as by `sparing`.
    """
    try:
        return await pending(method(*arguments))
    except Exception:
        raise
    except BaseException as error:  # noqa: BLE001  what must end more than this is raised again
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
    """``error`` as one that ends what was asked for alone. What is no `Exception`, also in a group, comes as a
    `RuntimeError`: a `SystemExit`, a panic of a library in Rust, or asyncio's cancellation would end the server and all
    other rollouts, for one request.

    **Errors**: ``error`` itself, when it must end more: an interrupt, a cancellation, a group with one of them.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, BaseExceptionGroup):
        if error.split(_ENDS_MORE)[0] is not None:
            raise error
        made = RuntimeError(f"{_name_in(error)}, in a group: {error}")
    elif isinstance(error, _ENDS_MORE):
        raise error
    else:
        made = RuntimeError(f"{type(error).__name__}: {error}")
    made.__cause__ = error
    return made


def _name_in(group: BaseExceptionGroup[BaseException]) -> str:
    """Of the first in ``group`` that is no `Exception`."""
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = next(one for one in leaf.exceptions if not isinstance(one, Exception))
    return type(leaf).__name__
