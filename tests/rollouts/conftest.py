"""Rollouts that end when the test says so, and the accounts that every closed stream must show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import trio

from gym_trio.rollouts import RolloutAttempt, RolloutStream


class _Ending:
    """How one rollout is to end."""

    def __init__(self) -> None:
        self.decided = trio.Event()
        self.error: BaseException | None = None
        self.result: Any = None


class Scripted:
    """A ``run`` whose rollouts, told apart by ``row["i"]``, wait until the test ends them.

    Rollouts in ``stubborn`` do not end when they are cancelled, but stay in a shielded cleanup until `release`.
    """

    def __init__(self, stubborn: Iterable[int] = ()) -> None:
        self.started: list[int] = []
        self.ended: list[int] = []
        self.attempts: dict[int, RolloutAttempt] = {}
        self._stubborn = set(stubborn)
        self._endings: dict[int, _Ending] = {}
        self._releases: dict[int, trio.Event] = {}

    async def __call__(self, attempt: RolloutAttempt) -> Any:
        i = attempt.row["i"]
        self.started.append(i)
        self.attempts[i] = attempt
        ending = self._endings.setdefault(i, _Ending())
        try:
            await ending.decided.wait()
        finally:
            if i in self._stubborn and not ending.decided.is_set():
                with trio.CancelScope(shield=True):
                    await self._releases.setdefault(i, trio.Event()).wait()
            self.ended.append(i)
        if ending.error is not None:
            raise ending.error
        return ending.result

    def finish(self, i: int, result: Any = None) -> None:
        ending = self._endings.setdefault(i, _Ending())
        ending.result = {"reward": i} if result is None else result
        ending.decided.set()

    def fail(self, i: int, error: BaseException) -> None:
        ending = self._endings.setdefault(i, _Ending())
        ending.error = error
        ending.decided.set()

    def release(self, i: int) -> None:
        self._releases.setdefault(i, trio.Event()).set()


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def scripted_with() -> type[Scripted]:
    return Scripted


@pytest.fixture
def rows() -> Callable[[int], list[dict[str, Any]]]:
    """``rows(n)``: n rows that know their place."""
    return lambda count: [{"i": i} for i in range(count)]


@pytest.fixture
def balanced() -> Callable[[RolloutStream], None]:
    """Asserts that a closed stream has accounted for every row."""

    def check(stream: RolloutStream) -> None:
        s = stream.statistics()
        assert s.in_flight == 0
        assert s.ready == 0
        assert s.unfinished == len(stream.unfinished())
        assert s.pulled == s.delivered + s.discarded + s.unfinished, s

    return check
