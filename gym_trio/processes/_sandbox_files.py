"""The sandbox's directory, as seen from outside: paths that cannot leave it, and its removal, whatever is in it."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from ..errors import UsageError

__all__ = ["read_inside", "remove_directory", "write_inside"]

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts or "\0" in path:
        raise UsageError(f"{path!r} is no path inside the sandbox")
    return parts


def _open_inside(root: str, path: str, flags: int, uid: int | None, mode: int = 0o644) -> int:
    """Open a file below ``root`` step by step; no step follows a symbolic link, whoever makes one meanwhile."""
    *folders, name = _parts(path)
    makes = bool(flags & os.O_CREAT)
    at = os.open(root, FOLDER)
    try:
        for folder in folders:
            if makes:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o755, dir_fd=at)
                    _give(os.open(folder, FOLDER, dir_fd=at), uid, close=True)
            at, parent = os.open(folder, FOLDER, dir_fd=at), at
            os.close(parent)
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=at)
    except OSError as error:
        raise UsageError(f"{path!r} in the sandbox: {error.strerror}") from error
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"{path!r} in the sandbox is no regular file")
    return fd


def _give(fd: int, uid: int | None, *, close: bool = False) -> None:
    if uid is not None:
        os.fchown(fd, uid, uid)
    if close:
        os.close(fd)


def write_inside(root: str, path: str, data: bytes, uid: int | None, mode: int) -> None:
    """Write a file, making the folders on the way. **Errors**: `UsageError`."""
    fd = _open_inside(root, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, uid, mode)
    with open(fd, "wb") as file:
        file.write(data)
        os.fchmod(fd, mode)
        _give(fd, uid)


def read_inside(root: str, path: str, max_bytes: int) -> bytes:
    """Read a file. **Errors**: `UsageError`, also for one above ``max_bytes``."""
    fd = _open_inside(root, path, os.O_RDONLY, None)
    with open(fd, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise UsageError(f"{path!r} in the sandbox has more than {max_bytes} bytes")
    return data


def remove_directory(root: str) -> None:
    """Remove ``root``, however deep it goes and whatever rights its folders have.

    A folder's contents are moved up before it is removed, so neither paths nor open descriptors grow with the depth.

    **Errors**: `OSError` for what cannot be removed.
    """
    at = os.open(root, FOLDER)
    try:
        os.fchmod(at, 0o700)
        while names := os.listdir(at):
            for name in names:
                try:
                    os.unlink(name, dir_fd=at)
                except (IsADirectoryError, PermissionError):
                    _flatten(at, name)
    finally:
        os.close(at)
    os.rmdir(root)


def _flatten(at: int, name: str) -> None:
    os.chmod(name, 0o700, dir_fd=at)
    inner = os.open(name, FOLDER, dir_fd=at)
    try:
        for child in os.listdir(inner):
            if stat.S_ISDIR(os.stat(child, dir_fd=inner, follow_symlinks=False).st_mode):
                os.chmod(child, 0o700, dir_fd=inner)  # moving a folder needs the right to write to it
                os.rename(child, f"{secrets.token_hex(12)}", src_dir_fd=inner, dst_dir_fd=at)
            else:
                os.unlink(child, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=at)
