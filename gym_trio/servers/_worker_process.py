"""`WorkerProcess`: one process that verifies or carries tools out, as its server sees it."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from ._answers import UNREADABLE, read_answer
from ._jobs import Job
from ._worker_child import HEAD, UNGUARDED, LoadedMain, confine, serve_one
from ._worker_home import WorkerFailed, WorkerHome

if TYPE_CHECKING:
    from ..processes import ManagedProcess

__all__ = ["WorkerProcess", "fork_worker", "start_worker"]

EXIT_SECONDS = 1.0
ANSWER_BYTES = 256 * 2**20

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from gym_trio.servers._worker_child import main; main(int(sys.argv[1]))"
)


class Life(Protocol):
    """A process's life, from outside."""

    @property
    def returncode(self) -> int | None:
        """Negative for a signal; None while it runs."""

    async def wait(self) -> None:
        """Until it has exited."""

    async def end(self) -> None:
        """Kill it and what it started."""


@attrs.frozen(eq=False)
class Supervised:
    """The life of a process that has a home."""

    home: WorkerHome
    process: ManagedProcess

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    async def wait(self) -> None:
        await self.process.wait()

    async def end(self) -> None:
        await self.home.end(self.process)


@attrs.define(eq=False)
class WorkerProcess:
    """A process that answers one question at a time.

    **Ownership**: whoever starts it calls `end`, which kills it with what it started.
    """

    _life: Life
    _link: trio.SocketStream
    _asked: int = 0
    _ended: bool = False

    async def ask(self, question: bytes | None) -> dict[str, Any]:
        """Send ``question`` and wait for the answer.

        **Cancellation**: leaves the process in the middle of its work; only `end` is allowed then.

        **Errors**: `WorkerFailed` when the process ends instead, says too much, or what cannot be read.
        """
        number = self._asked
        self._asked += 1
        try:
            if question is not None:
                await self._link.send_all(HEAD.pack(len(question), number) + question)
            return await self._answer_to(number)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # Its end of the socket is closed a moment before it counts as exited.
            with trio.move_on_after(EXIT_SECONDS):
                await self._life.wait()
            raise WorkerFailed(f"ended: {await self.end()}") from None

    async def _answer_to(self, number: int) -> dict[str, Any]:
        while True:
            length, answered = HEAD.unpack(await self._receive(HEAD.size))
            if length > ANSWER_BYTES:
                raise WorkerFailed(f"has answered with {length} bytes, above {ANSWER_BYTES}")
            content = await self._receive(length)
            if answered == number:
                return read_answer(content)
            if answered > number:
                raise WorkerFailed(UNREADABLE)
            # A further answer to an earlier question, by what had run for it; it is nobody's.

    async def _receive(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = await self._link.receive_some(min(length - len(parts), 1 << 20))
            if not part:
                raise trio.BrokenResourceError
            parts += part
        return bytes(parts)

    @property
    def may_be_asked(self) -> bool:
        """It has not exited, and has said nothing that nobody has asked for."""
        if self._ended or self._life.returncode is not None:
            return False
        said = select.poll()
        said.register(self._link.socket, select.POLLIN)
        return not said.poll(0)

    async def end(self) -> str:
        """Kill it with what it started; say how it had ended. Once it has, again does nothing.

        **Cancellation**: shielded; bounded by what the kernel takes.
        """
        if self._ended:
            return "it was stopped"
        code = self._life.returncode
        self._ended = True
        self._link.socket.close()
        await self._life.end()
        if code is None:
            return "it was stopped"
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


async def start_worker(server: Any, home: WorkerHome, memory_bytes: int) -> tuple[WorkerProcess, bytes]:
    """Start a process for jobs of ``server``'s class, and what to `ask` it first: it makes a server of its own.

    **Cancellation**: nothing of it is left.

    **Errors**: `WorkerFailed` when there can be no process.
    """
    program = sys.modules["__main__"]
    if isinstance(program, LoadedMain) and program.is_loading:
        program.runs_servers = True
        raise WorkerFailed(f"was not started: {UNGUARDED}")
    cls = type(server)
    module = sys.modules.get(cls.__module__)
    made = {
        "module": cls.__module__,
        "file": getattr(module, "__file__", None),
        "class": cls.__qualname__,
        "name": server.name,
        "config": dict(server.config),
        "memory_bytes": memory_bytes,
    }
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            command = [sys.executable, "-c", _START, str(theirs.fileno()), json.dumps(sys.path)]
            process = await home.start(command, [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
    return WorkerProcess(Supervised(home, process), _stream(ours)), pickle.dumps(made)


def fork_worker(server: Any, job: Job, memory_bytes: int) -> WorkerProcess:
    """Carry one job out in a fork: for a class that another process could not import, such as one made in a function.

    The fork has this process's memory as it is, so nothing is copied; it keeps none of its descriptors.

    **Errors**: `WorkerFailed` when there can be no process.
    """
    from ..processes import fork_kept  # here, for most servers never need it

    ours, theirs = socket.socketpair()

    def work() -> None:
        confine(theirs, os.getppid(), memory_bytes)
        serve_one(theirs, server, job)

    with theirs:
        try:
            fork = fork_kept(work, theirs)
        except OSError as error:
            ours.close()
            raise WorkerFailed(f"could not be started: {error.strerror}") from None
    return WorkerProcess(fork, _stream(ours))


def _stream(link: socket.socket) -> trio.SocketStream:
    link.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(link))
