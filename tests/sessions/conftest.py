"""An author whose opens and closes do what the test says, and who keeps books."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from gym_trio.errors import SessionSetupError


@attrs.define
class Author:
    """User code behind a registry: each open makes a numbered state, each close is written down."""

    open_seconds: float = 0.0
    close_seconds: float = 0.0
    fail_closes: int = 0  # so many closes raise
    partial_when_cancelled: bool = False
    opens: int = 0
    made: list[str] = attrs.field(factory=list)
    closing: list[str] = attrs.field(factory=list)  # a close of it has begun, once per begin
    closed: list[str] = attrs.field(factory=list)
    cancelled_opens: int = 0
    cancelled_closes: int = 0

    async def open(self) -> str:
        self.opens += 1
        state = f"state-{self.opens}"
        try:
            await trio.sleep(self.open_seconds)
        except trio.Cancelled:
            self.cancelled_opens += 1
            if self.partial_when_cancelled:
                self.made.append(state)
                raise SessionSetupError(state) from None
            raise
        self.made.append(state)
        return state

    async def close(self, state: str) -> str:
        self.closing.append(state)
        try:
            await trio.sleep(self.close_seconds)
        except trio.Cancelled:
            self.cancelled_closes += 1
            raise
        if self.fail_closes:
            self.fail_closes -= 1
            raise RuntimeError("the provider is down")
        self.closed.append(state)
        return f"observed {state}"


@attrs.define
class Calls:
    """Tasks whose results or errors are kept by name, and which can be made to leave."""

    nursery: trio.Nursery
    results: dict[str, Any] = attrs.field(factory=dict)
    scopes: dict[str, trio.CancelScope] = attrs.field(factory=dict)

    def start(self, name: str, call: Callable[..., Any], *args: Any, **options: Any) -> None:
        scope = self.scopes[name] = trio.CancelScope()

        async def run() -> None:
            with scope:
                try:
                    self.results[name] = await call(*args, **options)
                except Exception as error:  # noqa: BLE001  the test looks at it
                    self.results[name] = error
            if scope.cancelled_caught:
                self.results[name] = "left"

        self.nursery.start_soon(run)

    async def leave(self, name: str) -> None:
        self.scopes[name].cancel()
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
def author() -> Author:
    return Author()


@pytest.fixture
async def calls(nursery: trio.Nursery) -> Calls:
    return Calls(nursery)
