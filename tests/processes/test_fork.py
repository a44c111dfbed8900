"""A fork of this process: what it must not do to its owner, and its owner not to it."""

from __future__ import annotations

import gc
import io
import logging
import os
import pathlib
import signal
import socket
import sys
import threading
from collections.abc import Callable

import pytest
import trio

from gym_trio.processes import KeptFork, fork_kept


class Ring:
    """Refers to itself, so that it stays until garbage is looked for."""

    def __init__(self) -> None:
        self.ring = self
        self.sock = socket.socket()


def forked(work: Callable[[socket.socket], object]) -> tuple[KeptFork, socket.socket]:
    """A fork that does ``work`` with one end of a pair, and the other end."""
    ours, theirs = socket.socketpair()
    with theirs:
        return fork_kept(lambda: work(theirs), theirs), ours


def wait_for_ever(link: socket.socket) -> None:
    link.sendall(b"%d" % os.getpid())
    signal.pause()


async def said(link: socket.socket) -> bytes:
    with link, trio.fail_after(20):
        return await trio.to_thread.run_sync(link.recv, 100)


async def test_it_ends_although_others_hold_what_it_listens_to() -> None:
    """What its owner has forked meanwhile has a copy of each of the owner's descriptors, for as long as it lives."""
    fork, link = forked(wait_for_ever)
    copy = os.dup(fork._channel.fileno())
    pid = int(await said(link))
    await fork.end()
    os.close(copy)
    for gone in (pid, fork._keeper):
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)


async def test_it_ends_although_its_owner_hears_of_no_child() -> None:
    """A program may ignore SIGCHLD, to be rid of zombies."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        fork, link = forked(wait_for_ever)
        pid = int(await said(link))
        await fork.end()
    finally:
        signal.signal(signal.SIGCHLD, before)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_garbage_of_the_owner_is_not_collected_in_it() -> None:
    """A socket that the owner has lost would close what has the same number there."""
    gc.disable()
    try:
        number = Ring().sock.fileno()

        def work(link: socket.socket) -> None:
            os.dup2(link.fileno(), number)
            gc.collect()
            link.sendall(b"open" if os.path.exists(f"/proc/self/fd/{number}") else b"closed")

        fork, link = forked(work)
        assert await said(link) == b"open"
        await fork.end()
        with pytest.warns(ResourceWarning):
            gc.collect()
    finally:
        gc.enable()


async def test_what_its_owner_has_not_yet_written_is_written_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may have put a file in the place of its standard output, and forks with lines that it still holds."""
    monkeypatch.setattr(sys, "stdout", (tmp_path / "out").open("w"))
    print("once")
    fork, link = forked(lambda link: (print("elsewhere"), link.sendall(b"done")))
    assert await said(link) == b"done"
    await fork.end()
    sys.stdout.close()
    assert (tmp_path / "out").read_text() == "once\n"


async def test_it_reads_nothing_of_its_owners_input(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what its owner has read ahead, nor what is still to come."""
    (tmp_path / "in").write_text("first\nsecond\n")
    before = os.dup(0)
    try:
        with (tmp_path / "in").open() as given:
            os.dup2(given.fileno(), 0)
            monkeypatch.setattr(sys, "stdin", given)
            assert sys.stdin.readline() == "first\n"
            os.lseek(0, 0, os.SEEK_SET)
            fork, link = forked(lambda link: link.sendall(b"read: %b%b" % (sys.stdin.read().encode(), os.read(0, 100))))
            assert await said(link) == b"read: "
            await fork.end()
            assert sys.stdin.readline() == "second\n"
    finally:
        os.dup2(before, 0)
        os.close(before)


async def test_it_does_not_log_into_its_own_files(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A log file's number may be that of another file there; what would go to it goes to the standard error, once."""
    log = logging.getLogger("forked")
    handlers = [logging.FileHandler(tmp_path / "log"), logging.FileHandler(tmp_path / "log too")]
    handlers[0].setFormatter(logging.Formatter("said: %(message)s"))
    log.handlers += handlers
    number = handlers[0].stream.fileno()

    def work(link: socket.socket) -> None:
        file = os.open(tmp_path / "own", os.O_CREAT | os.O_RDWR)
        os.dup2(file, number)
        log.error("hello")
        link.sendall(b"done")

    try:
        fork, link = forked(work)
        assert await said(link) == b"done"
        await fork.end()
    finally:
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()
    assert capfd.readouterr().err.count("said: hello") == 1
    assert [(tmp_path / name).read_text() for name in ("own", "log", "log too")] == ["", "", ""]


class Slow(io.RawIOBase):
    """A file in which a write takes until it is told to end."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.entered.set()
        self.leave.wait()
        return len(bytes(data))  # type: ignore[call-overload, no-any-return]


async def test_it_logs_although_a_thread_of_its_owner_was_logging(capfd: pytest.CaptureFixture[str]) -> None:
    """The thread is not there to give back the file's lock."""
    slow = Slow()
    log, handler = logging.getLogger("forked"), logging.StreamHandler(io.TextIOWrapper(io.BufferedWriter(slow)))
    log.addHandler(handler)
    thread = threading.Thread(target=log.error, args=("the owner's",))
    try:
        thread.start()
        slow.entered.wait()
        fork, link = forked(lambda link: (log.error("the fork's"), link.sendall(b"done")))
        slow.leave.set()
        assert await said(link) == b"done"
        await fork.end()
    finally:
        slow.leave.set()
        thread.join()
        log.removeHandler(handler)
    told = capfd.readouterr().err
    assert "the fork's" in told
    assert "error ---" not in told
