"""Which of several endpoints a call goes to."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Literal

from ._endpoint import Endpoint

__all__ = ["Router", "Routing"]

Routing = Literal["sticky", "least_busy"]


class Router:
    """Chooses an endpoint for each attempt of a call.

    ``sticky`` keeps the calls of a rollout on one endpoint, whose cache knows its prefix; ``least_busy`` takes the one
    with the fewest calls in flight. A further attempt goes to another endpoint where there is one.
    """

    def __init__(self, endpoints: Sequence[Endpoint], routing: Routing) -> None:
        self._endpoints = endpoints
        self._routing = routing
        self._turn = itertools.count()

    def choose(self, rollout_id: str | None, failed: Sequence[Endpoint]) -> Endpoint:
        """The endpoint for the next attempt of a call that has ``failed`` at some."""
        fresh = [endpoint for endpoint in self._endpoints if endpoint not in failed]
        # After a round over all of them they are all open to it again, but for the one that failed last.
        usable = fresh or [endpoint for endpoint in self._endpoints if endpoint is not failed[-1]] or self._endpoints
        if self._routing == "sticky" and rollout_id is not None:
            # By weight and not by position: an endpoint that fell out moves only the rollouts that were on it.
            return max(usable, key=lambda endpoint: zlib.crc32(f"{rollout_id} {endpoint.url}".encode()))
        turn = next(self._turn)
        turned = [usable[(turn + offset) % len(usable)] for offset in range(len(usable))]
        return min(turned, key=lambda endpoint: endpoint.limiter.in_flight)
