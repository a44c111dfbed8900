"""The ratios as a bar chart in SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape

import attrs

from ._records import Ratio, Result

__all__ = ["as_svg"]

ROW, HEADING, TOP, BOTTOM, MARGIN = 24, 30, 96, 52, 16
SCALE_WIDTH, TOLD_WIDTH, LETTER_WIDTH = 420, 310, 6.7  # the last: what a letter of 13 px takes on average
GOOD, BAD, PLAIN, QUIET = "#2a7f62", "#b3462d", "#4a6fa5", "#666"
LEGEND = ((GOOD, "aim reached"), (BAD, "aim missed"), (PLAIN, "no aim set"))


@attrs.frozen
class _Scale:
    """A logarithmic axis from ``low`` to ``high``, both powers of ten, on which 1 is always shown."""

    low: float
    high: float
    left: float

    def at(self, value: float) -> float:
        part = (math.log10(max(value, 10**self.low)) - self.low) / (self.high - self.low)
        return self.left + SCALE_WIDTH * min(part, 1)


def as_svg(results: Iterable[Result], about: Mapping[str, str], date: str) -> str:
    """A row per ratio under the name of its benchmark. A bar goes from 1 to the ratio: to the left is cheaper."""
    shown = [result for result in results if result.ratios]
    ratios = [one for result in shown for one in result.ratios]
    titles = [one.comparison.title for one in ratios] + [f"{one.benchmark.name}: " for one in shown]
    left = MARGIN + 12 + LETTER_WIDTH * max((len(title) for title in titles), default=0)
    told = [value for one in ratios if one.value for value in (one.value, one.low, one.high, one.comparison.target)]
    values = [value for value in told if value]
    scale = _Scale(
        math.floor(math.log10(min([0.1, *values]))), max(0.3, math.log10(max([1.0, *values])) + 0.05), left + 12
    )
    height = TOP + sum(HEADING + ROW * len(one.ratios) for one in shown) + BOTTOM
    width = scale.left + SCALE_WIDTH + TOLD_WIDTH + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="Helvetica, Arial, sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(MARGIN, 28, "gym_trio over what it is compared with: to the left of 1 it needs less", size=18, bold=True),
        _text(
            MARGIN,
            50,
            f"{date}, {about['cores']} cores of {about['processor']}. Medians; the thin line spans the rounds.",
            QUIET,
        ),
        *_legend(MARGIN, 72),
        *_axis(scale, TOP, height - BOTTOM),
    ]
    y = float(TOP)
    for result in shown:
        parts.append(_text(MARGIN, y + 20, f"{result.benchmark.name}: {result.benchmark.claim}", bold=True))
        y += HEADING
        for one in result.ratios:
            parts += _row(one, y, scale, left)
            y += ROW
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(
    x: float, y: float, words: str, colour: str = "#111", *, anchor: str = "start", size: int = 13, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{weight}>'
        f"{escape(words)}</text>"
    )


def _line(x: float, top: float, to: float, bottom: float, colour: str, width: float = 1) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{to:.1f}" y2="{bottom:.1f}" stroke="{colour}" stroke-width="{width}"/>'
    )


def _legend(x: float, y: float) -> Iterable[str]:
    for colour, words in LEGEND:
        yield f'<rect x="{x:.1f}" y="{y - 11}" width="14" height="12" fill="{colour}"/>'
        yield _text(x + 20, y, words, QUIET)
        x += 36 + LETTER_WIDTH * len(words)
    yield _line(x + 6, y - 13, x + 6, y + 3, "#000", 2.5)
    yield _text(x + 16, y, "the aim: at most this", QUIET)


def _axis(scale: _Scale, top: float, bottom: float) -> Iterable[str]:
    for power in range(math.ceil(scale.low), math.floor(scale.high) + 1):
        x = scale.at(10.0**power)
        yield _line(x, top, x, bottom, "#333" if power == 0 else "#ddd")
        yield _text(x, bottom + 18, f"1/{10**-power:,}" if power < 0 else f"{10**power:,}", QUIET, anchor="middle")
    middle = scale.left + SCALE_WIDTH / 2
    yield _text(middle, bottom + 38, "ratio, on a logarithmic scale; 1: the same as the other", QUIET, anchor="middle")


def _row(one: Ratio, y: float, scale: _Scale, left: float) -> Iterable[str]:
    middle, target = y + ROW / 2, one.comparison.target
    right = scale.left + SCALE_WIDTH + 14
    yield _text(left, middle + 5, one.comparison.title, anchor="end")
    if one.value is None:
        yield _text(right, middle + 5, "no ratio: absent, or other work", QUIET)
        return
    colour = PLAIN if one.reached is None else GOOD if one.reached else BAD
    ends = sorted((scale.at(one.value), scale.at(1)))
    yield (
        f'<rect x="{ends[0]:.1f}" y="{y + 4:.1f}" width="{max(ends[1] - ends[0], 1):.1f}" height="{ROW - 8}" '
        f'fill="{colour}"/>'
    )
    yield _line(scale.at(one.low or one.value), middle, scale.at(one.high or one.value), middle, "#111")
    if target is not None:
        yield _line(scale.at(target), y + 1, scale.at(target), y + ROW - 1, "#000", 2.5)
    aim = "" if target is None else f", aim ≤ {target:.3g}"
    yield _text(right, middle + 5, f"{one.value:.3g} ({one.low:.3g} to {one.high:.3g}){aim}")
