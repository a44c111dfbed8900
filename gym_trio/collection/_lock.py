"""One run per output: a lock that the kernel takes away from whoever dies."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import pathlib
import socket
from collections.abc import Iterator

import orjson

from ..errors import RunError, RunLocked


@contextlib.contextmanager
def run_lock(path: pathlib.Path, *, about: pathlib.Path) -> Iterator[None]:
    """Hold the lock of the run that writes ``about``; leaving the block removes the file.

    The lock is the kernel's (``flock``), so that of a killed run is gone with it, whatever its file still says.

    **Errors**: `RunLocked` that names the holder; `RunError` for a lock that cannot be made.
    """
    descriptor = _acquire(path, about)
    try:
        _write_holder(path, descriptor)
        yield
    finally:
        # Unlinked while it is held: whoever opened the old file meanwhile sees in `_acquire` that it is gone.
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _acquire(path: pathlib.Path, about: pathlib.Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RunError(f"{path}: the lock cannot be made ({error.strerror})") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_still(path, descriptor):
                return descriptor
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise RunLocked(
                f"{about}: another run is writing here ({holder}); wait for it, stop it, or choose another --output"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise RunError(f"{path}: this file system has no locks ({error.strerror})") from None
        os.close(descriptor)


def _write_holder(path: pathlib.Path, descriptor: int) -> None:
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, orjson.dumps(holder) + b"\n", 0)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror})") from None


def is_still(path: pathlib.Path, descriptor: int) -> bool:
    """Whether the file that was opened at ``path`` is the one that stands there now."""
    try:
        there, here = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _holder(descriptor: int) -> str:
    try:
        said = orjson.loads(os.pread(descriptor, 4096, 0))
        return f"process {said['pid']} on {said['host']}, since {said['since']}"
    except (ValueError, KeyError, TypeError, OSError):
        return "it has not said which"
