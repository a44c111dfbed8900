"""A fleet of server processes with one owner: the block of `open_supervisor`."""

from __future__ import annotations

import logging
import math
import os
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from ..errors import ServerDied, ServerStartError, UsageError
from ._link import WardenLink, open_warden
from ._output import Output, Sink
from ._process import ManagedProcess
from ._report import StopReport, describe_returncode, with_last_lines
from ._spec import Interrupt, OnExit, check_spec, checked_seconds

LOGGER = logging.getLogger("gym_trio.processes")

LAST_WORDS_SECONDS = 0.2
KEEPERS_SECONDS = 1.0
UNREADY_GRACE_SECONDS = 5.0
WARDEN_SECONDS = 2.0  # more than the warden gives to keepers that are stuck
WARDEN_PYTHON = (sys.executable, "-I", "-S")


class Supervisor:
    """Starts servers, relays what they write, and stops them. Made by `open_supervisor`."""

    def __init__(
        self,
        server_shutdown_timeout_seconds: float,
        reap_timeout_seconds: float,
        output: Output | None,
        warden_python: Sequence[str] = WARDEN_PYTHON,
    ) -> None:
        self._grace_seconds = checked_seconds("server_shutdown_timeout_seconds", server_shutdown_timeout_seconds)
        self._reap_seconds = checked_seconds("reap_timeout_seconds", reap_timeout_seconds)
        self._sink = Sink(output, self._fail)
        self._warden_python = warden_python
        self._processes: dict[str, ManagedProcess] = {}
        self._failure: Exception | None = None
        self._report: StopReport | None = None
        self._stopping = False
        self._stopped = trio.Event()
        self._warden_is_gone = trio.Event()
        self.body = trio.CancelScope()  # what the caller does with it; cancelled when a failure ends the block
        self._tasks: set[trio.CancelScope] = set()

    def __repr__(self) -> str:
        return f"<Supervisor of {len(self._processes)} servers{', stopping' if self._stopping else ''}>"

    @property
    def processes(self) -> Mapping[str, ManagedProcess]:
        """The servers by name, in the order in which they were started; a snapshot."""
        return types.MappingProxyType(dict(self._processes))

    @property
    def stopping(self) -> bool:
        """Whether the stop has begun: nothing can be started any more."""
        return self._stopping

    @property
    def report(self) -> StopReport | None:
        """What `stop` returned, once it is known; also after the block."""
        return self._report

    @trio.lowlevel.enable_ki_protection
    async def start(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]] | str,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        ready_url: str | None = None,
        ready_fd: bool = False,
        ready_timeout_seconds: float = 600,
        on_exit: OnExit = "report",
        interrupt: Interrupt = "process",
        pass_fds: Sequence[int] = (),
        log_path: str | os.PathLike[str] | None = None,
    ) -> ManagedProcess:
        """Start a server in its own session and wait until it is ready.

        It is ready when ``ready_url`` has answered with a status below 500, or when it has written a line to the pipe
        whose number is in the variable ``GYM_TRIO_READY_FD`` (with ``ready_fd``), or both; with neither, when its
        program runs. ``command`` is started directly; a string is split like a shell would, and no shell runs.

        The server has the variables and the folder that gym_trio had when the supervisor was opened, unless there is
        a ``cwd``, and with ``env`` over the variables; the descriptors ``pass_fds`` under their own numbers (a
        listening socket, for example); and nothing at its standard input. Its output, both streams in one, is relayed
        and appended to ``log_path``. A later exit is logged with the last lines; with ``on_exit="raise"`` it also ends
        the block with `ServerDied`, and with ``"ignore"`` it is left to whoever started the server. Stopping sends
        SIGINT to the process, or with ``interrupt="group"`` to its whole
        process group, for a wrapper that does not pass it on.

        **Cancellation**: stops the server as `stop` does, with a grace of at most 5 s; nothing of it is left when this
        returns.
        **Errors**: `ServerStartError` when it did not become ready, with its last lines and its exit code;
        `UsageError` for arguments that cannot work. Either way nothing of it is left.
        **Ownership**: the process belongs to the supervisor, and so does every descendant of it.
        """
        spec = check_spec(
            name,
            command,
            env=env,
            cwd=cwd,
            ready_url=ready_url,
            ready_fd=ready_fd,
            ready_timeout_seconds=ready_timeout_seconds,
            on_exit=on_exit,
            interrupt=interrupt,
            pass_fds=pass_fds,
            log_path=log_path,
        )
        link = self._admit(name)
        process = ManagedProcess(spec, self._sink, self._note_unexpected_exit)
        self._processes[name] = process
        try:
            problem = await process.open(link, self._own)
        except BaseException:
            await self._discard(process)
            raise
        if problem is not None:
            await self._discard(process)
            message = with_last_lines(f"{name} {problem}", process.last_lines(), spec.log_path)
            raise ServerStartError(message, server=name, returncode=process.returncode, last_lines=process.last_lines())
        return process

    async def end(self, process: ManagedProcess) -> None:
        """Kill everything of one server now, without a grace, and forget it: its name is free again.

        **Cancellation**: shielded, within the bound for reaping.
        """
        process.kill()
        try:
            await _wait_through(process.wait_gone, self._reap_seconds, process.kill)
        finally:
            self._processes.pop(process.name, None)

    async def stop(self) -> StopReport:
        """Stop every server and say how each ended.

        SIGINT once to each, one shared grace, SIGKILL to whatever is left of it and to all its descendants, then a
        bounded wait for the kernel; side by side, and over as soon as the last has gone. No server can be started
        afterwards. More calls, from any task, get the same report.

        **Cancellation**: ends this call's waiting; the stop goes on, and leaving the block waits for it. A
        KeyboardInterrupt escalates.
        """
        self._begin_stop(self._grace_seconds)
        try:
            await self._stopped.wait()
        except KeyboardInterrupt:
            self.escalate()
            raise
        assert self._report is not None
        return self._report

    def escalate(self) -> None:
        """Kill what is left now, without the rest of the grace; begins the stop if it has not begun."""
        self._begin_stop(0)
        for process in self._processes.values():
            process.kill()

    # What happens inside.

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Supervisor:
        self._link = await open_warden(self._warden_python)
        self._nursery_manager = trio.open_nursery()
        self._nursery = await self._nursery_manager.__aenter__()
        self._own(self._watch_warden)
        return self

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        # The nursery is told of no error, so that what the body raised leaves as it is and in no group.
        try:
            await self._close()
        finally:
            await self._nursery_manager.__aexit__(None, None, None)
        if self._failure is not None and (error is None or isinstance(error, Exception)):
            raise self._failure from error

    async def _close(self) -> None:
        """Stop, give the warden up, and wait until it says by its own end that nothing is left."""
        self._begin_stop(self._grace_seconds)
        try:
            await _wait_through(self._stopped.wait, math.inf, self.escalate)
        finally:
            self._link.close()
            try:
                if not await _wait_through(
                    self._warden_is_gone.wait, self._reap_seconds + WARDEN_SECONDS, self.escalate
                ):
                    LOGGER.error(
                        "processes of these servers cannot be ended; the warden (pid %d) goes on trying: %s",
                        self._link.pid,
                        ", ".join(self._processes),
                    )
            finally:
                for scope in self._tasks:
                    scope.cancel()

    def _own(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run a task that outlives every cancellation from outside, until the block is left."""
        self._nursery.start_soon(self._run_owned, job)

    @trio.lowlevel.enable_ki_protection
    async def _run_owned(self, job: Callable[[], Awaitable[None]]) -> None:
        with trio.CancelScope(shield=True) as scope:
            self._tasks.add(scope)
            try:
                await job()
            finally:
                self._tasks.discard(scope)

    def _admit(self, name: str) -> WardenLink:
        if self._stopping:
            raise ServerStartError(f"{name} cannot be started: the supervisor is stopping", server=name)
        if self._link.ended:
            raise ServerStartError(f"{name} cannot be started: the warden has ended", server=name)
        if name in self._processes:
            raise UsageError(f"a server named {name} was already started")
        return self._link

    async def _discard(self, process: ManagedProcess) -> None:
        """End what a start has left, and forget it.

        What never was ready serves nobody, so that the grace, which is as long as a drain of sessions, is not for it;
        and an interpreter that is just starting can lose the one SIGINT that it gets.
        """
        grace_seconds = min(self._grace_seconds, UNREADY_GRACE_SECONDS)
        process.stop(grace_seconds)
        try:
            await _wait_through(process.wait_gone, grace_seconds + self._reap_seconds, process.kill)
        finally:
            self._processes.pop(process.name, None)

    def _begin_stop(self, grace_seconds: float) -> None:
        if not self._stopping:
            self._stopping = True
            for process in self._processes.values():
                process.stop(grace_seconds)
            self._own(self._finish_stop)

    async def _finish_stop(self) -> None:
        processes = list(self._processes.values())
        with trio.move_on_after(self._grace_seconds + self._reap_seconds):
            for process in processes:
                await process.wait_tree()
        with trio.move_on_after(self._reap_seconds):
            for process in processes:
                await process.wait_gone()
        self._report = StopReport(tuple(process.exit() for process in processes))
        self._stopped.set()

    async def _watch_warden(self) -> None:
        """See the warden's end, and make sure that it means the end of its tree."""
        if await self._link.wait() != 0:
            LOGGER.error("the warden (pid %d) was killed: its servers end", self._link.pid)
            with trio.move_on_after(KEEPERS_SECONDS):  # the keepers know the trees; they go first
                for process in list(self._processes.values()):
                    await process.wait_tree()
            await self._link.sweep()
        self._warden_is_gone.set()

    def _note_unexpected_exit(self, process: ManagedProcess) -> None:
        if process.spec.on_exit == "ignore":
            return

        async def report() -> None:
            with trio.move_on_after(LAST_WORDS_SECONDS):
                await process.wait_output()
            lines = process.last_lines()
            message = f"{process.name} ended while it was needed: {describe_returncode(process.returncode)}"
            message = with_last_lines(message, lines, process.spec.log_path)
            LOGGER.warning("%s", message)
            if process.spec.on_exit == "raise":
                self._fail(ServerDied(message, server=process.name, returncode=process.returncode, last_lines=lines))

        self._own(report)

    def _fail(self, failure: Exception) -> None:
        """End the block with this, unless it ends with something already."""
        if self._failure is None:
            self._failure = failure
            self.body.cancel()


async def _wait_through(
    wait: Callable[[], Awaitable[object]], seconds: float, on_interrupt: Callable[[], None]
) -> bool:
    """Wait, whoever is cancelled; return whether it came within the bound.

    A KeyboardInterrupt that arrives meanwhile calls ``on_interrupt``, which hurries, and is raised afterwards.
    """
    interrupt: KeyboardInterrupt | None = None
    came = False
    with trio.move_on_after(seconds, shield=True):
        while not came:
            try:
                await wait()
                came = True
            except KeyboardInterrupt as exc:
                interrupt = exc
                on_interrupt()
    if interrupt is not None:
        raise interrupt
    return came


@asynccontextmanager
async def open_supervisor(
    server_shutdown_timeout_seconds: float = 1, reap_timeout_seconds: float = 5, output: Output | None = None
) -> AsyncIterator[Supervisor]:
    """Own a fleet of server processes for the length of a block.

    ``server_shutdown_timeout_seconds`` is the one grace that all servers share when they are stopped, 0 for none;
    ``reap_timeout_seconds`` bounds what the kernel may take after SIGKILL. ``output`` is called with each line that a
    server writes, as ``(name) line``, or is a text stream to write them to; by default that is the standard error.

    **Ownership**: leaving the block stops every server as `Supervisor.stop` does and returns when no descendant of
    any of them is left. If this process is killed, or the warden, they all end within two seconds.
    **Cancellation**: the stop is carried out in full, within its bounds. A KeyboardInterrupt during the stop escalates.
    **Errors**: `ServerDied` when a server with ``on_exit="raise"`` ended; whatever ``output`` raised. What the body
    raises is raised as it is.
    """
    async with Supervisor(server_shutdown_timeout_seconds, reap_timeout_seconds, output) as supervisor:
        with supervisor.body:
            yield supervisor
