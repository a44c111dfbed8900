"""Rows from an iterable or an async iterable, one at a time, and what its end needs."""

from __future__ import annotations

import enum
import operator
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator, Sized
from typing import Any, Final

import trio
from trio.lowlevel import disable_ki_protection

from ..errors import UsageError

SOURCE_CLOSE_SECONDS: Final = 5.0


class End(enum.Enum):
    """What `RowSource.pull` returns when there is no more row."""

    END = enum.auto()


class RowSource:
    """Pulls rows. ``finite`` says that the source is known to come to an end by itself.

    **Ownership**: an async generator is closed with the source, because once a pull of it has been cancelled nobody can
    use it any more. A plain iterator that the caller passed stays the caller's: the source lets go of it and the next
    stream can go on with it. A generator that this source got from an iterable of the caller is closed.
    """

    def __init__(self, rows: Iterable[Any] | AsyncIterable[Any]) -> None:
        self._sync: Iterator[Any] | None = None
        self._async: AsyncIterator[Any] | None = None
        if isinstance(rows, AsyncIterable):
            self._async = aiter(rows)
        elif isinstance(rows, Iterable):
            self._sync = iter(rows)
        else:
            raise UsageError(f"rows must be an iterable or an async iterable of dicts, not {type(rows).__qualname__}")
        self._is_callers = self._sync is rows
        self.finite = isinstance(rows, Sized) or operator.length_hint(self._sync, -1) >= 0

    @disable_ki_protection  # what runs here is the caller's
    async def pull(self) -> Any:
        """The next row, or ``End.END``. Not a checkpoint for a plain iterable."""
        if self._sync is not None:
            return next(self._sync, End.END)
        if self._async is not None:
            return await anext(self._async, End.END)
        return End.END

    @disable_ki_protection
    async def aclose(self) -> None:
        """Let go of the rows that were not pulled.

        **Cancellation**: an async generator gets `SOURCE_CLOSE_SECONDS` for its cleanup, also in a cancelled scope.
        """
        plain, asynchronous = self._sync, self._async
        self._sync = self._async = None
        if isinstance(plain, Generator) and not self._is_callers:
            plain.close()
        del plain
        if isinstance(asynchronous, AsyncGenerator):
            with trio.move_on_after(SOURCE_CLOSE_SECONDS, shield=True):
                await asynchronous.aclose()
