"""State between tool calls: a counter that belongs to one session."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from ..errors import RequestRefused
from ..servers import RequestBody, ResourcesServer, tool, tools_of
from ._packaged import packaged_rows

__all__ = ["Counter", "SessionStateManagement"]

GENERATED = 18  # rows made by chance, after those that were written


@attrs.define
class Counter:
    """The state of one session."""

    count: int = 0


class SessionStateManagement(ResourcesServer):
    """A counter to be raised as told. Reward 1 when it ends at the row's ``expected_count``, else 0.

    A row has ``initial_count`` (default 0) and ``expected_count``, both whole numbers.

    Source of the rule: NeMo Gym's ``example_session_state_mgmt``.
    """

    description = "Raise a counter that is kept between tool calls"
    domain = "agent"
    session_type = Counter
    reverify_mode = "unsupported"

    @classmethod
    def rows(cls, config: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        yield from packaged_rows("example_session_state_mgmt")
        tools = [tool.definition for tool in tools_of(cls).values()]
        for number in range(GENERATED):
            yield _row(random.Random(f"example_session_state_mgmt:{number}"), tools)

    async def seed_session(self, session: Counter, row: RequestBody) -> None:
        initial = row.get("initial_count", 0)
        if not isinstance(initial, int):
            raise RequestRefused(422, f"initial_count must be a whole number, not {initial!r}")
        session.count = initial

    @tool
    async def increment_counter(self, session: Counter, count: int) -> dict[str, bool]:
        """Add a whole number to the counter."""
        session.count += count
        return {"success": True}

    @tool
    async def get_counter_value(self, session: Counter) -> dict[str, int]:
        """The counter's present value."""
        return {"count": session.count}

    async def verify(self, session: Counter, request: RequestBody) -> float:
        return float(session.count == request.get("expected_count"))


def _row(rng: random.Random, tools: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    initial = rng.randint(-20, 200)
    steps = [rng.choice((-1, 1, 1)) * rng.randint(1, 60) for _ in range(rng.randint(1, 6))]
    told = ", then ".join(f"{'lower' if step < 0 else 'raise'} it by {abs(step)}" for step in steps)
    prompt = f"There is a counter. Please {told}. To lower it, add a negative number. Then tell me its value."
    given = {"input": [{"role": "user", "content": prompt}], "tools": list(tools)}
    return {"responses_create_params": given, "initial_count": initial, "expected_count": initial + sum(steps)}
