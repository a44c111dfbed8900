"""`remember`: what was worked out once and comes again, within bounds."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

__all__ = ["remember"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def remember(known: dict[K, V], key: K, value: V, most: int) -> V:
    """Keep ``value`` and give it back. Past ``most`` all are forgotten: what comes often is soon there again."""
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value
