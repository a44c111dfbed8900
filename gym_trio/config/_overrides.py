"""Overrides as they are written on a command line: ``++shop_agent.responses_api_agents.simple_agent.max_steps=4``.

``++key=value`` sets a key, ``+key=value`` does too, ``key=value`` sets one that is there already (or is a run key),
``~key`` takes one away. Values: numbers, ``true``, ``false``, ``null``, quoted or plain text, ``[a,b]``, ``{a: 1}``.
"""

from __future__ import annotations

import enum
import re
from typing import Any

import attrs

from ..errors import ConfigError

COMMAND_LINE = "command line"


class Verb(enum.Enum):
    """What an override does to its key."""

    SET = "++"  # whether or not it is there
    CHANGE = ""  # only if it is there: catches a mistyped name
    DELETE = "~"  # it must be there


@attrs.frozen
class Override:
    """One override, taken apart."""

    verb: Verb
    path: tuple[str, ...]
    value: Any
    text: str

    @property
    def key(self) -> str:
        return ".".join(self.path)


_FORM = re.compile(r"(?P<verb>\+\+|\+|~)?(?P<key>[^=\s+~][^=\s]*?)\s*(?:=(?P<value>.*))?", re.DOTALL)
_INDEX = re.compile(r"\[(\d+)\]")


def parse_override(text: str) -> Override:
    """Take one override apart.

    **Errors**: `ConfigError` that shows the override and the form it should have.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not an override; write ++key.path=value", file=COMMAND_LINE)
    path = tuple(_INDEX.sub(r".\1", match["key"]).split("."))
    verb = {"++": Verb.SET, "+": Verb.SET, "~": Verb.DELETE, None: Verb.CHANGE}[match["verb"]]
    if not all(path) or (match["value"] is None and verb is not Verb.DELETE):
        raise ConfigError(f"{text!r} is not an override; write ++key.path=value", file=COMMAND_LINE)
    value = None if match["value"] is None else parse_value(match["value"], key=".".join(path))
    return Override(verb, path, value, text)


def parse_value(text: str, *, key: str | None = None) -> Any:
    """The value that an override's text stands for."""
    reader = _Reader(text, key)
    value = reader.value("")
    reader.spaces()
    if reader.rest:
        raise reader.error(f"nothing may follow the value, but {reader.rest!r} does")
    return value


_INT = re.compile(r"[+-]?\d+(_\d+)*")
_FLOAT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_FLOAT_WORDS = {"inf": float("inf"), "+inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class _Reader:
    """Reads one value from the front of a text, to any depth."""

    def __init__(self, text: str, key: str | None) -> None:
        self._text = text
        self._at = 0
        self._key = key

    @property
    def rest(self) -> str:
        return self._text[self._at :]

    def error(self, message: str) -> ConfigError:
        return ConfigError(f"{self._text!r} cannot be read: {message}", file=COMMAND_LINE, key=self._key)

    def spaces(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def value(self, ends: str) -> Any:
        self.spaces()
        start = self.rest[:1]
        if start == "[":
            return self._list()
        if start == "{":
            return self._mapping()
        if start and start in "\"'":
            return self._quoted(start)
        return _plain(self._until(ends).strip())

    def _list(self) -> list[Any]:
        self._at += 1
        items: list[Any] = []
        while not self._closes("]"):
            items.append(self.value(",]"))
            self._separator("]")
        return items

    def _mapping(self) -> dict[str, Any]:
        self._at += 1
        items: dict[str, Any] = {}
        while not self._closes("}"):
            self.spaces()
            start = self.rest[:1]
            name = self._quoted(start) if start and start in "\"'" else self._until(":,}").strip()
            self.spaces()
            if self.rest[:1] != ":":
                raise self.error(f"{name!r} has no ':' and no value")
            self._at += 1
            items[name] = self.value(",}")
            self._separator("}")
        return items

    def _closes(self, bracket: str) -> bool:
        self.spaces()
        if self.rest[:1] == bracket:
            self._at += 1
            return True
        return False

    def _separator(self, bracket: str) -> None:
        self.spaces()
        if self.rest[:1] == ",":
            self._at += 1
        elif self.rest[:1] != bracket:
            raise self.error(f"{bracket!r} or ',' is missing")

    def _quoted(self, quote: str) -> str:
        begin = self._at + 1
        end = begin
        while end < len(self._text) and self._text[end] != quote:
            end += 2 if self._text[end] == "\\" else 1
        if end >= len(self._text):
            raise self.error(f"the quote {quote} is not closed")
        self._at = end + 1
        return _ESCAPE.sub(r"\1", self._text[begin:end])

    def _until(self, ends: str) -> str:
        """Plain text up to one of ``ends``; an interpolation ``${...}`` is one piece."""
        begin, depth = self._at, 0
        while self._at < len(self._text):
            if self._text.startswith("${", self._at):
                depth += 1
                self._at += 1
            elif depth and self._text[self._at] == "}":
                depth -= 1
            elif not depth and self._text[self._at] in ends:
                break
            self._at += 1
        return self._text[begin : self._at]


def _plain(text: str) -> Any:
    lowered = text.lower()
    if lowered in _WORDS:
        return _WORDS[lowered]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _FLOAT_WORDS.get(lowered, text)
