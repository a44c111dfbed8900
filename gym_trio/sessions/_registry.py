"""`SessionRegistry`: who owns the sessions of one server, from their seed to their receipt."""

from __future__ import annotations

import secrets
from collections.abc import Hashable
from typing import Any, cast

import trio

from gym_trio.errors import SessionsDraining

from ._conflicts import ConflictReason, conflict
from ._opening import carry_out
from ._phases import CLOSED, CLOSING, OPENED, READY
from ._records import (
    Close,
    DrainReport,
    Open,
    Opening,
    Receipt,
    Session,
    State,
)
from ._table import SessionTable


class SessionRegistry(SessionTable[State]):
    """The sessions of one server; open it with `open_session_registry`.

    A session is *seeded* under an id that its caller chose, or *minted*: opened under an id of the registry's making.
    Seeded sessions leave receipts; minted ones, of which there are thousands per second, leave nothing.

    **Ownership**: opens and closes run in the registry's nursery. A caller only waits for them, so its cancellation
    ends its waiting; an open that nobody waits for any more is cancelled, a close never is.
    """

    # --- seeded sessions ---

    def admit(self) -> None:
        """Nothing while new sessions are taken; for callers that make something before they open a session around it.

        **Errors**: `SessionsDraining`.
        """
        if self._drainer.draining:
            raise SessionsDraining(f"{self.name} is shutting down and takes no new sessions")

    async def seed(
        self,
        session_id: str,
        *,
        fingerprint: Hashable,
        open: Open[State],
        close: Close[State] | None,
        episode: Hashable = None,
    ) -> State:
        """Open the session ``session_id``, or join its running open, or give the state that an equal seed has made.

        ``open`` runs once, in the registry. When it raises, or is cancelled, the id is spent and what it handed over
        with `SessionSetupError` is closed at once through ``close``.

        **Cancellation**: an open whose last waiter leaves is cancelled, and what it made is closed. A caller that is
        cancelled already starts nothing.

        **Errors**: what ``open`` raised; `SessionConflict` with its ``reason``; `SessionsDraining`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        session = self._sessions.get(session_id)
        if session is None:
            session = self._start_seed(session_id, fingerprint, episode, open, close)
        elif session.phase in (CLOSING, CLOSED):
            raise conflict(session_id, ConflictReason(session.phase.value))
        elif (session.fingerprint, session.episode) != (fingerprint, episode) or session.opening is None:
            raise conflict(session_id, ConflictReason.OTHER_SEED)
        opening = cast(Opening, session.opening)
        opening.waiters += 1
        try:
            if opening.done.is_set():
                await trio.lowlevel.checkpoint()
            else:
                await opening.done.wait()
        finally:
            opening.waiters -= 1
            if not opening.waiters and not opening.done.is_set():
                self._closer.begin(session, stop_opening=True)
        return self._seeded(session, opening)

    def _start_seed(
        self,
        session_id: str,
        fingerprint: Hashable,
        episode: Hashable,
        open: Open[State],
        close: Close[State] | None,
    ) -> Session[State]:
        self.admit()
        opening = Opening()
        session = Session(
            session_id,
            close=close,
            episode=episode,
            fingerprint=fingerprint,
            opening=opening,
            created_at=self._now(),
            idle_ttl_seconds=self.timeouts.idle_ttl_seconds,
            absolute_ttl_seconds=self.timeouts.absolute_ttl_seconds,
        )
        self._sessions[session_id] = session
        if episode is not None:
            self.claims.add_session(episode, session_id)
        self._nursery.start_soon(self._open, session, opening, open, name=f"open of session {session_id}")
        return session

    def _seeded(self, session: Session[State], opening: Opening) -> State:
        # Only this record is asked: meanwhile it may have been closed, have expired and been replaced under its id.
        if opening.error is not None:
            raise opening.error
        if session.phase is READY:
            return cast(State, session.state)
        if self._drainer.draining:
            raise SessionsDraining(f"{self.name} is shutting down; the seed of {session.session_id!r} was withdrawn")
        raise conflict(session.session_id, ConflictReason(session.phase.value))

    async def _open(self, session: Session[State], opening: Opening, open: Open[State]) -> None:
        await carry_out(session, opening, open)
        if session.phase is READY:
            self._make_ready(session, self._now())
        else:
            # Also when the close that stopped it has been cut meanwhile: what it made must not wait for a caller.
            await self._closer.adopt(session, self._closer.begin(session))

    async def close(self, session_id: str, *, episode: Hashable = None) -> Receipt:
        """Close ``session_id``: start its close, join the one that runs, or give the stored receipt.

        An open that still runs is waited for, within the close's own time, so that the close has a whole state. An id
        that is not known is spent: a seed that arrives later is refused.

        **Cancellation**: ends the waiting alone; the close goes on and its receipt is stored.

        **Errors**: `SessionConflict` for another episode; `SessionCloseFailed` when the close raised or was cut by its
        deadline: there is no receipt, the state is kept, and a further call tries again.
        """
        session = self._sessions.get(session_id)
        if session is None:
            session = self._fence(session_id, episode)
        if session.episode != episode and session.episode is not None:
            raise conflict(session_id, ConflictReason.OTHER_EPISODE)
        if session.receipt is not None:
            await trio.lowlevel.checkpoint()
            return session.receipt
        return await self._closer.join(session, self._closer.begin(session))

    def _fence(self, session_id: str, episode: Hashable) -> Session[State]:
        now = self._now()
        session: Session[State] = Session(session_id, episode=episode, created_at=now, phase=CLOSED)
        session.receipt = Receipt(session_id, had_state=False)
        self._sessions[session_id] = session
        self._store_receipt(session)
        return session

    # --- minted sessions ---

    def open_nowait(self, state: State, close: Close[State] | None = None, *, session_id: str | None = None) -> str:
        """Open a session around ``state`` and give its id, which cannot be guessed.

        ``session_id`` is an id that the caller has drawn itself, to be able to close what it never hears of.

        **Errors**: `SessionsDraining`; `SessionConflict` for a ``session_id`` that is known: in use, or closed already.
        """
        self.admit()
        known = self._sessions.get(session_id) if session_id is not None else None
        if known is not None:
            raise conflict(known.session_id, ConflictReason.CLOSED)
        now = self._now()
        # To name these as arguments takes longer than to set them.
        session = Session(session_id or secrets.token_urlsafe(18), close)
        session.minted, session.state, session.created_at = True, state, now
        session.idle_ttl_seconds = self.timeouts.minted_idle_ttl_seconds
        session.absolute_ttl_seconds = self.timeouts.minted_absolute_ttl_seconds
        session.happened(OPENED)
        self._sessions[session.session_id] = session
        self._make_ready(session, now)
        return session.session_id

    async def release(self, session_id: str) -> Any:
        """Close a session, whatever its episode, and give what its close returned; None when it is gone already.

        For a minted session without a close of its own this costs no task.

        **Cancellation** and **Errors**: as for `close`.
        """
        session = self._sessions.get(session_id)
        if session is None or session.receipt is not None:
            await trio.lowlevel.checkpoint()
            return None if session is None or session.receipt is None else session.receipt.value
        return (await self._closer.join(session, self._closer.begin(session))).value

    def release_soon(self, session_id: str) -> None:
        """Start the close of a session, if it is there, and do not wait for it."""
        session = self._sessions.get(session_id)
        if session is not None and session.receipt is None:
            self._closer.begin(session)

    def release_nowait(self, session_id: str) -> bool:
        """Close a minted session that has no close of its own and that nobody uses; whether it was one."""
        session = self._sessions.get(session_id)
        if session is None or not session.minted or session.close is not None or session.users:
            return False
        if session.phase is READY:
            self._closer.begin_and_end(session)
        return session.receipt is not None

    # --- the whole registry ---

    async def drain(self) -> DrainReport:
        """Stop admission and close every session, all at once, under one ``session_close_timeout_seconds`` as a whole.

        Running closes are joined, running opens cancelled, failed closes tried again. What is not confirmed is in the
        report, keeps its state, and can still be closed. A call while a drain runs waits for that one's report.

        **Cancellation**: does not reach it; it is shielded and bounded by its deadline, and a little more while what
        was cut unwinds. Code that ignores its cancellation is named in the report and goes on in the nursery.
        """
        return await self._drainer.drain(self._live)

    def retire(self) -> None:
        """The nursery is about to close: from now on a close runs in the task that asks for it."""
        self._closer.retired = True
