"""Where a verifier runs, and how long it may: on the loop, in a thread, or in a process of its own."""

from __future__ import annotations

import enum
import functools
import inspect
import math
from typing import TYPE_CHECKING, Any

import trio

from ..errors import FailureKind, RolloutFailure, Stage
from ..threads import Threads
from ._answers import job_answer
from ._authored import pending
from ._body import RequestBody, encode_json, parse_object
from ._jobs import Verification
from ._verdict import verify_response
from ._worker_pool import WorkerPool

if TYPE_CHECKING:
    from ._resources import ResourcesServer

__all__ = ["Verifying"]

LOOP_SECONDS = 600.0
PROCESS_SECONDS = 60.0


class Place(enum.Enum):
    """Where a verifier runs."""

    LOOP = "loop"  # async, on the server's own loop
    THREAD = "thread"  # plain, in a thread; one that hangs cannot be ended, only left behind
    PROCESS = "process"  # plain or async, in a process that is killed when it overruns


# Up to Python 3.11 looking a member up costs as much as a call.
LOOP, THREAD, PROCESS = Place


def _place_of(cls: Any, base: Any) -> Place:
    if cls.verify_in_process:
        return PROCESS
    if cls.verify is base.verify or inspect.iscoroutinefunction(inspect.unwrap(cls.verify)):
        return LOOP
    return PROCESS if cls.verify_in_process is None else THREAD


class Verifying:
    """The verifier of one server.

    **Ownership**: `aclose` ends its processes.
    """

    def __init__(self, server: ResourcesServer) -> None:
        from ._resources import ResourcesServer

        self._server = server
        self._place = _place_of(type(server), ResourcesServer)
        usual = LOOP_SECONDS if self._place is LOOP else PROCESS_SECONDS
        self._seconds = server.limits.verify_timeout_seconds or usual
        self._threads = Threads()

    @functools.cached_property
    def _pool(self) -> WorkerPool:
        limits = self._server.limits
        return WorkerPool(self._server, limits.verify_processes, limits.verify_memory_bytes, self._seconds)

    @functools.cached_property
    def _at_once(self) -> trio.CapacityLimiter:
        return trio.CapacityLimiter(self._server.limits.verify_processes)

    def untouched(self, request: RequestBody) -> dict[str, Any]:
        """The row in ``request``, which stays as it is whatever the verifier does to the request it is given."""
        row = dict(request)
        # A process gets a copy anyway. The row came as JSON.
        return row if self._place is PROCESS else parse_object(encode_json(row))

    async def verdict(self, session: Any, request: RequestBody) -> dict[str, Any]:
        """The keys of a verify response for ``request``.

        **Cancellation**: kills a process, leaves a thread behind.

        **Errors**: what the verifier raises; `RolloutFailure` (``verifier_error``) when it overruns, dies, or returns
        what is no reward.
        """
        if self._place is PROCESS:
            job = Verification(session, dict(request), request.rollout_id)
            return verify_response(job_answer(await self._pool.carry_out(job), job))
        with trio.CancelScope(relative_deadline=self._seconds) as scope:
            if self._place is LOOP:
                return verify_response(await pending(self._server.verify(session, request)))
            return verify_response(await self._in_thread(scope, session, request))
        raise RolloutFailure(
            FailureKind.VERIFIER_ERROR,
            f"the verifier took over {self._seconds:g} s (verify_timeout_seconds)",
            stage=Stage.VERIFICATION,
        )

    async def _in_thread(self, scope: trio.CancelScope, session: Any, request: RequestBody) -> Any:
        scope.deadline = math.inf  # the wait for a thread is not the verifier's
        async with self._at_once:
            scope.deadline = trio.current_time() + self._seconds
            found = await self._threads.run(self._server.verify, session, request)
        return await pending(found)

    async def aclose(self) -> None:
        """**Cancellation**: shielded; bounded by what the kernel takes to end a process."""
        if "_pool" in vars(self):
            await self._pool.aclose()
