"""Who is at work on which rollout attempt: running `/run` requests and live sessions, findable by their key."""

from __future__ import annotations

from collections.abc import Hashable
from types import TracebackType

import attrs
import trio


class RunClaim:
    """One running request, for the length of a ``with`` block.

    ``stopped`` is True when somebody has asked it to stop and it has been cut by that.
    """

    __slots__ = ("_key", "_runs", "asked", "scope")

    def __init__(self, runs: dict[Hashable, list[RunClaim]], key: Hashable) -> None:
        self._runs = runs
        self._key = key
        self.scope = trio.CancelScope()
        self.asked = False

    def __enter__(self) -> RunClaim:
        self._runs.setdefault(self._key, []).append(self)
        self.scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            return self.scope.__exit__(kind, error, traceback)
        finally:
            claims = self._runs[self._key]
            claims.remove(self)
            if not claims:
                del self._runs[self._key]

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

    def run(self, key: Hashable) -> RunClaim:
        """Claim ``key`` for the block, which `stop` can cancel; afterwards ``claim.stopped`` says whether it did."""
        return RunClaim(self._runs, key)

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
