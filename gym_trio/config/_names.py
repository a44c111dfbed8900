"""The nearest right name, for an error that names a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MANY = 12


def nearest(name: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate that looks most like ``name``, or None when nothing is close."""
    close = difflib.get_close_matches(str(name), [str(one) for one in candidates], n=1, cutoff=cutoff)
    return close[0] if close else None


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """The end of an error message: the nearest right name, or else what there is to choose from."""
    known = sorted({str(one) for one in candidates})
    close = nearest(name, known)
    if close is not None:
        return f"; did you mean {close!r}?"
    if not known:
        return ""
    shown = ", ".join(known[:_MANY])
    return f"; known: {shown}, …" if len(known) > _MANY else f"; known: {shown}"
