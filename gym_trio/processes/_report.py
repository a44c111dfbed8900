"""What is said about servers that have ended."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import attrs

SHOWN_LINES = 20


@attrs.frozen
class ServerExit:
    """How one server ended.

    ``returncode`` is negative for a signal, and None when the process could not be collected within the bounds.
    ``escalated`` says that something of it had to be killed. ``reaped`` are the processes that were collected for it:
    first the server's own, then those of its descendants that were still there when it was stopped.
    """

    name: str
    pid: int | None
    returncode: int | None
    escalated: bool
    reaped: tuple[int, ...]


@attrs.frozen
class StopReport:
    """How every server of a supervisor ended, in the order in which they were started."""

    exits: tuple[ServerExit, ...]

    @property
    def escalated(self) -> bool:
        return any(each.escalated for each in self.exits)


def describe_returncode(returncode: int | None) -> str:
    """Say what a return code means."""
    if returncode is None:
        return "it has not ended"
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def with_last_lines(message: str, lines: Sequence[str], log_path: str | None) -> str:
    """Put the last lines that a server wrote under a message, and where all of them are."""
    if not lines:
        return message
    all_of_them = "" if log_path is None else f" (all are in {log_path})"
    return "\n".join([f"{message}; its last lines{all_of_them}:", *(f"    {line}" for line in lines[-SHOWN_LINES:])])
