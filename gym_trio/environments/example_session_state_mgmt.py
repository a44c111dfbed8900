"""State between tool calls: a counter that belongs to one session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from ..errors import RequestRefused
from ..servers import RequestBody, ResourcesServer, tool
from ._packaged import packaged_rows

__all__ = ["Counter", "SessionStateManagement"]


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
        return packaged_rows("example_session_state_mgmt")

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
