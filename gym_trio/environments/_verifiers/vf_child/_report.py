"""What goes wrong, by whose doing; and what a driver of environments is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

__all__ = ["AGENT", "VERIFICATION", "Driver", "RolloutFailed", "Unusable", "described"]

AGENT, VERIFICATION = "agent", "verification"
MODEL = "policy"  # the model server puts the name of its own model in its place


class Unusable(Exception):
    """The environment cannot be used at all; the message is one line for its user."""


class RolloutFailed(Exception):
    """One rollout has no reward. ``stage`` says in which part; ``exception_type`` names what was raised."""

    def __init__(self, message: str, *, stage: str, exception_type: str) -> None:
        super().__init__(message)
        self.stage = stage
        self.exception_type = exception_type


class Driver(Protocol):
    """One loaded environment, of either kind."""

    def rows(self, split: str | None, limit: int | None) -> Iterator[dict[str, Any]]:
        """Each example as ``{"messages": chat messages, "example": JSON}``. **Errors**: `Unusable`."""
        ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """What the environment needs while rollouts run."""
        ...

    async def roll(
        self, example: dict[str, Any], url: str, sampling: dict[str, Any], enter: Callable[[str], None]
    ) -> dict[str, Any]:
        """One rollout, its model calls at ``url``. ``enter`` is told each stage that it comes to.

        Returns ``reward``, ``metrics``, ``truncated`` and ``stop_condition``. **Errors**: `RolloutFailed`.
        """
        ...


def described(error: BaseException) -> str:
    """``error`` with what it was raised from, in one line: the outer ones often say nothing themselves."""
    parts: list[str] = []
    found: BaseException | None = error
    while found is not None and len(parts) < 5:
        text = " ".join(str(found).split())
        parts.append(f"{type(found).__name__}: {text}" if text else type(found).__name__)
        found = found.__cause__
    return " from ".join(parts)
