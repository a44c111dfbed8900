"""Closing everything at once, under one deadline."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Generic

import attrs
import trio

from ._closing import Closer
from ._records import DrainReport, Session, State

logger = logging.getLogger("gym_trio.sessions")

_SHOWN = 100  # so many ids are named when a drain begins


@attrs.define(eq=False)
class Drainer(Generic[State]):
    """Runs one drain at a time. ``draining`` is True from the first one on: admission has stopped for good."""

    name: str
    closer: Closer[State]
    draining: bool = False
    last_report: DrainReport | None = None
    _over: trio.Event | None = None  # set at the end of the drain that runs, if one does

    async def drain(self, live: Callable[[], Iterable[Session[State]]]) -> DrainReport:
        self.draining = True
        while self._over is not None:
            await self._over.wait()
            if self.last_report is not None:
                return self.last_report
        over = self._over = trio.Event()
        try:
            with trio.CancelScope(shield=True):
                report = self.last_report = await self._close_all(live())
        finally:
            over.set()
            self._over = None
        for session_id, why in report.unconfirmed:
            logger.warning("%s: the close of session %s is not confirmed: %s", self.name, session_id, why)
        return report

    def _tell_open(self, session_ids: list[str]) -> None:
        # Said before the closes end: a process that is killed in its drain cannot say afterwards which were left.
        if session_ids:
            shown = ", ".join(session_ids[:_SHOWN]) + (", …" if len(session_ids) > _SHOWN else "")
            logger.info("%s: closing %d sessions: %s", self.name, len(session_ids), shown)

    async def _close_all(self, live: Iterable[Session[State]]) -> DrainReport:
        started = trio.current_time()
        self.closer.drain_deadline = started + self.closer.timeout_seconds
        try:
            closes = [(session.session_id, self.closer.begin(session, stop_opening=True)) for session in live]
            self._tell_open([key for key, attempt in closes if attempt.receipt is None])
            await self.closer.settle([attempt for _, attempt in closes])
        finally:
            self.closer.drain_deadline = math.inf
        return DrainReport(
            confirmed=sum(attempt.receipt is not None for _, attempt in closes),
            unconfirmed=tuple((key, attempt.failure) for key, attempt in closes if attempt.receipt is None),
            seconds=trio.current_time() - started,
        )
