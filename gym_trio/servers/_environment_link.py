"""`EnvironmentLink`: an agent's session at an environment, which it can close even if it never heard of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from ..errors import Delivery, RolloutFailure, Stage
from ._resource_sessions import KEY_HEADER, LAST_HEADER
from ._verdict import verdict_headers, whole_response

if TYPE_CHECKING:
    from ._agent import AgentServer

__all__ = ["EnvironmentLink"]

logger = logging.getLogger("gym_trio.servers")

SEED, VERIFICATION = Stage.SEED, Stage.VERIFICATION  # up to Python 3.11 looking one up costs as much as a call


@attrs.define
class EnvironmentLink:
    """One rollout's session at the environment ``server``.

    The request that opens it carries a key drawn here. Cut off before its answer, the session is closed by that key;
    an environment of other make passes the key over.

    **Ownership**: whoever opens it calls `close`, in a ``finally``.
    """

    agent: AgentServer
    server: str
    rollout_id: str | None
    cookies: dict[str, str] = attrs.field(factory=dict)
    _key: str = attrs.field(factory=lambda: os.urandom(18).hex())  # cannot be guessed
    _unheard: bool = False  # it may have been opened, and its answer has not come

    async def open(self, path: str, body: Any) -> dict[str, Any]:
        """Ask for the session: ``POST path``.

        **Errors**: `RolloutFailure` of stage ``seed``.
        """
        self._unheard = True
        headers = {KEY_HEADER: self._key}
        try:
            answer = await self.agent.call(
                self.server, path, body, self.cookies, self.rollout_id, stage=SEED, headers=headers
            )
        except RolloutFailure as failure:
            self._unheard = failure.status is None and failure.delivery is Delivery.POSSIBLY_DELIVERED
            raise
        self._unheard = False
        return answer

    async def verify(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for the verdict: ``body``, the row with its response, and what the environment has to say of it.

        Nothing but `close` follows: an environment with nothing to dispose of closes with it. And the row and the
        response are here: an environment need not send them back, which may be all of a long conversation.

        **Errors**: `RolloutFailure` of stage ``verification``.
        """
        headers = {LAST_HEADER: "1", **verdict_headers(body)}
        answer = await self.agent.call(
            self.server, "/verify", body, self.cookies, self.rollout_id, stage=VERIFICATION, headers=headers
        )
        return whole_response(answer, body)

    async def close(self) -> None:
        """Close the session, if there is or may be one.

        **Cancellation**: shielded: the environment's state must not outlive the rollout. The agent's
        ``cleanup_timeout_seconds`` bounds it.

        **Errors**: none; they are logged.
        """
        if not any(self.cookies.values()) and not self._unheard:
            return  # none was opened, or the environment has closed it and taken its cookie back
        headers = {KEY_HEADER: self._key}
        with trio.move_on_after(self.agent.cleanup_timeout_seconds, shield=True) as scope:
            try:
                await self.agent.call(
                    self.server,
                    "/close_session",
                    {},
                    self.cookies,
                    self.rollout_id,
                    stage=Stage.CLEANUP,
                    headers=headers,
                )
            except RolloutFailure as failure:
                self._tell(str(failure), is_expected=failure.status == 404)
                return
        if scope.cancelled_caught:
            self._tell("it took too long")
            return
        self.agent.unclosing.discard(self.server)

    def _tell(self, why: str, *, is_expected: bool = False) -> None:
        # An environment of other make has no such route; there the session ends by its own time to live. And one that
        # has gone has taken all of its sessions along: that is one event, not as many as there were rollouts.
        is_quiet = is_expected or self.server in self.agent.unclosing
        logger.log(
            logging.DEBUG if is_quiet else logging.WARNING,
            "agent %s: %s did not close a session: %s; more of the same are told at level DEBUG until it closes one",
            self.agent.name,
            self.server,
            why,
        )
        if not is_expected:
            self.agent.unclosing.add(self.server)
