"""Takes a leading ``<think>...</think>`` out of a text that arrives in pieces."""

from __future__ import annotations

import enum

__all__ = ["ThinkingSplitter"]

_OPEN, _CLOSE = "<think>", "</think>"


class _Place(enum.Enum):
    """Where in the text the splitter is."""

    BEFORE = enum.auto()  # only white space or a part of the opening tag so far
    INSIDE = enum.auto()  # after the opening tag
    GAP = enum.auto()  # after the closing tag, in the white space before the answer
    AFTER = enum.auto()  # in the answer


class ThinkingSplitter:
    """`feed` gives back ``(reasoning, text)``; what may still become a tag is held back until it is decided."""

    def __init__(self) -> None:
        self._place = _Place.BEFORE
        self._held = ""

    def feed(self, piece: str) -> tuple[str, str]:
        self._held += piece
        if self._place is _Place.BEFORE:
            start = self._held.lstrip()
            if start.startswith(_OPEN):
                self._place, self._held = _Place.INSIDE, start[len(_OPEN) :]
            elif not _OPEN.startswith(start):
                self._place = _Place.AFTER
        reasoning = self._inside() if self._place is _Place.INSIDE else ""
        if self._place is _Place.GAP:
            self._held = self._held.lstrip()
            if self._held:
                self._place = _Place.AFTER
        if self._place is not _Place.AFTER:
            return reasoning, ""
        text, self._held = self._held, ""
        return reasoning, text

    def _inside(self) -> str:
        before, tag, rest = self._held.partition(_CLOSE)
        if tag:
            self._place, self._held = _Place.GAP, rest
            return before
        kept = next((n for n in range(len(_CLOSE) - 1, 0, -1) if before.endswith(_CLOSE[:n])), 0)
        cut = len(before) - kept
        self._held = before[cut:]
        return before[:cut]

    def finish(self) -> tuple[str, str]:
        """What was still held back when the text ended."""
        held, self._held = self._held, ""
        if self._place is _Place.INSIDE:
            return held, ""
        return "", held
