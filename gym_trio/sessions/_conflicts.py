"""Why a session request is refused."""

from __future__ import annotations

import enum

from gym_trio.errors import SessionConflict


class ConflictReason(enum.StrEnum):
    """The ``reason`` of a `SessionConflict`."""

    OTHER_SEED = "other_seed"  # the id is bound to another seed request
    OTHER_EPISODE = "other_episode"  # the id belongs to another episode
    CLOSING = "closing"  # a close was asked for and is not confirmed
    CLOSED = "closed"  # the close is confirmed, or the id was spent without a seed
    UNKNOWN = "unknown"  # there is no such session: never seeded, or its receipt has expired


_SENTENCES = {
    ConflictReason.OTHER_SEED: "is already bound to another seed request",
    ConflictReason.OTHER_EPISODE: "belongs to another episode",
    ConflictReason.CLOSING: "is closing",
    ConflictReason.CLOSED: "is already closed",
    ConflictReason.UNKNOWN: "is not known here",
}


def conflict(session_id: str, reason: ConflictReason) -> SessionConflict:
    return SessionConflict(f"session {session_id!r} {_SENTENCES[reason]}", reason=reason)
