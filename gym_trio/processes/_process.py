"""One managed server, as gym_trio sees it: its state, its end, its output."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from ._link import KeeperChannel, WardenLink
from ._output import Relay, Sink
from ._readiness import ReadyPipe
from ._report import ServerExit, describe_returncode
from ._spec import ServerSpec

READY_FD = "GYM_TRIO_READY_FD"
CLOSED_PIPE_SECONDS = 0.2
Own = Callable[[Callable[[], Awaitable[None]]], None]


class ServerState(enum.Enum):
    """How far a server's life has come. It only ever moves down this list, and may skip."""

    STARTING = "starting"  # asked for; it may be running, it is not ready
    READY = "ready"  # it said so, or nothing was to be waited for
    STOPPING = "stopping"  # told to end
    EXITED = "exited"  # the server process has ended; processes that it left may live
    GONE = "gone"  # no process of its tree is left


class ManagedProcess:
    """A server that the supervisor started.

    ``pid`` is None until the program runs; ``returncode`` is None while it does. ``ready_line`` is what it wrote to
    its ready pipe. ``started_at`` is a `time.time`.
    """

    def __init__(self, spec: ServerSpec, sink: Sink, on_unexpected_exit: Callable[[ManagedProcess], None]) -> None:
        self.spec = spec
        self.pid: int | None = None
        self.returncode: int | None = None
        self.ready_line: str | None = None
        self.started_at = time.time()
        self._state = ServerState.STARTING
        self._sink = sink
        self._on_unexpected_exit = on_unexpected_exit
        self._channel: KeeperChannel | None = None
        self._relay: Relay | None = None
        self._ready_pipe: ReadyPipe | None = None
        self._failure: str | None = None
        self._answered = trio.Event()  # the keeper said started or failed, or is gone
        self._exited = trio.Event()
        self._gone = trio.Event()
        self._readiness = trio.CancelScope()  # cancelled by the exit
        self._escalated = False
        self._reaped: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<ManagedProcess {self.name!r} pid={self.pid} {self._state.value}>"

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def state(self) -> ServerState:
        return self._state

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines it wrote, unfinished ones included; a bounded number of bounded length."""
        return self._relay.last_lines() if self._relay is not None else ()

    async def wait(self) -> int | None:
        """Wait for the server process to end and return its code, or None when it never ran.

        **Cancellation**: ends the waiting only.
        """
        await self._exited.wait()
        return self.returncode

    async def wait_tree(self) -> None:
        """Wait until no process of its tree is left."""
        await self._gone.wait()

    async def wait_output(self) -> None:
        """Wait until its output has ended, which is when nobody can write to it any more, and has been relayed."""
        if self._relay is not None:
            await self._relay.finished.wait()

    async def wait_gone(self) -> None:
        """Wait for both."""
        await self.wait_tree()
        await self.wait_output()

    def exit(self) -> ServerExit:
        """Describe the end as far as it is known."""
        return ServerExit(self.name, self.pid, self.returncode, self._escalated, self._reaped)

    # What the supervisor does with it.

    async def open(self, link: WardenLink, own: Own) -> str | None:
        """Start it and wait until it is ready; return what was wrong, or None.

        **Ownership**: the tasks that watch it are handed to ``own``. Whatever comes of this call, `stop` and then
        `wait_gone` leave nothing.
        """
        problem = None
        try:
            with trio.move_on_after(self.spec.ready_timeout_seconds) as bound:
                problem = await self._open(link, own)
        finally:
            if self._ready_pipe is not None:
                self._ready_pipe.close()
        if bound.cancelled_caught:
            asked = f" ({self.spec.ready_url.problem})" if self.spec.ready_url is not None else ""
            return f"was not ready within {self.spec.ready_timeout_seconds:g} s{asked}"
        if problem is None and self._exited.is_set() and self.spec.signals_readiness:
            return f"ended before it was ready: {describe_returncode(self.returncode)}"
        if problem is None:
            self._move(ServerState.READY)
        return problem

    def stop(self, grace_seconds: float) -> None:
        """Have it interrupted and, after the grace, everything of it killed. Once told, more calls change nothing."""
        self._tell({"stop": grace_seconds})

    def kill(self) -> None:
        """Have everything of it killed now."""
        self._tell({"kill": True})

    def _move(self, state: ServerState) -> None:
        stages = list(ServerState)
        if stages.index(state) > stages.index(self._state):
            self._state = state

    def _tell(self, message: Mapping[str, Any]) -> None:
        self._move(ServerState.STOPPING)
        if self._channel is None:
            self._lose("it was stopped")  # it has not come to a keeper
        else:
            self._channel.send_nowait(message)

    async def _open(self, link: WardenLink, own: Own) -> str | None:
        try:
            await self._launch(link, own)
        except OSError as exc:
            return f"could not be started: {exc}"
        await self._answered.wait()
        if self._failure is not None:
            return f"could not be started: {self._failure}"
        with self._readiness:
            if self._ready_pipe is not None:
                self.ready_line = await self._ready_pipe.wait()
                if self.ready_line is None:
                    await trio.sleep(CLOSED_PIPE_SECONDS)  # the end of the process, if it is that, says more
                    return "closed its ready pipe without a word"
            if self.spec.ready_url is not None:
                await self.spec.ready_url.wait()
        return None

    async def _launch(self, link: WardenLink, own: Own) -> None:
        """Send the request with the server's ends of the pipes, and start watching."""
        with contextlib.ExitStack() as given:
            reading, writing = _pipe(given)
            self._relay = Relay(self.name, reading, self._sink, self.spec.log_path)
            env = dict(self.spec.env)
            passed = list(self.spec.pass_fds)
            if self.spec.ready_fd:
                ready, signalling = _pipe(given)
                self._ready_pipe = ReadyPipe(ready)
                env[READY_FD] = str(signalling)
                passed.append(signalling)
            request = {
                "command": self.spec.command,
                "env": env,
                "cwd": self.spec.cwd,
                "interrupt": self.spec.interrupt,
                "targets": [[1, 2], *([fd] for fd in passed)],
            }
            channel = await link.open_keeper()
            try:
                await channel.send_request(request, [writing, *passed])
            except BaseException:
                channel.close()
                raise
            if self._gone.is_set():  # told to end meanwhile, when there was no channel to tell it
                channel.close()
                return
            self._channel = channel
        own(self._watch)
        own(self._relay.run)

    async def _watch(self) -> None:
        """Follow the keeper's events to the end."""
        assert self._channel is not None
        try:
            while (event := await self._channel.receive()) is not None:
                self._apply(event)
        finally:
            self._channel.close()
            self._lose("the warden has ended")

    def _apply(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "started":
                self.pid = event["pid"]
                if not self.spec.signals_readiness:
                    self._move(ServerState.READY)
            case "failed":
                self._failure = event["message"]
            case "exited":
                self._note_exit(event["returncode"])
            case "gone":
                self._escalated = event["escalated"]
                self._reaped = tuple(event["reaped"])
                self._note_gone()
        self._answered.set()

    def _lose(self, why: str) -> None:
        """No keeper any more. If that is not because it had finished, the kernel killed the server with it."""
        if self._gone.is_set():
            return
        if self._failure is None:
            self._failure = why
        if self.pid is not None:
            self._escalated = True
            if not self._exited.is_set():
                self._note_exit(-signal.SIGKILL)
        if self._relay is not None and self._channel is None:
            self._relay.close()
        self._note_gone()
        self._answered.set()

    def _note_exit(self, returncode: int) -> None:
        unexpected = self._state is ServerState.READY
        self.returncode = returncode
        self._move(ServerState.EXITED)
        self._exited.set()
        self._readiness.cancel()
        if unexpected:
            self._on_unexpected_exit(self)

    def _note_gone(self) -> None:
        self._move(ServerState.GONE)
        self._exited.set()
        self._gone.set()


def _pipe(given: contextlib.ExitStack) -> tuple[int, int]:
    """Make a pipe whose write end is closed in this process once it has been given away."""
    reading, writing = os.pipe()
    given.callback(os.close, writing)
    return reading, writing
