"""`SessionTable`: which sessions there are, what falls due, and how they are found."""

from __future__ import annotations

import logging
import math
from typing import Generic, cast

import trio

from ._claims import Claims
from ._closing import Closer
from ._conflicts import ConflictReason, conflict
from ._draining import Drainer
from ._phases import CLOSED, READY, SEEDING, SessionPhase
from ._reaper import Reaper
from ._records import RegistryStatistics, Session, SessionUse, State, count_phases
from ._timeouts import SessionTimeouts

logger = logging.getLogger("gym_trio.sessions")


class SessionTable(Generic[State]):
    """The sessions of one server by id, from their seed to the expiry of their receipt.

    **Ownership**: closes run in ``nursery``.
    """

    def __init__(self, nursery: trio.Nursery, name: str, timeouts: SessionTimeouts) -> None:
        self.name = name
        self.timeouts = timeouts
        self.claims = Claims()
        self._nursery = nursery
        self._now = trio.lowlevel.current_clock().current_time  # `trio.current_time` looks it up again each time
        self._sessions: dict[str, Session[State]] = {}
        self._closer: Closer[State] = Closer(nursery, timeouts.session_close_timeout_seconds, self._on_confirmed)
        self._reaper: Reaper[State] = Reaper(self._on_due)
        self._opened = 0
        self._expired = 0
        self._drainer: Drainer[State] = Drainer(name, self._closer)

    def __repr__(self) -> str:
        now = self.statistics()
        return (
            f"<SessionRegistry {self.name}: {now.seeding} seeding, {now.ready} ready, {now.closing} closing, "
            f"{now.receipts} receipts>"
        )

    def knows(self, session_id: str) -> bool:
        """Is it seeding, ready, closing, or closed with its receipt still there?"""
        return session_id in self._sessions

    def phase(self, session_id: str) -> SessionPhase | None:
        session = self._sessions.get(session_id)
        return None if session is None else session.phase

    def get(self, session_id: str) -> State:
        """The state of a session that is ready; this counts as use.

        **Errors**: `SessionConflict`: unknown, still seeding, closing or closed.
        """
        session = self._ready(session_id)
        session.last_used_at = self._now()
        return cast(State, session.state)

    def using(self, session_id: str) -> SessionUse[State]:
        """A context manager around `get`'s state; the session is not idle for as long as the block runs.

        **Errors**: as `get`, raised by this call and not on entering.
        """
        return SessionUse(self._ready(session_id), self._now)

    def _ready(self, session_id: str) -> Session[State]:
        session = self._sessions.get(session_id)
        if session is None or session.phase is SEEDING:
            raise conflict(session_id, ConflictReason.UNKNOWN)
        if session.phase is not READY:
            raise conflict(session_id, ConflictReason(session.phase.value))
        return session

    def _make_ready(self, session: Session[State], now: float) -> None:
        self._opened += 1
        session.ready_at = session.last_used_at = now
        self._reaper.watch(session, now)

    def _on_confirmed(self, session: Session[State]) -> None:
        if session.episode is not None:
            self.claims.drop_session(session.episode, session.session_id)
        if session.minted:
            del self._sessions[session.session_id]
        else:
            self._store_receipt(session)

    def _store_receipt(self, session: Session[State]) -> None:
        now = self._now()
        session.receipt_expires_at = now + self.timeouts.session_close_retry_window_seconds
        self._reaper.watch(session, now)

    def _on_due(self, session: Session[State]) -> None:
        if session.phase is CLOSED:
            session.receipt_expires_at = math.inf
            del self._sessions[session.session_id]
        else:
            logger.info("%s: session %s has outlived its time to live", self.name, session.session_id)
            self._expired += 1
            self._closer.begin(session)

    def statistics(self) -> RegistryStatistics:
        """A frozen snapshot; it walks over all sessions."""
        return RegistryStatistics(
            **count_phases(self._sessions.values(), self._now()),
            closes_running=len(self._closer.running),
            opened=self._opened,
            confirmed=self._closer.confirmed,
            failed_closes=self._closer.failed,
            expired=self._expired,
            draining=self._drainer.draining,
            last_drain=self._drainer.last_report,
        )

    def _live(self) -> list[Session[State]]:
        return [session for session in self._sessions.values() if session.phase is not CLOSED]

    async def reap(self) -> None:
        """Act on what falls due, until cancelled."""
        await self._reaper.run()
