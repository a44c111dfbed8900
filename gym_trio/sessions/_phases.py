"""The life of one session: its phases and the one function that moves between them."""

from __future__ import annotations

import enum

from gym_trio.errors import SessionError


class SessionPhase(enum.Enum):
    """Where a session is. A live session is in one of the first three; there is one per id."""

    SEEDING = "seeding"  # its open is running; there is no state to use yet
    READY = "ready"  # its state can be used
    CLOSING = "closing"  # it will never be used again; its close runs, or was tried and is not confirmed
    CLOSED = "closed"  # its close is confirmed; only the receipt is left


class Happening(enum.Enum):
    """What can happen to a session."""

    OPENED = "opened"  # open returned a state
    OPEN_FAILED = "open failed"  # open raised or was cancelled, perhaps handing over a partial state
    CLOSE_ASKED = "close asked"  # by a caller, the reaper or the drain, first or again
    CLOSE_FAILED = "close failed"  # it raised or was cut by a deadline; the state is kept
    CLOSE_CONFIRMED = "close confirmed"  # it returned in time


_MOVES = {
    (SessionPhase.SEEDING, Happening.OPENED): SessionPhase.READY,
    (SessionPhase.SEEDING, Happening.OPEN_FAILED): SessionPhase.CLOSING,
    (SessionPhase.SEEDING, Happening.CLOSE_ASKED): SessionPhase.CLOSING,
    (SessionPhase.READY, Happening.CLOSE_ASKED): SessionPhase.CLOSING,
    # An open that was told to stop may still bring a state; it is kept for the close and never used.
    (SessionPhase.CLOSING, Happening.OPENED): SessionPhase.CLOSING,
    (SessionPhase.CLOSING, Happening.OPEN_FAILED): SessionPhase.CLOSING,
    (SessionPhase.CLOSING, Happening.CLOSE_ASKED): SessionPhase.CLOSING,
    (SessionPhase.CLOSING, Happening.CLOSE_FAILED): SessionPhase.CLOSING,
    (SessionPhase.CLOSING, Happening.CLOSE_CONFIRMED): SessionPhase.CLOSED,
}


def transition(phase: SessionPhase, happening: Happening) -> SessionPhase:
    """The phase after ``happening``.

    **Errors**: `SessionError` with a sentence for a move that must not happen; it is a fault of this room.
    """
    try:
        return _MOVES[phase, happening]
    except KeyError:
        raise SessionError(f"a session that is {phase.value} cannot have: {happening.value}") from None
