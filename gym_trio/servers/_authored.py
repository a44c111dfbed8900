"""Calling what an author wrote: async or plain, and never the end of the server."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

__all__ = ["EXITS_ARE_ERRORS", "authored"]


class _ExitsAreErrors:
    """A block that raises a `SystemExit`, also one in a group, as `RuntimeError`.

    It would end the server and all other rollouts, for one request.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, SystemExit):
            raise RuntimeError(f"SystemExit: {error}") from error
        only_exits = isinstance(error, BaseExceptionGroup) and error.split((Exception, SystemExit))[1] is None
        if only_exits and not isinstance(error, Exception):
            raise RuntimeError(f"SystemExit, in a group: {error}") from error


EXITS_ARE_ERRORS: Final = _ExitsAreErrors()


async def authored(method: Callable[..., Any], *arguments: Any) -> Any:
    """What ``method`` returns, awaited where it has to be.

    **Cancellation**: passes through.

    **Errors**: what it raises; a `SystemExit` as `RuntimeError`.
    """
    with EXITS_ARE_ERRORS:
        found = method(*arguments)
        return await found if inspect.isawaitable(found) else found
