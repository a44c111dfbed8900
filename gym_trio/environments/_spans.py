"""Parts of a text from an opening to its end, in a time in proportion to the text's length.

One expression for the whole of a part, ``opening.*?end``, looks for the end anew from each opening, which takes the
square of the length where a reply is full of openings and has no end.
"""

from __future__ import annotations

import re

__all__ = ["without_spans"]

Ends = tuple[re.Pattern[str], re.Pattern[str]]


def without_spans(text: str, *kinds: Ends) -> str:
    """``text`` less each part from an opening to the first end of its kind after it; one without an end stays.

    No opening may begin like another kind's.
    """
    kept: list[str] = []
    place = 0
    nexts = {kind: kind[0].search(text) for kind in kinds}
    while True:
        found = [(match.start(), kind, match) for kind, match in nexts.items() if match is not None]
        if not found:
            return "".join([*kept, text[place:]])
        start, kind, opening = min(found, key=lambda each: each[0])
        end = kind[1].search(text, opening.end())
        if end is None:
            nexts[kind] = None  # nor has a later one
            continue
        kept.append(text[place:start])
        place = end.end()
        for each, match in nexts.items():
            if match is not None and match.start() < place:
                nexts[each] = each[0].search(text, place)
