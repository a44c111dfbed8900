"""One command of a sandbox: its pipes, its bounds, its end."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence

import trio

from ._process import ManagedProcess
from ._supervisor import Supervisor
from .warden import _kernel

__all__ = ["SandboxRun"]

CHUNK_BYTES = 65536
STATUS_BYTES = 4096
COUNT_SECONDS = 0.02


class SandboxRun:
    """**Ownership**: holds pipes from the start; `close` releases them."""

    def __init__(self, time_seconds: float, output_bytes: int, processes: int) -> None:
        self.output = (bytearray(), bytearray())
        self.timed_out = self.killed = self.truncated = self.too_many_processes = self.isolated_network = False
        self.returncode: int | None = None
        self._time_seconds = time_seconds
        self._room = output_bytes
        self._max_processes = processes
        self._process: ManagedProcess | None = None
        self._counted = False  # the kernel bounds the number of processes
        self._counting = trio.CancelScope()
        self._ends: list[int] = []
        self.given: list[int] = []  # the command's ends: its three streams, and the launcher's status
        try:
            self._stdin, self._stdout, self._stderr, self._status = (self._pipe(n) for n in range(4))
        except OSError:
            self.close()
            raise

    def _pipe(self, number: int) -> int:
        reading, writing = os.pipe()
        ours, theirs = (writing, reading) if number == 0 else (reading, writing)
        self._ends += [ours]
        self.given += [theirs]
        return ours

    def close(self) -> None:
        for fd in [*self.given, *self._ends]:
            os.close(fd)
        self.given, self._ends = [], []

    def _own(self, fd: int) -> trio.lowlevel.FdStream:
        """The stream now closes ``fd``."""
        stream = trio.lowlevel.FdStream(fd)
        self._ends.remove(fd)
        return stream

    def kill(self) -> None:
        """End it, with whatever it has started."""
        self.killed = True
        if self._process is not None:
            self._process.kill()

    async def carry_out(self, supervisor: Supervisor, name: str, command: Sequence[str], cwd: str, data: bytes) -> None:
        """Return when nothing of it is left."""
        process = self._process = await supervisor.start(
            name, command, cwd=cwd, pass_fds=self.given, on_exit="ignore", interrupt="group"
        )
        try:
            while self.given:
                os.close(self.given.pop())
            if self.killed:
                process.kill()
            with trio.move_on_after(self._time_seconds) as bound:
                await self._follow(process, data)
            if bound.cancelled_caught:
                self.timed_out = self.killed = True
        finally:
            await supervisor.end(process)
            self.returncode = process.returncode

    async def _follow(self, process: ManagedProcess, data: bytes) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._feed, data)
            nursery.start_soon(self._read, self._stdout, self.output[0])
            nursery.start_soon(self._read, self._stderr, self.output[1])
            await self._hear_status()
            if not self._counted:
                nursery.start_soon(self._watch_count, process)
            await process.wait()
            # What it left may hold its pipes; nothing more is to be read once that has gone.
            process.kill()
            await process.wait_tree()
            self._counting.cancel()

    async def _hear_status(self) -> None:
        said = b""
        async with self._own(self._status) as stream:
            while part := await stream.receive_some(STATUS_BYTES):
                said += part
                if said.endswith(b"\n"):
                    break
        status = json.loads(said) if said.endswith(b"\n") else {}
        self.isolated_network = bool(status.get("isolated_network"))
        self._counted = bool(status.get("counted"))

    async def _feed(self, data: bytes) -> None:
        async with self._own(self._stdin) as stream:
            with contextlib.suppress(trio.BrokenResourceError):  # it does not want more
                await stream.send_all(data)

    async def _read(self, fd: int, into: bytearray) -> None:
        async with self._own(fd) as stream:
            while part := await stream.receive_some(CHUNK_BYTES):
                into += part[: self._room]
                self._room -= len(part)
                if self._room < 0:
                    self._room = 0
                    self.truncated = True
                    self.kill()
                    return

    async def _watch_count(self, process: ManagedProcess) -> None:
        """Bound the number of processes where the kernel does not: by looking, often."""
        with self._counting:
            while True:
                if process.pid is not None and len(_tree_of(process.pid)) > self._max_processes:
                    self.too_many_processes = True
                    self.kill()
                    return
                await trio.sleep(COUNT_SECONDS)


def _tree_of(pid: int) -> list[int]:
    """The command and all that its keeper, which is its parent, has adopted from it."""
    found = _kernel.describe(pid)
    return _kernel.descendants(_kernel.children(found.parent)) if found is not None else []
