"""``aggregate_metrics.json``, read entry by entry; of its tasks, of which there may be millions, one at a time."""

from __future__ import annotations

import codecs
import json
import pathlib
from collections.abc import Iterator
from typing import IO, Any

import attrs

from ..errors import UsageError
from ._jsonl import open_to_read

GROUPS = "group_level_metrics"
_BLOCK = 1 << 20
_LONGEST_TOKEN = 32
_DECODER = json.JSONDecoder()


def read_entries(path: pathlib.Path) -> list[dict[str, Any]]:
    """The entries of the file; the ``group_level_metrics`` of each are read anew each time they are gone through.

    **Errors**: `UsageError` for a file that is missing, is not JSON, or holds something else.
    """
    with open_to_read(path) as file:
        reader = _Reader(file, path)
        if reader.peek() != "[":
            reader.value()
            raise _no_metrics(path)
        entries = [_entry(reader, path) for _ in reader.items()]
        if reader.peek():
            raise reader.broken("Extra data")
    return entries


def _entry(reader: _Reader, path: pathlib.Path) -> dict[str, Any]:
    if reader.peek() != "{":
        reader.value()
        raise _no_metrics(path)
    entry: dict[str, Any] = {}
    for name in reader.members():
        if name == GROUPS and reader.peek() == "[":
            entry[name] = _Groups(path, reader.offset())
            for _ in reader.items():
                reader.value()
        else:
            entry[name] = reader.value()
    return entry


def _no_metrics(path: pathlib.Path) -> UsageError:
    return UsageError(f"{path}: holds no aggregate metrics (a list with an entry for each agent)")


@attrs.frozen
class _Groups:
    """The tasks of one entry, by the place of their list in the file."""

    path: pathlib.Path
    offset: int

    def __iter__(self) -> Iterator[Any]:
        with open_to_read(self.path) as file:
            file.seek(self.offset)
            reader = _Reader(file, self.path)
            for _ in reader.items():
                yield reader.value()


class _Reader:
    """Goes through a JSON document, and has no more of it in memory than the value at hand and a block."""

    def __init__(self, file: IO[bytes], path: pathlib.Path) -> None:
        self._file = file
        self._path = path
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text = ""
        self._at = 0
        self._start = file.tell()  # of the text, in the file
        self._line = 1  # of the text's first character, counted from where reading began
        self._ended = False

    def peek(self) -> str:
        """The next character that is no space; nothing at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in " \t\r\n":
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def take(self, expected: str) -> None:
        """Go over one character."""
        if self.peek() != expected:
            raise self.broken(f"Expecting '{expected}'")
        self._at += 1

    def items(self) -> Iterator[None]:
        """The items of a list; each is to be read before the next."""
        self.take("[")
        yield from self._parts("]")

    def members(self) -> Iterator[str]:
        """The names of an object's members; the value of each is to be read before the next."""
        self.take("{")
        for _ in self._parts("}"):
            if self.peek() != '"':
                raise self.broken("Expecting a name in double quotes")
            name: str = self.value()
            self.take(":")
            yield name

    def _parts(self, end: str) -> Iterator[None]:
        if self.peek() != end:
            yield
            while self.peek() != end:
                self.take(",")
                yield
        self.take(end)

    def value(self) -> Any:
        """The next value, whole."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not (_may_go_on(error) and self._more()):
                    raise self.broken(error.msg, error.pos) from None
            except (ValueError, RecursionError) as error:
                raise self.broken(str(error)[:100]) from None
            else:
                if not (_may_be_cut(self._text, end) and self._more()):
                    self._at = end
                    return value

    def offset(self) -> int:
        """Where the next character stands in the file."""
        return self._start + len(self._text[: self._at].encode())

    def broken(self, why: str, at: int | None = None) -> UsageError:
        """The error that names the place."""
        line = self._line + self._text.count("\n", 0, self._at if at is None else at)
        return UsageError(f"{self._path}: is not JSON ({why} at line {line})")

    def _more(self) -> bool:
        """Read on; what was gone over is let go. At least as much as is there, so that a long value is read soon."""
        if self._ended:
            return False
        self._start = self.offset()
        self._line += self._text.count("\n", 0, self._at)
        rest = self._text[self._at :]
        content = self._file.read(max(_BLOCK, len(rest)))
        self._ended = not content
        try:
            self._text, self._at = rest + self._decode(content, self._ended), 0
        except UnicodeDecodeError as error:
            raise UsageError(f"{self._path}: is not JSON (it is not UTF-8: {error.reason})") from None
        return not self._ended


def _may_be_cut(text: str, end: int) -> bool:
    """Whether a value may be the beginning of a number: nothing follows it, or what follows could be the rest."""
    return text[end : end + 1] in ("", ".", "e", "E") and end + _LONGEST_TOKEN >= len(text)


def _may_go_on(error: json.JSONDecodeError) -> bool:
    """Whether more text may mend it: it came at the end, or in a text that has no end yet."""
    return error.msg.startswith("Unterminated string") or error.pos + _LONGEST_TOKEN >= len(error.doc)
