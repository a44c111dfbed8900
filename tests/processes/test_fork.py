"""A fork of this process: what it must not do to its owner, and its owner not to it."""

from __future__ import annotations

import gc
import os
import signal
import socket
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
    finally:
        gc.enable()
    assert await said(link) == b"open"
    await fork.end()
    with pytest.warns(ResourceWarning):
        gc.collect()
