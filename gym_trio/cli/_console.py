"""What the commands print, and where: results on standard output, everything else on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["complain", "print_json", "print_line", "print_table", "tell"]


def print_line(text: str = "") -> None:
    """One line of result."""
    print(text, flush=True)


def tell(text: str) -> None:
    """One line about what is going on."""
    print(text, file=sys.stderr, flush=True)


def complain(text: str, *, code: int) -> int:
    """One line about what went wrong; gives ``code`` back."""
    print(f"gym-trio: {' '.join(text.split())}", file=sys.stderr, flush=True)
    return code


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    import orjson

    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; the first column left, the others right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(file=sys.stdout, soft_wrap=not sys.stdout.isatty()).print(table)
