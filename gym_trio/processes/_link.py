"""gym_trio's side of the sockets to the warden and its keepers."""

from __future__ import annotations

import array
import contextlib
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from ._sweep import sweep

CHUNK_BYTES = 65536
# -I and -S make it independent of the environment and of installed packages; the path comes last, so that nothing
# in this folder can stand in for a module of the standard library.
BOOT = "import sys; sys.path.append(sys.argv[1]); from warden import main; main(sys.argv[2:])"


class KeeperChannel:
    """JSON lines with one keeper.

    **Ownership**: closing it, in whatever way, is an order to kill the server's whole tree.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._buffer = b""

    async def send_request(self, request: Mapping[str, Any], fds: Sequence[int]) -> None:
        """Send the one long message; ``fds`` travel with its first byte."""
        data = json.dumps(request).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        while data:
            try:
                sent = self._socket.sendmsg([data], rights)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
            else:
                data, rights = data[sent:], []

    def send_nowait(self, message: Mapping[str, Any]) -> None:
        """Send a short message; a keeper that is gone needs none."""
        try:
            self._socket.send(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    async def receive(self) -> dict[str, Any] | None:
        """Return the next event, or None when the keeper is gone."""
        while b"\n" not in self._buffer:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                data = self._socket.recv(CHUNK_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def close(self) -> None:
        _close(self._socket)


class WardenLink:
    """The running warden and the socket that keeps it.

    **Ownership**: `close` orders the end of every tree that is left; `wait` returns when the warden has ended, which
    it does only after the last process of its tree.
    """

    def __init__(self, process: trio.Process, control: socket.socket, token: str) -> None:
        self._process = process
        self._control = control
        self._token = token
        control.setblocking(False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    async def open_keeper(self) -> KeeperChannel:
        """Have a keeper forked.

        **Errors**: `OSError` when the warden has ended, or when this process has no file descriptors left.
        """
        ours, theirs = socket.socketpair()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
        with theirs:
            try:
                while True:
                    try:
                        self._control.sendmsg([b"k"], rights)
                        return KeeperChannel(ours)
                    except BlockingIOError:
                        await trio.lowlevel.wait_writable(self._control)
            except BaseException:
                ours.close()
                raise

    def close(self) -> None:
        _close(self._control)

    async def wait(self) -> int:
        """Return its exit code: 0 means that nothing of its tree is left."""
        return await self._process.wait()

    async def sweep(self) -> int:
        """End what is left when the warden was killed with its keepers; return how many processes that were."""
        return await trio.to_thread.run_sync(sweep, self._token, os.getpid())


def _close(end: socket.socket) -> None:
    """Close a socket for good: a process that gym_trio forked without exec may hold a copy of it."""
    if end.fileno() >= 0:
        trio.lowlevel.notify_closing(end)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


async def open_warden(python: Sequence[str] = (sys.executable, "-I", "-S")) -> WardenLink:
    """Start the warden: in its own session, with nothing of this process's but the one socket.

    **Cancellation**: may be cancelled at any time; a warden without its socket ends by itself.
    """
    token = secrets.token_hex(16)
    folder = str(pathlib.Path(__file__).parent)
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = await trio.lowlevel.open_process(
                [*python, "-c", BOOT, folder, str(theirs.fileno()), str(os.getpid()), token],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    return WardenLink(process, ours, token)
