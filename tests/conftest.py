"""What tests of several rooms share."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
import trio

# Of the Pythons that `pythons.py` makes, which fixture gives which.
PYTHONS = {
    "python_of_openenv": "openenv",
    "python_of_tasksets": "verifiers",
    "python_of_classics": "classic verifiers",
}
MAKER = [sys.executable, str(pathlib.Path(__file__).with_name("pythons.py"))]
UNREACHABLE_CODE = 3
HELD_OPEN = pytest.StashKey[int]()


def given_python(name: str) -> str | None:
    """Return the one that the user has made and named, as in ``GYM_TRIO_OPENENV_PYTHON``."""
    return os.environ.get(f"GYM_TRIO_{name.upper().replace(' ', '_')}_PYTHON")


def pytest_configure() -> None:
    """Ctrl-C means what it means, also where the tests were started by something that ignores it: a shell's ``&``."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with the Pythons that will be wanted, behind the tests that come first."""
    asked = {fixture for item in session.items for fixture in getattr(item, "fixturenames", ())}
    wanted = [name for fixture, name in PYTHONS.items() if fixture in asked and not given_python(name)]
    if wanted and not session.config.option.collectonly:
        ends, session.config.stash[HELD_OPEN] = os.pipe()
        command = [*MAKER, "--behind", *wanted]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # who then wants one is told
        subprocess.run(command, stdin=ends, start_new_session=True, check=True, **quiet)
        os.close(ends)


def pytest_unconfigure(config: pytest.Config) -> None:
    """What still goes on behind ends with the tests."""
    if HELD_OPEN in config.stash:
        os.close(config.stash[HELD_OPEN])


@pytest.fixture(scope="session")
def made_python() -> Callable[[str], str]:
    """``made_python(name)``: the Python of `PYTHONS`, given or made once and kept; waits until it is made."""

    def place(name: str) -> str:
        if given := given_python(name):
            return given
        made = subprocess.run([*MAKER, name], capture_output=True, text=True, check=False)
        if made.returncode == UNREACHABLE_CODE:
            pytest.skip(f"the registry of packages cannot be reached: {made.stderr[-300:]}")
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    return place


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope when its task has made a number of steps: while it is parked, or as it is about to go on."""

    def __init__(self, step: int, *, parked: bool) -> None:
        self.scope = trio.CancelScope()
        self.steps = 0
        self._step = step
        self._parked = parked
        self._task: trio.lowlevel.Task | None = None

    def __enter__(self) -> CancelAtStep:
        self._task = trio.lowlevel.current_task()
        trio.lowlevel.add_instrument(self)
        self.scope.__enter__()
        return self

    def __exit__(self, *exc: object) -> bool | None:
        trio.lowlevel.remove_instrument(self)
        return self.scope.__exit__(*exc)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self.steps += 1
            if not self._parked and self.steps == self._step:
                self.scope.cancel()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task and self._parked and self.steps == self._step - 1:
            self.scope.cancel()


@pytest.fixture(scope="session")
def cancel_at_step() -> type[CancelAtStep]:
    return CancelAtStep
