"""What the commands print, and where: results on standard output, everything else on standard error.

Who reads may go away before a command has ended: ``head`` has its lines, a terminal is closed, Ctrl-C ends ``tee`` too.
No run ends with its reader; but a result that was to be kept and cannot be, as on a full disk, is an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

from ..errors import RunError

__all__ = ["complain", "prepare_streams", "print_json", "print_line", "print_table", "tell"]

UNBOUNDED = 100_000
# A terminal obeys them. Models and servers write what is shown here, and must not move its cursor or set its title.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def prepare_streams() -> None:
    """Standard output and error as the commands need them: there, even if the process was given none; for every
    character; and with a reader that may go away.
    """
    for name, is_kept in (("stdout", True), ("stderr", False)):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115  it is the process's
        stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, _Stream(stream, is_kept=is_kept))


class _Stream:
    """A text stream that flushes what it writes. **Errors**: `RunError` when what was to be kept cannot be."""

    def __init__(self, stream: IO[str], *, is_kept: bool) -> None:
        self._stream = stream
        self._is_kept = is_kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            # What is still in its buffer goes nowhere too; Python would try to write it at its end, and fail.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            if self._is_kept and not isinstance(error, BrokenPipeError):
                raise RunError(f"standard output: cannot be written ({error.strerror})") from None
        return len(text)

    def flush(self) -> None:
        """All that was written has been flushed."""


def print_line(text: str = "") -> None:
    """One line of result."""
    print(text.translate(_CONTROLS), flush=True)


def tell(text: str) -> None:
    """One line about what is going on."""
    print(text.translate(_CONTROLS), file=sys.stderr, flush=True)


def complain(text: str, *, code: int) -> int:
    """One line about what went wrong; gives ``code`` back."""
    tell(f"gym-trio: {' '.join(text.split())}")
    return code


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    from ..collection import dump_json

    sys.stdout.write(dump_json(value).decode())
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; the first column left, the others right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell.translate(_CONTROLS) for cell in row))
    # A file or a pipe has no width: nothing is folded there, so that every name and URL can be found in it.
    width = None if sys.stdout.isatty() else UNBOUNDED
    # Brackets and colons in the names of metrics and agents are no markup.
    Console(file=sys.stdout, width=width, markup=False, emoji=False).print(table)
