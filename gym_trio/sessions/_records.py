"""The records of this room: one live session, one try to close it, and the frozen answers."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import attrs
import trio

from ._phases import CLOSED, CLOSING, READY, SEEDING, Happening, SessionPhase, transition

State = TypeVar("State")


class _Nothing(enum.Enum):
    NOTHING = "nothing"


NOTHING: Final = _Nothing.NOTHING
Nothing: TypeAlias = Literal[_Nothing.NOTHING]

Open: TypeAlias = Callable[[], Awaitable[State]]
Close: TypeAlias = Callable[[State], Awaitable[Any]]


@attrs.frozen
class Receipt:
    """The proof of one confirmed close.

    ``value`` is what the close returned. ``had_state`` is False when there was nothing to close: the id was never
    seeded, or its seed failed before it had made anything; ``value`` is then None.
    """

    session_id: str
    value: Any = None
    had_state: bool = True


@attrs.frozen
class DrainReport:
    """What one drain did.

    ``confirmed`` sessions are closed; each of ``unconfirmed`` is an id and why, and its state is kept. An id whose code
    ignored its cancellation is among them, and its code may still be running.
    """

    confirmed: int = 0
    unconfirmed: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        return not self.unconfirmed


@attrs.frozen
class RegistryStatistics:
    """A snapshot. The first four count what is there now, the rest what has happened since the registry was opened."""

    seeding: int = 0
    ready: int = 0
    closing: int = 0
    receipts: int = 0
    closes_running: int = 0
    oldest_seconds: float | None = None
    opened: int = 0
    confirmed: int = 0
    failed_closes: int = 0
    expired: int = 0
    draining: bool = False
    last_drain: DrainReport | None = None

    @property
    def live(self) -> int:
        return self.seeding + self.ready + self.closing


@attrs.define(eq=False)
class Opening:
    """The running open of a seeded session, and those who wait for it."""

    scope: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))
    done: trio.Event = attrs.field(factory=trio.Event)
    waiters: int = 0
    error: Exception | None = None


@attrs.define(eq=False)
class CloseAttempt:
    """One run of a session's close, shared by all who asked for it.

    It is settled when those who wait for it have their answer: normally at its end, and for code that ignores its
    cancellation a little after its deadline. It has ended when its code has returned; before that no other may start.
    ``owned`` is True once a task carries it out. One that has nothing to carry out has no ``scope``.
    """

    scope: trio.CancelScope = attrs.field(init=False)
    started_at: float = attrs.field(init=False)
    owned: bool = True
    settled: trio.Event = attrs.field(factory=trio.Event)
    ended: bool = False
    receipt: Receipt | None = None
    failure: str = ""
    cause: BaseException | None = None

    def settle(self, *, receipt: Receipt | None = None, failure: str = "", cause: BaseException | None = None) -> None:
        """Give the answer; the first one stands."""
        if not self.settled.is_set():
            self.receipt, self.failure, self.cause = receipt, failure, cause
            self.settled.set()


@attrs.define(eq=False)
class Session(Generic[State]):
    """One id's record, from its seed to the expiry of its receipt.

    ``minted`` sessions were opened by `SessionRegistry.open_nowait` under an id of the registry's own making; they
    leave no receipt, since nobody can ask for an id that nobody else could know.
    """

    session_id: str
    close: Close[State] | None = None
    episode: Hashable = None
    fingerprint: Hashable = None
    minted: bool = False
    phase: SessionPhase = SEEDING
    state: State | Nothing = NOTHING
    opening: Opening | None = None
    attempt: CloseAttempt | None = None
    receipt: Receipt | None = None
    created_at: float = 0.0
    ready_at: float = 0.0
    last_used_at: float = 0.0
    receipt_expires_at: float = math.inf
    users: int = 0
    idle_ttl_seconds: float = math.inf
    absolute_ttl_seconds: float = math.inf

    def happened(self, happening: Happening) -> None:
        self.phase = transition(self.phase, happening)

    @property
    def running_close(self) -> CloseAttempt | None:
        return self.attempt if self.attempt is not None and not self.attempt.ended else None

    @property
    def opening_runs(self) -> bool:
        return self.opening is not None and not self.opening.done.is_set()

    def due_at(self, now: float) -> float:
        """When the reaper has to act on it if nothing happens until then; infinity for never."""
        if self.phase is READY:
            used = now if self.users else self.last_used_at
            return min(used + self.idle_ttl_seconds, self.ready_at + self.absolute_ttl_seconds)
        if self.phase is CLOSED:
            return self.receipt_expires_at
        return math.inf


@attrs.define(eq=False)
class SessionUse(Generic[State]):
    """A block that uses a ready session; it is not idle meanwhile."""

    _session: Session[State]
    _now: Callable[[], float]

    def __enter__(self) -> State:
        self._session.users += 1
        return cast(State, self._session.state)

    def __exit__(self, *_: object) -> None:
        self._session.users -= 1
        self._session.last_used_at = self._now()


def count_phases(sessions: Collection[Session[Any]], now: float) -> dict[str, Any]:
    """The part of `RegistryStatistics` that is about what is there now."""
    live = [session for session in sessions if session.phase is not CLOSED]
    counts = Counter(session.phase for session in sessions)
    oldest = min((session.created_at for session in live), default=None)
    return {
        "seeding": counts[SEEDING],
        "ready": counts[READY],
        "closing": counts[CLOSING],
        "receipts": counts[CLOSED],
        "oldest_seconds": None if oldest is None else now - oldest,
    }
