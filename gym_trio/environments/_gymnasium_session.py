"""`GymnasiumSession`: one ``gymnasium.Env`` and whose turn it is to call it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

__all__ = ["GymnasiumSession"]

T = TypeVar("T")


@attrs.define(eq=False)
class GymnasiumSession:
    """The state of one session. Its methods block: they run in a thread, and never two at once.

    **Ownership**: the session owns ``env``. A call that was given up by its task still ends before `close` begins.
    """

    env: Any = None
    _turn: threading.Lock = attrs.field(factory=threading.Lock)
    _closed: bool = False

    def begin(self, make: Callable[[], Any], seed: int) -> Any:
        """Make the environment, in place of an earlier one, and reset it."""
        with self._turn:
            if self.env is not None:
                self.env.close()
                self.env = None
            made = make()
            if self._closed:  # its task was cancelled, and the session closed meanwhile
                made.close()
                raise RuntimeError("the session has been closed")
            self.env = made
            return made.reset(seed=seed)

    def step(self, action: Any) -> Any:
        with self._turn:
            return self.env.step(action)

    def look(self, describe: Callable[[Any, Any], T], observation: Any) -> T:
        with self._turn:
            return describe(self.env, observation)

    def close(self) -> None:
        with self._turn:
            self._closed = True
            if self.env is not None:
                self.env.close()
