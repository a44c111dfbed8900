"""What tests of several rooms share."""

from __future__ import annotations

import pytest
import trio


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
