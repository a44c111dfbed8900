"""Files of one JSON object per line: read, appended to, and repaired where a write was cut."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import attrs
import orjson
import trio

from ..errors import RowError, RunError, UsageError
from ._lock import is_still
from ._paths import is_device

_BLOCK = 1 << 16


def read_jsonl(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every row with its line number, one at a time; blank lines are skipped.

    **Errors**: `UsageError` if the file cannot be opened; `RowError` that names the line which holds no JSON object.
    """
    with open_to_read(path) as file:
        for number, line in enumerate(file, 1):
            if not line.isspace():
                yield number, parse_line(line, path, number)


def open_to_read(path: pathlib.Path) -> IO[bytes]:
    """The file, opened to read bytes. **Errors**: `UsageError` that says why it cannot be."""
    if is_device(path):
        raise UsageError(f"{path}: must be a file, for it is read more than once; it is a device or a pipe")
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None


def parse_line(line: bytes, path: pathlib.Path, number: int) -> dict[str, Any]:
    """The object that a line holds."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RowError(f"is not JSON ({error.msg} at column {error.colno})", source=str(path), line=number) from None
    if not isinstance(row, dict):
        raise RowError(f"must be a JSON object, not {type(row).__name__}", source=str(path), line=number)
    return row


def dump_line(row: Mapping[str, Any]) -> bytes:
    """One row as a line. **Errors**: those of `dump`."""
    return dump(row, orjson.OPT_APPEND_NEWLINE)


def dump_json(value: Any) -> bytes:
    """A value as an indented JSON document. **Errors**: those of `dump`."""
    return dump(value, orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def dump(value: Any, option: int = 0) -> bytes:
    """A value as JSON, with an option of orjson's.

    What JSON cannot say becomes its ``str``, half a character becomes "?", an integer beyond 64 bits a float.

    **Errors**: ``ValueError`` for a value that contains itself, or is nested too deeply.
    """
    option |= orjson.OPT_NON_STR_KEYS
    try:
        return orjson.dumps(value, default=str, option=option)
    except TypeError:
        pass
    try:
        return orjson.dumps(_sayable(value), default=str, option=option)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"cannot be written as JSON ({str(error)[:100] or 'too deep'})") from None


def _sayable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else _as_float(value)
    if isinstance(value, Mapping):
        return {_sayable(key if isinstance(key, str) else str(key)): _sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_sayable(item) for item in value]
    return value


def _as_float(value: int) -> float | str:
    try:
        return float(value)
    except OverflowError:
        return str(value)


def write_whole(path: pathlib.Path, content: bytes, *, fsync: bool = False) -> None:
    """Put ``content`` in the place of whatever ``path`` held, all at once.

    **Errors**: `RunError` that names the file.
    """
    with replacing(path, fsync=fsync) as file:
        file.write(content)


def write_rows(path: pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put ``rows`` in the place of whatever ``path`` held, all at once, without holding them all.

    **Errors**: `RunError` that names the file.
    """
    with replacing(path) as file:
        for row in rows:
            file.write(dump_line(row))


@contextlib.contextmanager
def replacing(path: pathlib.Path, *, fsync: bool = False) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of ``path`` when the block ends well, and is gone when it does not.

    **Errors**: `RunError` that names ``path``, for what goes wrong with the file itself.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            if fsync:
                os.fsync(file.fileno())
        temporary.replace(path)
        if fsync:
            _sync_folder(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sync_folder(path: pathlib.Path) -> None:
    """A file is on the disk when its name in its folder is."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def repair_tail(path: pathlib.Path) -> str | None:
    """Mend a last line that a kill or a full disk has torn; returns what was done, None if nothing was wrong.

    A whole object that only lacks its line end gets it: no JSON object is the beginning of another, so nothing is
    missing from it. Anything else is cut off, for its row will be run again.
    """
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            start = _last_line_start(file, size)
            file.seek(start)
            tail = file.read()
            if not tail or tail.endswith(b"\n"):
                return None  # a whole line that is no JSON was not torn; whoever reads it will name it
            if _is_object(tail):
                file.write(b"\n")
                return f"{path}: the last line had no line end, and got one"
            file.truncate(start)
            return f"{path}: the last line was torn, and {len(tail)} bytes were cut off; its row will be run again"
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{path}: cannot be repaired ({error.strerror})") from None


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _last_line_start(file: IO[bytes], size: int) -> int:
    """Where the last line begins; its own line end is not the end of the one before."""
    end = size - 1
    while end > 0:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


@attrs.define
class JsonlSink:
    """Appends rows to one file, each with one write that the operating system has taken before the next begins.

    **Ownership**: a context manager; leaving it closes the file.
    """

    path: pathlib.Path
    fsync: bool = False
    written: int = 0
    _descriptor: int = -1
    _size: int = 0
    _dirty: bool = False

    def __enter__(self) -> JsonlSink:
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if self.fsync:
                _sync_folder(self.path)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written ({error.strerror})") from None
        self._size = os.fstat(self._descriptor).st_size
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.fsync and self._dirty:
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    async def settle(self) -> None:
        """With ``fsync``, wait until all that was appended is on the disk.

        **Cancellation**: before the wait begins, or after it has ended.
        """
        if self.fsync and self._dirty:
            await trio.to_thread.run_sync(os.fsync, self._descriptor)
            self._dirty = False

    def append_nowait(self, row: Mapping[str, Any]) -> None:
        """Write one row.

        **Errors**: ``ValueError`` for a row that is none. `RunError` when the disk is full or gone; what was written
        of the row is taken back if it can be. `RunError` too when the file does not stand at its path any more; the
        row is where the file is.
        """
        line = memoryview(dump_line(row))
        try:
            done = 0
            while done < len(line):
                done += os.write(self._descriptor, line[done:])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise RunError(f"{self.path}: cannot be written ({error.strerror}); the run can be resumed") from None
        self._size += len(line)
        self.written += 1
        self._dirty = True
        if not self._is_there():
            raise RunError(
                f"{self.path}: was moved, removed or replaced while the run was writing it;"
                " if it was moved, move it back, and resume the run"
            )

    def _is_there(self) -> bool:
        with contextlib.suppress(OSError):
            return is_still(self.path, self._descriptor)
        return False
