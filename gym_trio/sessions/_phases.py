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

    __hash__ = object.__hash__  # a member is one object, and `Enum` hashes its name in a Python function


class Happening(enum.Enum):
    """What can happen to a session."""

    OPENED = "opened"  # open returned a state
    OPEN_FAILED = "open failed"  # open raised or was cancelled, perhaps handing over a partial state
    CLOSE_ASKED = "close asked"  # by a caller, the reaper or the drain, first or again
    CLOSE_FAILED = "close failed"  # it raised or was cut by a deadline; the state is kept
    CLOSE_CONFIRMED = "close confirmed"  # it returned in time

    __hash__ = object.__hash__


# Up to Python 3.11 looking a member up costs as much as a call, and a rollout goes through all of these.
SEEDING, READY, CLOSING, CLOSED = SessionPhase
OPENED, OPEN_FAILED, CLOSE_ASKED, CLOSE_FAILED, CLOSE_CONFIRMED = Happening

_MOVES = {
    (SEEDING, OPENED): READY,
    (SEEDING, OPEN_FAILED): CLOSING,
    (SEEDING, CLOSE_ASKED): CLOSING,
    (READY, CLOSE_ASKED): CLOSING,
    # An open that was told to stop may still bring a state; it is kept for the close and never used.
    (CLOSING, OPENED): CLOSING,
    (CLOSING, OPEN_FAILED): CLOSING,
    (CLOSING, CLOSE_ASKED): CLOSING,
    (CLOSING, CLOSE_FAILED): CLOSING,
    (CLOSING, CLOSE_CONFIRMED): CLOSED,
}


def transition(phase: SessionPhase, happening: Happening) -> SessionPhase:
    """The phase after ``happening``.

    **Errors**: `SessionError` with a sentence for a move that must not happen; it is a fault of this room.
    """
    try:
        return _MOVES[phase, happening]
    except KeyError:
        raise SessionError(f"a session that is {phase.value} cannot have: {happening.value}") from None
