"""One server and all that descends from it: started, reaped, ended by one process that does nothing else."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import time

from . import _kernel
from ._channel import Channel, Waiter, reap
from ._spawn import SpawnError, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINGER_SECONDS = 0.2
LOOK_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.25
MAX_REPORTED = 1000


class Phase(enum.Enum):
    """How far the end of the server's tree has come. It only ever moves down this list."""

    WAITING = 0  # the request has not come yet
    RUNNING = 1  # nobody has asked it to end
    INTERRUPTED = 2  # SIGINT was sent; those who got it have until the deadline
    LINGERING = 3  # they have gone; the others, who were not told, have a moment to notice
    KILLING = 4  # SIGKILL to all, again and again, until no child is left
    GONE = 5  # no process of the tree exists


class Keeper:
    """The parent of one server, and through the kernel's subreaper of everything that the server leaves behind.

    gym_trio says ``{"stop": grace_seconds}`` or ``{"kill": true}``, and hears ``started``, ``failed``, ``exited``
    (the server itself) and ``gone`` (the last of its tree). The channel's end, the lifeline's end (the warden's
    death) and the owner's end all mean: kill at once.
    """

    def __init__(self, channel: Channel, lifeline: int | None, owner: int | None, token: str) -> None:
        self._channel = channel
        self._lifeline = lifeline
        self._owner = owner
        self._token = token
        self._parent = os.getppid()
        self._phase = Phase.WAITING
        self._deadline = 0.0  # of the grace, then of the lingering
        self._server = 0
        self._server_is_there = False  # started, and not reaped: its pid and its group are safe to signal
        self._by_group = False
        self._has_children = False
        self._pause_seconds = 0.001  # between two rounds of killing; a child that ends cuts it short
        self._escalated = False
        self._reaped: list[int] = []
        self._waiter = Waiter()
        self._watched = {fd for fd in (channel.fileno(), lifeline, owner) if fd is not None}
        _kernel.adopt_orphans()

    def adopt(self, pid: int) -> None:
        """Take a child that runs already for the server, in place of one that a request would start."""
        self._server = pid
        self._server_is_there = True
        self._phase = Phase.RUNNING

    def run(self) -> None:
        """Return when nothing of the server is left."""
        _kernel.name_this_process("gym-keeper")
        for fd in self._watched:
            self._waiter.watch(fd)
        while self._phase is not Phase.GONE:
            ready = self._waiter.wait(self._patience())
            if self._channel.fileno() in ready:
                self._listen()
            if self._watched and (ready & {self._lifeline, self._owner} or os.getppid() != self._parent):
                self._cut()
            self._collect()
            self._advance(time.monotonic())

    def _patience(self) -> float | None:
        """How long the loop may wait when nothing happens."""
        if self._phase is Phase.KILLING:
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
            return self._pause_seconds
        left = self._deadline - time.monotonic()
        if self._phase is Phase.INTERRUPTED and not self._server_is_there:
            return min(LOOK_SECONDS, left)  # the members of its group need not be children of this process
        if self._phase in (Phase.INTERRUPTED, Phase.LINGERING):
            return left
        return None if self._owner is not None else 0.5  # without a pidfd, getppid tells of a dead warden

    def _listen(self) -> None:
        for message in self._channel.receive():
            if "command" in message:
                self._start(message)
            elif "stop" in message:
                self._interrupt(message["stop"])
            else:
                self._kill()
        if self._channel.closed:
            self._cut()

    def _cut(self) -> None:
        """Whoever this is done for, or whoever stands behind it, is gone: end everything now."""
        for fd in self._watched:
            self._waiter.forget(fd)
        self._watched = set()
        self._kill()

    def _start(self, request: dict[str, Any]) -> None:
        self._by_group = request["interrupt"] == "group"
        try:
            self._server = spawn(request, self._channel.fds, self._token)
        except SpawnError as exc:
            self._channel.send("failed", message=str(exc))
            self._phase = Phase.KILLING
        else:
            self._server_is_there = True
            self._phase = Phase.RUNNING
            self._channel.send("started", pid=self._server)
        for fd in self._channel.fds:
            os.close(fd)
        self._channel.fds = []

    def _interrupt(self, grace_seconds: float) -> None:
        """Send SIGINT once, to the server or to what is left of its group, and set the deadline."""
        if self._phase is Phase.RUNNING and grace_seconds > 0 and (self._server_is_there or self._by_group):
            self._phase = Phase.INTERRUPTED
            self._deadline = time.monotonic() + grace_seconds
            if not self._server_is_there:
                for pid in self._members():
                    _kernel.signal_process(pid, signal.SIGINT, self._is_member)
                return
            with contextlib.suppress(OSError):  # a program that has taken another user's rights
                (os.killpg if self._by_group else os.kill)(self._server, signal.SIGINT)
        elif self._phase in (Phase.WAITING, Phase.RUNNING):
            self._kill()

    def _kill(self) -> None:
        if self._phase is not Phase.GONE:
            self._phase = Phase.KILLING

    def _collect(self) -> None:
        ended, self._has_children = reap()
        for pid, returncode in ended:
            own = self._server_is_there and pid == self._server
            if own:
                self._server_is_there = False
                self._channel.send("exited", returncode=returncode)
                self._reaped.insert(0, pid)
            elif self._phase is not Phase.RUNNING and len(self._reaped) < MAX_REPORTED:
                self._reaped.append(pid)

    def _advance(self, now: float) -> None:
        """Move on as far as what is left of the tree and the clock allow."""
        if self._phase is Phase.INTERRUPTED and not self._server_is_there and not (self._by_group and self._members()):
            self._phase = Phase.LINGERING
            self._deadline = min(self._deadline, now + LINGER_SECONDS)
        if self._phase in (Phase.INTERRUPTED, Phase.LINGERING) and now >= self._deadline:
            self._phase = Phase.KILLING
        if self._has_children:
            if self._phase is Phase.KILLING:
                self._kill_round()
        elif self._phase is not Phase.WAITING:
            self._phase = Phase.GONE
            self._channel.send("gone", escalated=self._escalated, reaped=self._reaped)

    def _kill_round(self) -> None:
        me = os.getpid()
        if self._server_is_there and not _kernel.LINUX:
            with contextlib.suppress(OSError):
                os.killpg(self._server, signal.SIGKILL)  # without a subreaper, the group is what can be found
        if _kernel.kill_trees(_kernel.children(me), me):
            self._escalated = True

    def _members(self) -> list[int]:
        """Who of the tree is alive in the server's own process group."""
        return [pid for pid in _kernel.descendants(_kernel.children(os.getpid())) if self._is_member(pid)]

    def _is_member(self, pid: int) -> bool:
        # The session makes it exact: a group lives inside one session, and both bear the server's number.
        found = _kernel.describe(pid)
        if found is None or not found.alive or found.group != self._server:
            return False
        return found.session == self._server or not _kernel.LINUX
