"""`VerifierPool`: processes in which verifiers may block, burn, or break, and only their own rollout fails."""

from __future__ import annotations

import os
import pickle
from typing import Any

import attrs
import orjson
import trio

from ..config import optional, positive_int, positive_seconds
from ..errors import FailureKind, RequestRefused, RolloutFailure, Stage
from ._body import RequestBody
from ._failures import failure_from_wire
from ._verdict import verify_response
from ._verifier_process import VerifierProcess, fork_verifier, start_verifier, verifier_failed

__all__ = ["VerifierLimits", "VerifierPool"]

START_SECONDS = 120.0
MOST_PROCESSES = 8


@attrs.frozen(kw_only=True)
class VerifierLimits:
    """The bounds of an environment's verifier and tools: keys of its block.

    ``verify_timeout_seconds`` is one verification's, from when a process is free for it; unset, it is 60 in a process
    or thread and 600 on the loop, where a verifier may ask a judge. ``verify_processes`` may verify at once, unset one
    per processor and at most 8; each within ``verify_memory_bytes``. ``tool_timeout_seconds`` is one tool call's.
    """

    verify_timeout_seconds: float | None = attrs.field(default=None, validator=optional(positive_seconds))
    verify_processes: int = attrs.field(
        factory=lambda: min(os.cpu_count() or 1, MOST_PROCESSES), validator=positive_int
    )
    verify_memory_bytes: int = attrs.field(default=4 * 2**30, validator=positive_int)
    tool_timeout_seconds: float = attrs.field(default=600, validator=positive_seconds)


@attrs.define(eq=False)
class VerifierPool:
    """The processes of one server's verifier, started when they are needed and kept for the next.

    A process that overran, died or was given up is killed with its process group, and its place is free for another.

    **Ownership**: `aclose` ends them all. They also die with the thread that runs the server's loop, however it ends.
    """

    server: Any
    limits: VerifierLimits
    seconds: float  # how long one verification may take
    _places: trio.CapacityLimiter = attrs.field(init=False)
    _idle: list[VerifierProcess] = attrs.field(factory=list)
    _all: set[VerifierProcess] = attrs.field(factory=set)
    _closed: bool = False

    def __attrs_post_init__(self) -> None:
        self._places = trio.CapacityLimiter(self.limits.verify_processes)

    async def verify(self, session: Any, request: RequestBody) -> dict[str, Any]:
        """The keys of a verify response.

        **Cancellation**: kills the process that was at work for it.

        **Errors**: `RolloutFailure` of kind ``verifier_error`` and stage ``verification`` for whatever goes wrong in
        the process, unless the verifier itself raised a failure or refused the request.
        """
        question = None if self._forks else _pickled(session, request)
        async with self._places:
            if self._closed:
                raise RolloutFailure(FailureKind.SHUTDOWN, "the server is shutting down", stage=Stage.VERIFICATION)
            process = self._add(self._fork(session, request)) if question is None else await self._obtain()
            keep = False
            try:
                answer = await self._ask(process, question)
                keep = question is not None and not answer.get("retire")
            finally:
                if keep:
                    self._idle.append(process)
                else:
                    await self._give_up(process)
        return _verdict(self.server.name, answer)

    @property
    def _forks(self) -> bool:
        # Another process cannot find a class that was made in a function; a fork has it.
        return "<locals>" in type(self.server).__qualname__

    def _fork(self, session: Any, request: RequestBody) -> VerifierProcess:
        return fork_verifier(self.server, session, request, self.limits.verify_memory_bytes)

    def _add(self, process: VerifierProcess) -> VerifierProcess:
        self._all.add(process)
        return process

    async def _obtain(self) -> VerifierProcess:
        while self._idle:
            process = self._idle.pop()
            if not process.has_exited:
                return process
            await self._give_up(process)
        process, introduction = start_verifier(self.server, self.limits.verify_memory_bytes)
        self._add(process)
        ready = False
        try:
            with trio.move_on_after(START_SECONDS):
                answer = await process.ask(introduction)
                ready = "ready" in answer
                if not ready:
                    raise verifier_failed(f"no process for the verifier could be set up: {answer.get('error')}")
                return process
            raise verifier_failed(f"the verifier's process was not ready within {START_SECONDS:g} s")
        finally:
            if not ready:
                await self._give_up(process)

    async def _ask(self, process: VerifierProcess, question: bytes | None) -> dict[str, Any]:
        with trio.move_on_after(self.seconds):
            return await process.ask(question)
        raise verifier_failed(f"the verifier took over {self.seconds:g} s and was killed (verify_timeout_seconds)")

    async def _give_up(self, process: VerifierProcess) -> None:
        await process.end()
        self._all.discard(process)

    async def aclose(self) -> None:
        """End every process. A verification that still waits for one fails.

        **Cancellation**: shielded; bounded by what the kernel takes to end a process.
        """
        self._closed = True
        async with trio.open_nursery() as nursery:
            for process in list(self._all):
                nursery.start_soon(self._give_up, process)
        self._idle.clear()


def _pickled(session: Any, request: RequestBody) -> bytes:
    try:
        return pickle.dumps((session, dict(request), request.rollout_id))
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise verifier_failed(f"the session's state cannot be handed to the verifier's process: {error}") from None


def _verdict(server: str, answer: dict[str, Any]) -> dict[str, Any]:
    if "refused" in answer:
        status, detail = answer["refused"]
        raise RequestRefused(status, detail)
    if "failure" in answer:
        failure = failure_from_wire(server, 500, orjson.dumps(answer["failure"]))
        raise failure or verifier_failed("the verifier's process gave an answer that cannot be read")
    return verify_response(answer.get("answer"))
