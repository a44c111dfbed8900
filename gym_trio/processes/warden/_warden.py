"""The warden: forks a keeper for each server, and ends what a killed keeper leaves behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

from . import _kernel
from ._channel import Channel, Waiter, reap
from ._keeper import Keeper

CLOSING_SECONDS = 1.0


class Warden:
    """One per supervisor. Every message on ``control`` is one byte with one descriptor: the channel of a new keeper.

    When ``control`` closes or ``owner`` ends, keepers end their trees on their own, since their channels close with
    it; one that has not done so after a second is killed, and its tree, which is then this process's, ended here.
    """

    def __init__(self, control: int, owner: int, token: str) -> None:
        self._control = socket.socket(fileno=control)
        self._control.setblocking(False)
        self._owner_pid = owner
        self._owner = _kernel.open_process(owner)
        self._token = token
        self._keepers: set[int] = set()
        self._orphaned = False  # a keeper ended without having ended its tree, as far as is known
        self._closing_since: float | None = None
        self._lifeline, self._lifeline_end = os.pipe()  # the end is held by this process alone
        self._waiter = Waiter()

    def run(self) -> None:
        """Return when gym_trio is done or dead, and no process of the tree is left."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        _kernel.adopt_orphans()
        _kernel.name_this_process("gym-warden")
        self._waiter.watch(self._control.fileno())
        if self._owner is not None:
            self._waiter.watch(self._owner)
        has_children = False
        while has_children or self._closing_since is None:
            ready = self._waiter.wait(self._patience())
            if self._control.fileno() in ready:
                self._accept()
            if self._closing_since is None and (self._owner in ready or os.getppid() != self._owner_pid):
                self._close()
            has_children = self._collect()
            self._tidy()

    def _patience(self) -> float | None:
        if self._orphaned:
            return 0.02  # a child that ends cuts it short
        if self._closing_since is not None:
            return 0.1
        return None if self._owner is not None else 0.5  # without a pidfd, getppid tells of a dead owner

    def _accept(self) -> None:
        try:
            data, fds, _flags, _address = socket.recv_fds(self._control, 1, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._close()
        for fd in fds:
            self._fork_keeper(fd)

    def _fork_keeper(self, fd: int) -> None:
        try:
            pid = os.fork()
        except OSError as exc:  # no more processes for this user
            channel = Channel(fd)
            channel.send("failed", message=f"no keeper: {exc.strerror}")
            channel.close()
            return
        if pid:
            self._keepers.add(pid)
            os.close(fd)
            return
        # The keeper: everything that would keep gym_trio's or the warden's end from being noticed is closed.
        self._waiter.close()
        self._control.close()
        os.close(self._lifeline_end)
        os.set_inheritable(fd, False)
        Keeper(Channel(fd), self._lifeline, self._owner, self._token).run()
        sys.exit(0)

    def _close(self) -> None:
        if self._closing_since is None:
            self._closing_since = time.monotonic()
            self._waiter.forget(self._control.fileno())
            if self._owner is not None:
                self._waiter.forget(self._owner)

    def _collect(self) -> bool:
        ended, has_children = reap()
        for pid, returncode in ended:
            if pid not in self._keepers or returncode != 0:
                self._orphaned = True
            self._keepers.discard(pid)
        return has_children

    def _tidy(self) -> None:
        """End what has been adopted, and keepers that are stuck."""
        if self._closing_since is not None and time.monotonic() > self._closing_since + CLOSING_SECONDS:
            for pid in self._keepers:
                os.kill(pid, signal.SIGKILL)  # a child that has not been reaped: the number is its own
        if self._orphaned:
            me = os.getpid()
            adopted = set(_kernel.children(me)) - self._keepers
            _kernel.kill_trees(adopted, me)
            self._orphaned = bool(adopted)
