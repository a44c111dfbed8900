"""The command line: the only place that prints, reads the environment or exits.

Each command is one file; ``_app.py`` lists them. Exit codes: 0 complete, 1 failed, 2 usage, 130 interrupted,
143 terminated.
"""

from __future__ import annotations

from ._entry import main, serve_managed

__all__ = ["main", "serve_managed"]
