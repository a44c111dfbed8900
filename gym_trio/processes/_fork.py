"""`fork_kept`: a fork of this very process, of which nothing stays; for work that another program could not be told."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Final, NoReturn

import attrs
import trio

from ..threads import Threads
from ._sweep import sweep
from .warden import _kernel
from .warden._channel import Channel
from .warden._keeper import Keeper
from .warden._marker import mark_limits, marked_environment

__all__ = ["KeptFork", "fork_kept"]

REAP_SECONDS = 5.0
CHUNK_BYTES = 65536
TOKEN_BYTES = 16
_ENDING: Final = Threads()
HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@attrs.define(eq=False)
class KeptFork:
    """A fork at work. Made by `fork_kept`.

    **Ownership**: of the fork and of all its descendants, also those that left its group and those that it has
    outlived. `end` ends them; so does the end of this process, whatever ends it.
    """

    _keeper: int  # its parent, and through the kernel's subreaper that of all it leaves behind
    _channel: socket.socket
    _token: str
    _told: bytes = b""
    _returncode: int | None = None
    _ended: bool = False

    @property
    def returncode(self) -> int | None:
        """The fork's own: negative for a signal; None while it runs."""
        if self._returncode is None and not self._ended:
            self._listen()
        return self._returncode

    async def wait(self) -> None:
        """Until the fork itself has ended. What it started may run on, until `end`."""
        while self.returncode is None and not self._ended:
            await trio.lowlevel.wait_readable(self._channel)

    async def end(self) -> None:
        """Kill the fork and all its descendants. Once they have ended, again does nothing.

        **Cancellation**: shielded; bounded by what the kernel takes to end a process.
        """
        if self._ended:
            return
        self._ended = True
        trio.lowlevel.notify_closing(self._channel)
        with contextlib.suppress(OSError):  # the keeper has gone already
            # By which it knows. To close is not enough where something that the owner has forked holds it too.
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()
        with trio.move_on_after(REAP_SECONDS, shield=True):
            if await _ENDING.run(_may_have_left_some, self._keeper):
                await _ENDING.run(sweep, self._token, os.getpid())

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := self._channel.recv(CHUNK_BYTES):
                self._told += data
            self._returncode = -signal.SIGKILL  # what it was by is not known, for its keeper has gone first
        for line in self._told.splitlines(keepends=True):
            if line.endswith(b"\n") and (message := json.loads(line))["event"] == "exited":
                self._returncode = message["returncode"]


def _may_have_left_some(keeper: int) -> bool:
    """Wait for its end: whether it may not have seen to that of the others."""
    try:
        return os.WIFSIGNALED(os.waitpid(keeper, 0)[1])
    except ChildProcessError:
        return True  # how it has ended was told to somebody else, or to nobody where SIGCHLD is ignored


def fork_kept(work: Callable[[], object], link: socket.socket) -> KeptFork:
    """Do ``work`` in a fork, which has this process's memory as it is and none of its descriptors but ``link``.

    The fork is in a session of its own and prints to the standard error. Its keeper, a fork in between, is the parent
    of whatever it leaves behind, and ends all of it.

    **Ownership**: whoever calls this calls `KeptFork.end`. ``link`` stays open here.

    **Errors**: `OSError` when there can be no more processes.
    """
    ours, theirs = socket.socketpair()
    token = secrets.token_hex(TOKEN_BYTES)
    owner = os.getpid()
    with theirs:
        try:
            with warnings.catch_warnings():
                # Newer Pythons warn of threads, which do not live on in the fork. What runs there takes no lock of
                # theirs.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except BaseException:
            ours.close()
            raise
        if pid == 0:
            _keep(work, link.fileno(), theirs.detach(), owner, token)
    ours.setblocking(False)
    return KeptFork(pid, ours, token)


def _keep(work: Callable[[], object], link: int, channel: int, owner: int, token: str) -> NoReturn:
    """In the first fork: fork again, and be the parent of all that comes of it. Never returns."""
    code = 1
    try:
        gc.disable()  # what is collected here belongs to the owner, and must not be told that it is over
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in HANDED_ON:
            signal.signal(number, signal.SIG_IGN)
        _owners = _close_all_but(link, channel)
        # Before there is a child, so that nothing of it can get away.
        keeper = Keeper(Channel(channel), None, _kernel.open_process(owner), token)
        pid = os.fork()
        if pid == 0:
            _work(work, link, os.getppid(), token)
        os.close(link)
        keeper.adopt(pid)
        keeper.run()
        code = 0
    finally:
        os._exit(code)


def _work(work: Callable[[], object], link: int, keeper: int, token: str) -> NoReturn:
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*HANDED_ON, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _kernel.die_with_parent()
        if os.getppid() == keeper:  # else it ended before the kernel had been asked
            _owners = _close_all_but(link)
            mark_limits(token)
            os.environ.update(marked_environment({}, token))
            gc.freeze()  # what the owner had left to be collected: to close its sockets is to close others of this one
            gc.enable()
            # A thread of its own: this one still passes for one that runs trio.
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    finally:
        os._exit(0)


def _close_all_but(*kept: int) -> list[object]:
    """Gives the owner's files, which have to be kept for as long as the fork runs."""
    owners = [_read_nothing(), *_write_to_stderr_alone()]
    first = 3
    for descriptor in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(first, descriptor)
        first = descriptor + 1
    return owners


def _read_nothing() -> object:
    """Leave what comes to the standard input to the owner, whose file is given."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    owners, sys.stdin = sys.stdin, io.TextIOWrapper(io.FileIO(0, closefd=False))
    return owners


def _write_to_stderr_alone() -> list[object]:
    """Have what is printed, and what is logged to a file, go to the standard error; gives the owner's files.

    The owner's own files are not to be touched: the number of one may become another file's here, a thread may have
    been at work in it, whose lock nobody gives back, and to let go of it would write once more what it holds.
    """
    os.dup2(2, 1)
    stream = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), line_buffering=True)
    owners: list[object] = [sys.stdout, sys.stderr]
    sys.stdout = sys.stderr = stream
    known = (logging.getLogger(), *logging.Logger.manager.loggerDict.values())
    for logger in [one for one in known if isinstance(one, logging.Logger)]:
        to_files = [handler for handler in logger.handlers if isinstance(handler, logging.StreamHandler)]
        if to_files:
            owners.extend(to_files)
            own = logging.StreamHandler(stream)
            own.setLevel(to_files[0].level)
            own.setFormatter(to_files[0].formatter)
            logger.handlers = [own, *(handler for handler in logger.handlers if handler not in to_files)]
    return owners
