"""The table of commands, and how an error becomes a line and an exit code."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cyclopts

from .. import __version__
from ..errors import GymError, RunInterrupted, UsageError
from ._console import complain, prepare_streams

__all__ = ["Exit", "build_app", "main"]

# Command → where its function is and what the overview says of it. The function is imported when it is called.
COMMANDS: dict[str, tuple[str, str]] = {
    "eval run": ("_eval_run:eval_run", "Run rollouts of an environment and score them"),
    "eval aggregate": ("_eval_files:aggregate", "Aggregate metrics of one or more rollout files"),
    "eval reverify": ("_reverify:reverify", "Compute the rewards of recorded rollouts again, without a model"),
    "eval profile": ("_eval_files:profile", "Per-task statistics of a run"),
    "eval compare": ("_eval_files:compare", "Compare two runs, task by task"),
    "eval health-check": ("_eval_files:health_check", "Find rollouts whose evidence is broken"),
    "env start": ("_env_start:env_start", "Start a fleet of servers as managed processes"),
    "env stop": ("_env_status:env_stop", "Stop a running fleet"),
    "env status": ("_env_status:env_status", "Servers, health, sessions and uptime of a running fleet"),
    "env init": ("_env_init:env_init", "Write a new environment with rows, a test and a README"),
    "env test": ("_env_test:env_test", "Run an environment's own tests and the contract checks"),
    "env validate": ("_env_test:env_validate", "Check rows against an environment's schema"),
    "serve": ("_serve:serve_command", "Serve one agent, environment or model server"),
    "list": ("_list:list_command", "List environments, agents and models, or describe one"),
    "view": ("_view:view", "Look at the rollouts of a run"),
}
GROUPS = {
    "eval": "Run and read evaluations",
    "env": "Start, stop and write environments",
}


class Exit(Exception):
    """Raised by a command to end with ``code`` after it has said everything itself."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def build_app() -> cyclopts.App:
    """The command tree. Only the functions of the command that is called are imported."""
    app = cyclopts.App(
        name="gym-trio",
        help="Reinforcement-learning rollouts on trio, where stopping is exact.",
        version=__version__,
        help_format="plaintext",
    )
    groups = {name: cyclopts.App(name=name, help=text, help_format="plaintext") for name, text in GROUPS.items()}
    for group in groups.values():
        app.command(group)
    for path, (_, text) in COMMANDS.items():
        group_name, _, leaf = path.rpartition(" ")
        parent = groups[group_name] if group_name else app
        parent.command(cyclopts.App(name=leaf, help=text, help_format="plaintext"))
    return app


def load_command(path: str) -> Callable[..., Any]:
    """The function behind a command."""
    module_name, _, function = COMMANDS[path][0].partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"gym_trio.cli.{module_name}"), function)
    return found


def _attach(app: cyclopts.App, words: Sequence[str]) -> None:
    # The default function of a leaf decides its options; attaching it to the called leaf alone keeps start-up light.
    for length in (2, 1):
        path = " ".join(words[:length])
        if path in COMMANDS:
            leaf = app
            for word in words[:length]:
                leaf = leaf[word]
            leaf.default(load_command(path))
            return


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line. The exit code; what went wrong has been said on standard error.

    A command sets logging up for itself; afterwards it is as it was.
    """
    with _logging_kept():
        return _run_command(arguments)


@contextmanager
def _logging_kept() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


def _run_command(arguments: Sequence[str]) -> int:
    app = build_app()
    words = [word for word in arguments if not word.startswith("-")][:2]
    try:
        _attach(app, words)
        app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.CycloptsError as error:
        return complain(str(error), code=2)
    except Exit as ended:
        return ended.code
    except UsageError as error:
        return complain(str(error), code=2)
    except RunInterrupted as error:
        return complain(str(error), code=error.exit_code)
    except GymError as error:
        return complain(str(error), code=1)
    except KeyboardInterrupt:
        return complain("interrupted", code=130)
    return 0


def main() -> None:
    """The entry point of ``gym-trio``."""
    prepare_streams()
    sys.exit(run_command(sys.argv[1:]))
