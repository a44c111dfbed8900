"""The ratios as a bar chart in SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from html import escape

from ._records import Ratio, Result

__all__ = ["as_svg"]

LEFT, WIDTH, ROW, TOP = 380, 420, 26, 64
GOOD, BAD, PLAIN = "#2a7f62", "#b3462d", "#4a6fa5"


def as_svg(results: Iterable[Result], about: Mapping[str, str], date: str) -> str:
    """A bar per ratio on a logarithmic scale: to the left of 1 is cheaper than the other side. A tick is the aim."""
    ratios = [one for result in results for one in result.ratios if one.value]
    least = min([0.01, *(one.low or one.value or 1 for one in ratios)])
    most = max([2.0, *(one.high or one.value or 1 for one in ratios)])
    low, high = math.floor(math.log10(least) * 2) / 2, math.log10(most) + 0.05

    def at(value: float) -> float:
        return LEFT + WIDTH * (math.log10(max(value, 10**low)) - low) / (high - low)

    height = TOP + ROW * len(ratios) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 90}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="12" y="24" font-size="16" font-weight="bold">gym_trio over the other side: less is better</text>',
        f'<text x="12" y="44" fill="#555">{escape(date)}, {escape(about["cores"])} cores of '
        f"{escape(about['processor'])}. Thin line: from round to round. Tick: the aim.</text>",
    ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = at(10.0**power)
        colour = "#333" if power == 0 else "#ccc"
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 24}" stroke="{colour}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle" fill="#555">{10.0**power:g}</text>')
    for number, one in enumerate(ratios):
        parts += _bar(one, TOP + ROW * number, at, at(10**low))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(one: Ratio, y: int, at: Callable[[float], float], left: float) -> Iterable[str]:
    colour = PLAIN if one.reached is None else GOOD if one.reached else BAD
    middle = y + ROW / 2 - 3
    value, low, high = one.value or 0, one.low or 0, one.high or 0
    right = at(value)
    yield f'<text x="{LEFT - 10}" y="{middle + 5}" text-anchor="end">{escape(one.comparison.title)}</text>'
    yield f'<rect x="{left:.1f}" y="{y}" width="{max(right - left, 1):.1f}" height="{ROW - 8}" fill="{colour}"/>'
    yield f'<line x1="{at(low):.1f}" x2="{at(high):.1f}" y1="{middle}" y2="{middle}" stroke="#222"/>'
    if one.comparison.target is not None:
        x = at(one.comparison.target)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 3}" y2="{y + ROW - 5}" stroke="#000" stroke-width="2"/>'
    yield f'<text x="{max(right, at(high)) + 6:.1f}" y="{middle + 5}">{value:.3g}</text>'
