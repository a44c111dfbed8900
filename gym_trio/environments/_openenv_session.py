"""`OpenEnvSession`: one rollout's connection to an OpenEnv server, which is one session there."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from ..errors import FailureKind, RolloutFailure, Stage, TransportError
from ..http import WebSocket
from . import _openenv_wire as wire
from ._openenv_texts import Actions

__all__ = ["OpenEnvSession", "Places"]

logger = logging.getLogger("gym_trio.environments")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0

Connect = Callable[[], Awaitable[WebSocket]]


@attrs.define(eq=False)
class OpenEnvSession:
    """The state of one session: its connection, how replies become actions, and what it has earned.

    **Ownership**: the session owns the connection. `close` ends it, and with it the environment at the server.
    """

    server: str
    actions: Actions | None = None
    total: float = 0.0  # of the rewards so far, or the last of them
    has_reward: bool = False
    has_place: bool = False
    _socket: WebSocket | None = None
    _turn: trio.Lock = attrs.field(factory=trio.Lock)

    @property
    def is_connected(self) -> bool:
        return self._socket is not None and self._socket.is_open

    async def connect(self, connect: Connect) -> None:
        """Make the connection, unless there is one that is fit for use."""
        async with self._turn:
            if not self.is_connected:
                self.abort()
                self._socket = await connect()

    async def exchange(self, message: str) -> wire.Seen | wire.Refusal:
        """Send one message and return its answer.

        **Cancellation**: closes the connection at once: a later answer would be taken for another message's.

        **Errors**: `TransportError` when the connection is or gets lost; `RolloutFailure` for an answer that is none.
        """
        async with self._turn:
            socket = self._socket
            if socket is None:
                raise RolloutFailure(
                    FailureKind.SESSION_LOST, f"{self.server}: the session was not reset", stage=Stage.AGENT
                )
            try:
                with contextlib.suppress(TransportError):
                    await socket.send(message)
                # A server without room says so, unasked, and hangs up: what it said is read even where sending failed.
                return wire.read_answer(await socket.receive(), self.server)
            except BaseException:
                self.abort()
                raise

    async def close(self, bound_seconds: float) -> None:
        """End the session at the server and wait until it has ended it, at most so long; then hang up.

        **Cancellation**: hangs up at once.
        """
        socket = self._socket
        try:
            if socket is None or not socket.is_open:
                return
            with trio.move_on_after(bound_seconds) as scope, contextlib.suppress(TransportError):
                await socket.send(wire.CLOSE)
                await socket.wait_ended()
            if scope.cancelled_caught:
                logger.warning("%s: its OpenEnv server did not end a session within %g s", self.server, bound_seconds)
        finally:
            self.abort()

    def abort(self) -> None:
        """Hang up at once, without a word."""
        if self._socket is not None:
            self._socket.abort()
            self._socket = None


class Places:
    """How many sessions there may be at once, first come, first served.

    A server that has no room for one more says how many it has; then, unless the settings say it, that is the number.
    """

    def __init__(self, server: str, most: int | None, wait_seconds: float) -> None:
        self._server = server
        self._learns = most is None
        self._limiter = trio.CapacityLimiter(float("inf") if most is None else most)
        self._wait_seconds = wait_seconds

    async def begin(
        self, session: OpenEnvSession, attempt: Callable[[], Awaitable[wire.Seen | wire.Refusal]]
    ) -> wire.Seen | wire.Refusal:
        """Call ``attempt`` in a place of ``session``'s, again as long as the server has no room for it.

        **Errors**: those of ``attempt``; `RolloutFailure` (``provider_quota_exhausted``) once the bound for waiting
        has passed.
        """
        deadline = trio.current_time() + self._wait_seconds
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            with trio.move_on_at(deadline):
                await self.take(session)
            if not session.has_place:
                break
            answer = await attempt()
            if not isinstance(answer, wire.Refusal) or not answer.is_lack_of_room:
                return answer
            self._learn(answer)
            session.abort()
            self.give_back(session)
            with trio.move_on_at(deadline) as scope:
                await trio.sleep(pause_seconds)
            if scope.cancelled_caught:
                break
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
        raise RolloutFailure(
            FailureKind.PROVIDER_QUOTA_EXHAUSTED,
            f"{self._server}: the OpenEnv server had no room for a session within {self._wait_seconds:g} s "
            "(session_wait_seconds; see max_concurrent_envs of its create_app)",
            stage=Stage.SEED,
        )

    async def take(self, session: OpenEnvSession) -> None:
        if not session.has_place:
            await self._limiter.acquire_on_behalf_of(session)
            session.has_place = True

    def give_back(self, session: OpenEnvSession) -> None:
        if session.has_place:
            session.has_place = False
            self._limiter.release_on_behalf_of(session)

    def _learn(self, answer: wire.Refusal) -> None:
        if self._learns and answer.max_sessions is not None:
            self._limiter.total_tokens = min(self._limiter.total_tokens, answer.max_sessions)
