"""`WorkerPool`: processes in which verifiers and tools may block, burn, or break, and only their own rollout fails."""

from __future__ import annotations

import os
import pickle
from typing import Any

import attrs
import trio

from ..config import optional, positive_int, positive_seconds
from ..errors import FailureKind, RolloutFailure
from ._answers import check_is_of_job
from ._jobs import Job
from ._session_state import UNPICKLABLE
from ._worker_home import WorkerFailed
from ._worker_process import WorkerProcess, fork_worker, start_worker

__all__ = ["EnvironmentLimits", "WorkerPool"]

START_SECONDS = 120.0
MOST_VERIFIERS = 8
TOOL_PROCESSES = 8


@attrs.frozen(kw_only=True)
class EnvironmentLimits:
    """The bounds of an environment's verifier and tools: keys of its block.

    ``verify_timeout_seconds`` is one verification's, from when a process is free for it; unset, it is 60 in a process
    or thread and 600 on the loop, where a verifier may ask a judge. ``verify_processes`` may verify at once, unset one
    per processor and at most 8; each within ``verify_memory_bytes``. ``tool_timeout_seconds`` is one tool call's, in
    the same way; unset, it is 60 in a process and 600 on the loop or in a thread. ``tool_processes`` isolated calls may
    run at once, each within ``tool_memory_bytes``.
    """

    verify_timeout_seconds: float | None = attrs.field(default=None, validator=optional(positive_seconds))
    verify_processes: int = attrs.field(
        factory=lambda: min(os.cpu_count() or 1, MOST_VERIFIERS), validator=positive_int
    )
    verify_memory_bytes: int = attrs.field(default=4 * 2**30, validator=positive_int)
    tool_timeout_seconds: float | None = attrs.field(default=None, validator=optional(positive_seconds))
    tool_processes: int = attrs.field(default=TOOL_PROCESSES, validator=positive_int)
    tool_memory_bytes: int = attrs.field(default=4 * 2**30, validator=positive_int)


@attrs.define(eq=False)
class WorkerPool:
    """The processes of one server's verifier, or of its tools, started when they are needed and kept for the next job.

    A process that overran, died or was given up is killed with all its descendants, and its place is free for another.

    **Ownership**: `aclose` ends them all; so does the end of the server's process, whatever ends it.
    """

    server: Any
    processes: int  # how many may work at once
    memory_bytes: int
    seconds: float  # how long one job may take
    _places: trio.CapacityLimiter = attrs.field(init=False)
    _idle: list[WorkerProcess] = attrs.field(factory=list)
    _all: set[WorkerProcess] = attrs.field(factory=set)
    _closed: bool = False

    def __attrs_post_init__(self) -> None:
        self._places = trio.CapacityLimiter(self.processes)

    async def carry_out(self, job: Job) -> dict[str, Any]:
        """What a process answers to ``job``; see `Job.carry_out` for the form.

        **Cancellation**: kills the process that was at work for it.

        **Errors**: `RolloutFailure` of the job's own kind and stage when the process dies, overruns, or cannot be had.
        """
        question = None if self._forks else _pickled(job)
        async with self._places:
            if self._closed:
                raise RolloutFailure(FailureKind.SHUTDOWN, "the server is shutting down", stage=job.stage)
            keep = False
            process: WorkerProcess | None = None
            try:
                if question is None:
                    process = self._add(fork_worker(self.server, job, self.memory_bytes))
                else:
                    process = await self._obtain()
                answer = await self._ask(process, question, job)
                check_is_of_job(answer)
                keep = question is not None and not answer.get("retire")
            except WorkerFailed as error:
                raise job.failed(str(error)) from None
            finally:
                if process is not None and keep:
                    self._idle.append(process)
                elif process is not None:
                    await self._give_up(process)
        return answer

    @property
    def _forks(self) -> bool:
        # Another process cannot find a class that was made in a function; a fork has it.
        return "<locals>" in type(self.server).__qualname__

    def _add(self, process: WorkerProcess) -> WorkerProcess:
        self._all.add(process)
        return process

    async def _obtain(self) -> WorkerProcess:
        while self._idle:
            process = self._idle.pop()
            if process.may_be_asked:
                return process
            await self._give_up(process)
        process, introduction = await start_worker(self.server, self.server.worker_home, self.memory_bytes)
        self._add(process)
        ready = False
        try:
            with trio.move_on_after(START_SECONDS):
                answer = await process.ask(introduction)
                ready = "ready" in answer
                if not ready:
                    raise WorkerFailed(f"could not be set up: {answer.get('error')}")
                return process
            raise WorkerFailed(f"was not ready within {START_SECONDS:g} s")
        finally:
            if not ready:
                await self._give_up(process)

    async def _ask(self, process: WorkerProcess, question: bytes | None, job: Job) -> dict[str, Any]:
        with trio.move_on_after(self.seconds):
            return await process.ask(question)
        raise job.overran(self.seconds)

    async def _give_up(self, process: WorkerProcess) -> None:
        await process.end()
        self._all.discard(process)

    async def aclose(self) -> None:
        """End every process. A job that still waits for one fails.

        **Cancellation**: shielded; bounded by what the kernel takes to end a process.
        """
        self._closed = True
        async with trio.open_nursery() as nursery:
            for process in list(self._all):
                nursery.start_soon(self._give_up, process)
        self._idle.clear()


def _pickled(job: Job) -> bytes:
    try:
        return pickle.dumps(job)
    except UNPICKLABLE as error:
        raise job.unfit(f"the session's state cannot be handed to {job.what}'s process: {error}") from None
