"""Output of managed servers: from their pipes, line by line, to wherever it is wanted."""

from __future__ import annotations

import collections
import logging
import math
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO, Protocol

import trio

from ..threads import Threads

LOGGER = logging.getLogger("gym_trio.processes")

CHUNK_BYTES = 65536
MAX_LINE_BYTES = 32768
PARTIAL_SECONDS = 1.0
KEPT_LINES = 50
KEPT_LINE_CHARACTERS = 1000


class TextWriter(Protocol):
    """What an output stream must have: ``write``, and ``flush`` if it buffers."""

    def write(self, text: str, /) -> object: ...


Output = Callable[[str], object] | TextWriter


class LineSplitter:
    """Cuts a byte stream into lines of text.

    A line ends at ``\\n`` or ``\\r\\n``; one that is longer than the limit is cut there, between characters. What is
    not UTF-8 is replaced. Never holds more than the limit and one chunk.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._limit = max_line_bytes
        self._rest = b""

    @property
    def has_partial(self) -> bool:
        return bool(self._rest)

    @property
    def partial(self) -> str:
        """The line that has not ended yet."""
        return self._rest.decode("utf-8", "replace")

    def feed(self, data: bytes) -> list[str]:
        """Take a chunk and return the lines that it completes."""
        *whole, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n")
        pieces: list[bytes] = []
        for line in whole:
            pieces += [line] if len(line) <= self._limit else self._cut(line)
        if len(self._rest) > self._limit:
            *cut, self._rest = self._cut(self._rest)
            pieces += cut
        # One decode for all: a broken sequence cannot swallow the newline after it.
        return b"\n".join(pieces).decode("utf-8", "replace").split("\n") if pieces else []

    def flush(self) -> list[str]:
        """Return the partial line, if there is one, as if it had ended."""
        rest, self._rest = self.partial, b""
        return [rest] if rest else []

    def _cut(self, line: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        start = 0
        while len(line) - start > self._limit:
            end = start + self._limit
            # The first byte of a character is at most three before the limit; where there is none, this is no text.
            end = next((at for at in range(end, end - 4, -1) if line[at] & 0xC0 != 0x80), end)
            pieces.append(line[start:end])
            start = end
        return [*pieces, line[start:]]


class Sink:
    """Where all relays of one supervisor write: a callable, a text stream, or ``sys.stderr``.

    A stream is written in a thread, so that one that blocks (a full pipe, a stopped terminal) holds up the relays and
    in the end the servers that write, never the supervisor. A callable is called in the event loop with one line.

    **Errors**: the first exception of a callable or of the caller's own stream goes to ``on_error``, and nothing is
    written any more; a standard error stream that is closed is no error.
    """

    def __init__(self, output: Output | None, on_error: Callable[[Exception], None]) -> None:
        self._output = output
        self._on_error = on_error
        self._broken = False
        self._one_at_a_time = Threads(1)

    async def write(self, name: str, lines: Sequence[str]) -> None:
        """Write lines as ``(name) line``."""
        if self._broken or not lines:
            return
        prefixed = [f"({name}) {line}" for line in lines]
        try:
            if self._output is not None and not hasattr(self._output, "write"):
                for line in prefixed:
                    self._output(line)
            else:
                text = "\n".join([*prefixed, ""])
                await self._one_at_a_time.run(self._write, text)
        except Exception as exc:
            self._broken = True
            if self._output is not None:
                LOGGER.warning("the output of servers is not written any more", exc_info=True)
                self._on_error(exc)

    def _write(self, text: str) -> None:
        stream = sys.stderr if self._output is None else self._output
        if stream is not None and hasattr(stream, "write"):
            stream.write(text)
            getattr(stream, "flush", lambda: None)()


class Relay:
    """Reads one server's output until its pipe has no writer left.

    **Ownership**: owns the read end ``fd`` and the log file; `run` releases both.
    **Cancellation**: `run` may be cancelled at any time; what was not read is lost.
    """

    def __init__(self, name: str, fd: int, sink: Sink, log_path: str | os.PathLike[str] | None) -> None:
        self._name = name
        self._sink = sink
        self._splitter = LineSplitter()
        self._last: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._log: BinaryIO | None = None
        self._log_thread = Threads(1)
        self.finished = trio.Event()
        self._stream = trio.lowlevel.FdStream(fd)
        if log_path is not None:
            try:
                pathlib.Path(log_path).parent.mkdir(parents=True, exist_ok=True)
                self._log = open(log_path, "ab", buffering=0)  # noqa: SIM115  closed by close()
            except OSError:
                self._stream.close()
                raise

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines that were read, the unfinished one included."""
        partial = self._splitter.partial
        return (*self._last, partial[:KEPT_LINE_CHARACTERS]) if partial else tuple(self._last)

    async def run(self) -> None:
        try:
            while data := await self._receive():
                await self._log_bytes(data)
                await self._emit(self._splitter.feed(data))
            await self._emit(self._splitter.flush())
        finally:
            self.close()

    def close(self) -> None:
        self._stream.close()
        if self._log is not None:
            self._log.close()
        self.finished.set()

    async def _receive(self) -> bytes:
        """Wait for a chunk; a partial line that nobody completes is shown after a while."""
        while True:
            with trio.move_on_after(PARTIAL_SECONDS if self._splitter.has_partial else math.inf):
                return bytes(await self._stream.receive_some(CHUNK_BYTES))
            await self._emit(self._splitter.flush())

    async def _emit(self, lines: list[str]) -> None:
        self._last.extend(line[:KEPT_LINE_CHARACTERS] for line in lines[-KEPT_LINES:])
        await self._sink.write(self._name, lines)

    async def _log_bytes(self, data: bytes) -> None:
        if self._log is None:
            return
        try:
            await self._log_thread.run(self._log.write, data)
        except OSError as exc:
            LOGGER.warning("the log of %s takes no more output: %s", self._name, exc)
            self._log.close()
            self._log = None
