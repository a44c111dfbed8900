"""Carrying out the open of a seeded session, and keeping what it made however it ended."""

from __future__ import annotations

import logging

from gym_trio.errors import SessionSetupError

from ._phases import OPEN_FAILED, OPENED, SEEDING
from ._records import NOTHING, Open, Opening, Session, State

logger = logging.getLogger("gym_trio.sessions")


def find_setup_error(error: BaseException) -> SessionSetupError | None:
    """The `SessionSetupError` in ``error``; user code with a nursery of its own raises it inside a group."""
    if isinstance(error, SessionSetupError):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = (find_setup_error(inner) for inner in error.exceptions)
        return next((inner for inner in found if inner is not None), None)
    return None


async def carry_out(session: Session[State], opening: Opening, open: Open[State]) -> None:
    """Run ``open`` and record how it ended.

    **Cancellation**: ``opening.scope`` alone reaches it; a state that it brings all the same is kept for the close.

    **Errors**: none of its own; what ``open`` raised by itself is in ``opening.error``.
    """
    try:
        with opening.scope:
            if session.phase is SEEDING:  # else it was told to stop before its first step
                session.state = await open()
    except Exception as error:
        setup_error = find_setup_error(error)
        if setup_error is not None:
            session.state = setup_error.state
        stopped = opening.scope.cancel_called
        if not stopped:
            opening.error = setup_error or error
        # Handing over what is half made is how a stopped open is meant to end.
        level = logging.DEBUG if stopped and setup_error is error else logging.WARNING
        logger.log(level, "opening session %s failed", session.session_id, exc_info=error)
    finally:
        good = opening.error is None and session.state is not NOTHING
        session.happened(OPENED if good else OPEN_FAILED)
        opening.done.set()
