"""`ToolCalls`: the calls of one environment's tools, on its loop, in a thread, or in a process of their own."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import orjson
import trio

from ..errors import FailureKind, RolloutFailure, Stage
from ..threads import Threads
from ._answers import job_answer
from ._authored import pending
from ._jobs import ToolUse
from ._session_state import state_from
from ._tool_answer import encoded_answer
from ._tools import Tool
from ._worker_pool import WorkerPool

if TYPE_CHECKING:
    from ._resources import ResourcesServer

__all__ = ["ToolCalls"]

LOOP_SECONDS = 600.0
PROCESS_SECONDS = 60.0


@attrs.define(eq=False)
class Turns:
    """Who may use one session's state: any number of tools here, or one that has it in another process."""

    callers: int = 0  # that hold or wait for a turn; the last one that leaves takes the record along
    _alone: trio.Lock = attrs.field(factory=trio.Lock)
    _here: int = 0
    _none_here: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with self._alone:
            self._here += 1
        try:
            yield
        finally:
            self._here -= 1
            if not self._here:
                self._none_here.unpark_all()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._alone:
            while self._here:
                await self._none_here.park()
            yield


class ToolCalls:
    """The tool calls of one server.

    **Ownership**: `aclose` ends the processes of its isolated tools.
    """

    def __init__(self, server: ResourcesServer) -> None:
        self._server = server
        self._isolates = any(tool.isolated for tool in server.tools.values())
        self._threads = Threads()
        # By the state's identity: only states that a call is using are in here, so none can be taken for another.
        self._turns: dict[int, Turns] = {}

    @functools.cached_property
    def _pool(self) -> WorkerPool:
        limits = self._server.limits
        seconds = limits.tool_timeout_seconds or PROCESS_SECONDS
        return WorkerPool(self._server, limits.tool_processes, limits.tool_memory_bytes, seconds)

    def call(self, tool: Tool, session: Any, sent: Mapping[str, Any]) -> Awaitable[bytes]:
        """What ``tool`` answers in ``session``, as JSON, to the arguments that a model ``sent``; they are checked in
        this call.

        **Cancellation**: passes through; it kills the process of an isolated tool, and leaves a thread behind.

        **Errors**: what the tool raises; `ToolError` for arguments that do not fit; `RolloutFailure` (stage ``agent``)
        when it overruns ``tool_timeout_seconds``, returns what JSON cannot carry, or, isolated, ends its process.
        """
        arguments = tool.check(sent)
        if self._isolates:
            return self._call_in_turn(tool, session, sent, arguments)
        return self._call_here(tool, session, arguments)

    async def _call_in_turn(
        self, tool: Tool, session: Any, sent: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> bytes:
        async with self._turn(session, alone=tool.isolated):
            if tool.isolated:
                return await self._call_isolated(tool, session, sent)
            return await self._call_here(tool, session, arguments)

    @asynccontextmanager
    async def _turn(self, session: Any, *, alone: bool) -> AsyncIterator[None]:
        turns = self._turns.setdefault(id(session), Turns())
        turns.callers += 1
        try:
            async with turns.alone() if alone else turns.shared():
                yield
        finally:
            turns.callers -= 1
            if not turns.callers:
                del self._turns[id(session)]

    async def _call_here(self, tool: Tool, session: Any, arguments: Mapping[str, Any]) -> bytes:
        server = self._server
        seconds = server.limits.tool_timeout_seconds or LOOP_SECONDS
        with trio.CancelScope(relative_deadline=seconds):
            if tool.is_async:
                found = await pending(tool.method(server, session, **arguments))
            else:
                found = await self._threads.run(functools.partial(tool.method, server, session, **arguments))
            return encoded_answer(server.name, tool, found)
        raise RolloutFailure(
            FailureKind.AGENT_TIMEOUT,
            f"{server.name}: the tool {tool.name} took over {seconds:g} s (tool_timeout_seconds)",
            stage=Stage.AGENT,
        )

    async def _call_isolated(self, tool: Tool, session: Any, sent: Mapping[str, Any]) -> bytes:
        job = ToolUse(session, tool.name, dict(sent), self._server.name)
        answer = await self._pool.carry_out(job)
        if "state" in answer:
            try:
                state_from(answer["state"], session, self._server)
            except Exception as error:  # noqa: BLE001  bytes of any kind, and the author's own ``__setstate__``
                raise job.unfit(f"the state that {job.what} left cannot be taken back: {error}") from None
        return orjson.dumps(job_answer(answer, job))

    async def aclose(self) -> None:
        """**Cancellation**: shielded; bounded by what the kernel takes to end a process."""
        if "_pool" in vars(self):
            await self._pool.aclose()
