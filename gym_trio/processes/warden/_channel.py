"""What a keeper waits for: JSON lines from gym_trio, and children that end."""

from __future__ import annotations

import json
import os
import select
import signal
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK_BYTES = 65536
MAX_FILE_DESCRIPTORS = 250  # the kernel takes 253 in one message


class Channel:
    """JSON lines over a socket; ``fds`` collects the file descriptors that came with them.

    ``closed`` turns true when the other end is gone. Sending never blocks and never fails: whoever does not read is
    not waited for.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._buffer = b""
        self.fds: list[int] = []
        self.closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived."""
        while not self.closed:
            try:
                data, fds, _flags, _address = socket.recv_fds(self._socket, CHUNK_BYTES, MAX_FILE_DESCRIPTORS)
            except BlockingIOError:
                break
            except OSError:
                data, fds = b"", []
            for fd in fds:
                os.set_inheritable(fd, False)
            self.fds += fds
            self._buffer += data
            self.closed = not data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def send(self, event: str, **details: Any) -> None:
        try:
            self._socket.send(json.dumps({"event": event, **details}).encode() + b"\n")
        except OSError:
            self.closed = True

    def close(self) -> None:
        self._socket.close()


class Waiter:
    """Waits for file descriptors to turn readable and for SIGCHLD. One per process: it owns the wakeup descriptor."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._awake, self._write = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._poll.register(self._awake, select.POLLIN)

    def close(self) -> None:
        """Forget the descriptors; a forked child does this before it makes its own."""
        signal.set_wakeup_fd(-1)
        os.close(self._awake)
        os.close(self._write)

    def watch(self, fd: int) -> None:
        self._poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        self._poll.unregister(fd)

    def wait(self, seconds: float | None) -> set[int]:
        """Return the descriptors that have something, or are closed at the other end."""
        ready = {fd for fd, _events in self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)}
        if self._awake in ready:
            ready.discard(self._awake)
            try:
                while os.read(self._awake, CHUNK_BYTES):
                    pass
            except BlockingIOError:
                pass
        return ready


def reap() -> tuple[list[tuple[int, int]], bool]:
    """Collect the children that have ended, as (pid, return code), and say whether any child is left."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended.append((pid, os.waitstatus_to_exitcode(status)))
