"""Where the processes of the command line begin, before anything is imported that takes time.

Until a process hears SIGINT by itself it ends of it, as any other process does, and does not tell where it was.
"""

from __future__ import annotations

import signal

__all__ = ["main", "serve_managed"]


def main() -> None:
    """The entry point of ``gym-trio``."""
    before = signal.getsignal(signal.SIGINT)
    _end_at_interrupt()
    from ._app import main as run

    signal.signal(signal.SIGINT, before)
    run()


def serve_managed() -> None:
    """The process of one managed server. Its arguments are those of ``_worker``."""
    _end_at_interrupt()
    from ._worker import main as run

    run()


def _end_at_interrupt() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # who ignores it goes on ignoring it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
