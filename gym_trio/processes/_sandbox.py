"""A local sandbox: commands with limits in a directory of their own, of which nothing stays."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import pathlib
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import attrs
import trio

from ..errors import UsageError
from ._sandbox_files import read_inside, remove_directory, write_inside
from ._sandbox_run import SandboxRun
from ._supervisor import Supervisor, open_supervisor

__all__ = ["ExecResult", "Sandbox", "SandboxLimits", "open_sandbox"]

LOGGER = logging.getLogger("gym_trio.processes")

LAUNCHER = str(pathlib.Path(__file__).with_name("_sandbox_launcher.py"))
# Users that no system hands out; each sandbox has one of its own where gym_trio runs as root.
FIRST_USER, USERS = 1 << 30, 1 << 29
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _positive(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError(f"{attribute.name} must be a finite number above 0, not {value!r}")


@attrs.frozen(kw_only=True)
class SandboxLimits:
    """What one command of a sandbox may use.

    ``memory_bytes`` (address space) bounds each process, the others the command with all its descendants, except that
    ``file_bytes`` bounds each file. ``processes`` counts threads too. ``network`` asks for no isolation from it.
    """

    time_seconds: float = attrs.field(default=10.0, validator=_positive)
    memory_bytes: int = attrs.field(default=1 << 30, converter=int, validator=_positive)
    output_bytes: int = attrs.field(default=1 << 20, converter=int, validator=_positive)
    processes: int = attrs.field(default=32, converter=int, validator=_positive)
    open_files: int = attrs.field(default=256, converter=int, validator=_positive)
    file_bytes: int = attrs.field(default=64 << 20, converter=int, validator=_positive)
    network: bool = False


@attrs.frozen
class ExecResult:
    """How a command ended.

    ``returncode`` is negative for a signal, 127 when the command could not be started, ``None`` when the kernel did not
    let it be collected. ``timed_out``, ``truncated`` (more output than allowed; what came before is here) and
    ``too_many_processes`` say which limit ended it; ``killed`` that the sandbox ended it, for these or by being closed.
    """

    stdout: bytes
    stderr: bytes
    returncode: int | None
    timed_out: bool = False
    killed: bool = False
    truncated: bool = False
    too_many_processes: bool = False
    isolated_network: bool = False


class Sandbox:
    """A directory, and commands that run in it. Made by `open_sandbox`, or from a supervisor that lives longer.

    ``path`` is the directory: every command's working directory, home and place for temporary files. A command has no
    variables but those, a plain ``PATH`` and what `exec` is given, no standard descriptor of gym_trio's, a session of
    its own, and, where the kernel allows it, no network and a user of its own.

    It bounds what a command uses and ends all of it; it is no wall against code that is out to break the machine.

    **Ownership**: `aclose` ends what runs and removes the directory.
    """

    def __init__(self, supervisor: Supervisor, limits: SandboxLimits | None = None) -> None:
        self.limits = limits or SandboxLimits()
        self.isolated_network: bool | None = None  # of the last command; None before the first
        self._supervisor = supervisor
        self._name = f"sandbox-{secrets.token_hex(6)}"
        self._uid = FIRST_USER + secrets.randbelow(USERS) if os.geteuid() == 0 else None
        self._count = 0
        self._closed = False
        self._running: set[SandboxRun] = set()
        self._idle = trio.Event()
        self._idle.set()
        self._removal = trio.Lock()
        self.path = tempfile.mkdtemp(prefix="gym-trio-sandbox-")
        if self._uid is not None:
            with contextlib.suppress(OSError):
                os.chown(self.path, self._uid, self._uid)

    def __repr__(self) -> str:
        return f"<Sandbox {self.path}{' closed' if self._closed else ''}, {len(self._running)} running>"

    async def exec(
        self,
        command: Sequence[str],
        *,
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        limits: SandboxLimits | None = None,
    ) -> ExecResult:
        """Run a command, without a shell, until it ends or has used up a limit. Several may run at once.

        When it has ended, so have all processes that it left.

        **Cancellation**: kills it with all its descendants before this returns.

        **Errors**: `UsageError` for arguments that cannot work, or when the sandbox is closed; `ServerStartError` when
        the machine has no process for it. What the command does is no error.
        """
        if self._closed:
            raise UsageError("the sandbox is closed")
        if isinstance(command, str) or not command:
            raise UsageError(f"a sandbox's command is a list of words, not {command!r}")
        limits = limits or self.limits
        run = SandboxRun(limits.time_seconds, limits.output_bytes, limits.processes)
        self._count += 1
        self._running.add(run)
        self._idle = trio.Event() if self._idle.is_set() else self._idle
        try:
            launcher = [sys.executable, "-I", "-S", LAUNCHER]
            words = [*launcher, self._spec(command, limits, env or {}, run), *command]
            data = stdin.encode() if isinstance(stdin, str) else stdin
            await run.carry_out(self._supervisor, f"{self._name}-{self._count}", words, self.path, data)
        finally:
            run.close()
            self._running.discard(run)
            if not self._running:
                self._idle.set()
        self.isolated_network = run.isolated_network
        return ExecResult(
            bytes(run.output[0]),
            bytes(run.output[1]),
            run.returncode,
            run.timed_out,
            run.killed,
            run.truncated,
            run.too_many_processes,
            run.isolated_network,
        )

    def _spec(self, command: Sequence[str], limits: SandboxLimits, env: Mapping[str, str], run: SandboxRun) -> str:
        given = {"PATH": PATH, "HOME": self.path, "TMPDIR": self.path, "LANG": "C.UTF-8", **env}
        reachable = [sys.executable, self.path, *([command[0]] if os.path.isabs(command[0]) else [])]
        spec = {
            "fds": run.given,
            "limits": {**attrs.asdict(limits), "cpu_seconds": math.ceil(limits.time_seconds) + 1},
            "network": limits.network,
            "env": given,
            "uid": self._uid,
            "reachable": [path for path in reachable if os.path.exists(path)],
        }
        return json.dumps(spec)

    async def put(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        """Write a file at ``path``, relative to the directory; folders on the way are made.

        **Errors**: `UsageError` for a path that leaves the directory, also through a symbolic link.
        """
        self._check_open()
        content = data.encode() if isinstance(data, str) else data
        await trio.to_thread.run_sync(write_inside, self.path, path, content, self._uid, mode)

    async def get(self, path: str) -> bytes:
        """Read the file at ``path``, relative to the directory.

        **Errors**: `UsageError` for a path that leaves the directory, also through a symbolic link, for what is no
        regular file, or is larger than ``file_bytes``.
        """
        self._check_open()
        return await trio.to_thread.run_sync(read_inside, self.path, path, self.limits.file_bytes)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the sandbox is closed")

    async def aclose(self) -> None:
        """End what runs, and remove the directory. Any number of times, from any task.

        **Cancellation**: shielded; bounded by what the kernel takes.
        """
        self._closed = True
        with trio.CancelScope(shield=True):
            for run in self._running:
                run.kill()
            await self._idle.wait()
            async with self._removal:
                await trio.to_thread.run_sync(self._remove)

    def _remove(self) -> None:
        if not os.path.lexists(self.path):
            return
        try:
            remove_directory(self.path)
        except OSError as error:
            LOGGER.warning("a sandbox's directory could not be removed: %s: %s", self.path, error)


@contextlib.asynccontextmanager
async def open_sandbox(
    limits: SandboxLimits | None = None, *, supervisor: Supervisor | None = None
) -> AsyncIterator[Sandbox]:
    """A sandbox for the length of a block.

    **Ownership**: its processes belong to ``supervisor``, or to one of its own that ends with the block; either way
    nothing of them is left, nor the directory, when the block is left, and if gym_trio is killed they end too.

    **Cancellation**: the end is carried out in full, within the supervisor's bounds.
    """
    async with contextlib.AsyncExitStack() as stack:
        if supervisor is None:
            supervisor = await stack.enter_async_context(open_supervisor(0))
        sandbox = Sandbox(supervisor, limits)
        stack.push_async_callback(sandbox.aclose)
        yield sandbox
