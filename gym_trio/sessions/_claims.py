"""Who is at work on which rollout attempt: running `/run` requests and live sessions, findable by their key."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator

import attrs
import trio


@attrs.define(eq=False)
class RunClaim:
    """One running request. ``stopped`` is True when somebody has asked it to stop and it has been cut by that."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    asked: bool = False

    @property
    def stopped(self) -> bool:
        return self.asked and self.scope.cancelled_caught


@attrs.frozen
class Claimed:
    """What is at work under one key, as a snapshot."""

    runs: int = 0
    sessions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.runs or self.sessions)


class Claims:
    """The claims of one server. A key is whatever names a rollout attempt; the same attempt may be claimed twice.

    **Ownership**: it owns nothing; a claim ends with the block or the session that made it.
    """

    def __init__(self) -> None:
        self._runs: dict[Hashable, list[RunClaim]] = {}
        self._sessions: dict[Hashable, dict[str, None]] = {}

    @contextlib.contextmanager
    def run(self, key: Hashable) -> Iterator[RunClaim]:
        """Claim ``key`` for the block, which `stop` can cancel; afterwards ``claim.stopped`` says whether it did."""
        claim = RunClaim()
        self._runs.setdefault(key, []).append(claim)
        try:
            with claim.scope:
                yield claim
        finally:
            claims = self._runs[key]
            claims.remove(claim)
            if not claims:
                del self._runs[key]

    def stop(self, key: Hashable) -> bool:
        """Cancel the runs under ``key``; False when there is none that had not been asked before."""
        fresh = [claim for claim in self._runs.get(key, ()) if not claim.asked]
        for claim in fresh:
            claim.asked = True
            claim.scope.cancel()
        return bool(fresh)

    def find(self, key: Hashable) -> Claimed:
        return Claimed(len(self._runs.get(key, ())), tuple(self._sessions.get(key, ())))

    @property
    def running(self) -> int:
        return sum(map(len, self._runs.values()))

    def add_session(self, key: Hashable, session_id: str) -> None:
        self._sessions.setdefault(key, {})[session_id] = None

    def drop_session(self, key: Hashable, session_id: str) -> None:
        sessions = self._sessions.get(key)
        if sessions is not None:
            sessions.pop(session_id, None)
            if not sessions:
                del self._sessions[key]
