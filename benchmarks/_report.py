"""What was measured, in words, as JSON and as the README's table."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from ._records import Benchmark, Ratio, Result, Run
from ._rounds import compare

__all__ = ["MARKERS", "as_json", "as_table", "as_text", "machine", "put_between_markers", "with_earlier"]

MARKERS = ("<!-- benchmarks -->", "<!-- /benchmarks -->")


def machine() -> dict[str, str]:
    """Where it was measured, and how busy that was."""
    model = platform.processor() or platform.machine()
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0]
    return {
        "processor": model,
        "cores": str(usable),
        "system": f"{platform.system()} {platform.release()}",
        "load before": f"{load:.1f}",
    }


def amount(value: float, unit: str) -> str:
    """A figure that can be read."""
    if unit == "B":
        return f"{value / 2**20:.1f} MiB" if value >= 2**20 else f"{value / 2**10:.1f} KiB"
    if unit != "s":
        return f"{value:,.3g}"
    for size, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


def as_text(result: Result) -> Iterable[str]:
    """The medians and spans of every side, then the ratios."""
    benchmark = result.benchmark
    yield f"{benchmark.name}: {benchmark.claim}"
    width = max((len(name) for name in result.runs), default=0)
    for name, runs in result.runs.items():
        cells = [cell for figure, unit in benchmark.figures.items() for cell in _cells(benchmark, runs, figure, unit)]
        yield f"  {name:<{width}}  " + "   ".join(cells)
        if runs and runs[0].versions:
            yield f"  {'':<{width}}  ({', '.join(f'{key} {value}' for key, value in runs[0].versions.items())})"
    for name, reason in result.absent.items():
        yield f"  {name}: ABSENT, {reason}"
    for ratio in result.ratios:
        yield f"  {ratio_line(ratio)}"
    for figure, (name, bound) in benchmark.bounds.items():
        values = [run.figures[figure] for run in result.runs.get(name, ())]
        if values:
            met = statistics.median(values) <= bound
            yield f"  {name}: {amount(statistics.median(values), 's')}, at most {amount(bound, 's')}: " + (
                "reached" if met else "NOT reached"
            )


def _cells(benchmark: Benchmark, runs: tuple[Run, ...], figure: str, unit: str) -> Iterable[str]:
    values, per = _values(benchmark, runs, figure, unit)
    if not values:
        return
    name = figure.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")
    spread = f" ({amount(min(values), unit)}–{amount(max(values), unit)})" if len(values) > 1 else ""
    yield f"{name}{per} {amount(statistics.median(values), unit)}{spread}"


def _values(benchmark: Benchmark, runs: Iterable[Run], figure: str, unit: str) -> tuple[list[float], str]:
    """One figure of every run; CPU is told per unit of the work where the benchmark names one."""
    having = [run for run in runs if figure in run.figures]
    if unit == "s" and benchmark.per and figure.endswith("cpu_seconds"):
        return [run.figures[figure] / run.work[benchmark.per] for run in having], f" per {benchmark.per[:-1]}"
    return [run.figures[figure] for run in having], ""


def ratio_line(ratio: Ratio) -> str:
    """One ratio, its span and its target; or why there is none."""
    title = ratio.comparison.title
    if ratio.value is None:
        return f"{title}: no ratio, {ratio.refused}"
    target = ratio.comparison.target
    judged = "" if target is None else f", at most {target:g}: {'reached' if ratio.reached else 'NOT reached'}"
    return f"{title}: {ratio.value:.3g} ({ratio.low:.3g}–{ratio.high:.3g}){judged}"


def as_json(results: Iterable[Result], about: Mapping[str, str], date: str) -> str:
    """Everything, for other programs."""
    return json.dumps({"date": date, "machine": about, "benchmarks": [_plain(one) for one in results]}, indent=1) + "\n"


def _plain(result: Result) -> dict[str, Any]:
    return {
        "name": result.benchmark.name,
        "claim": result.benchmark.claim,
        "sides": {
            name: [{"work": run.work, "figures": run.figures, "versions": run.versions} for run in runs]
            for name, runs in result.runs.items()
        },
        "absent": result.absent,
        "ratios": [
            {
                "title": one.comparison.title,
                "figure": one.comparison.figure,
                "value": one.value,
                "low": one.low,
                "high": one.high,
                "target": one.comparison.target,
                "refused": one.refused,
            }
            for one in result.ratios
        ],
    }


def with_earlier(results: Iterable[Result], chosen: Mapping[str, Benchmark], earlier: str) -> list[Result]:
    """``results``, and those of an earlier run's `as_json` for the benchmarks that are not among them."""
    found = {result.benchmark.name: result for result in results}
    for one in json.loads(earlier)["benchmarks"]:
        if one["name"] in chosen and one["name"] not in found:
            benchmark, absent = chosen[one["name"]], one["absent"]
            runs = {name: tuple(Run(**run) for run in made) for name, made in one["sides"].items()}
            ratios = tuple(compare(comparison, runs, absent) for comparison in benchmark.comparisons)
            found[benchmark.name] = Result(benchmark, runs, absent, ratios)
    return [found[name] for name in chosen if name in found]


def as_table(results: Iterable[Result], about: Mapping[str, str], date: str) -> str:
    """The ratios as Markdown, with the medians that they are of, the machine, and the versions."""
    lines = ["| | this | over that | ratio | rounds from – to | aim |", "|---|---|---|---|---|---|"]
    versions: dict[str, str] = {}
    for result in results:
        versions |= {name: it for runs in result.runs.values() for run in runs for name, it in run.versions.items()}
        for one in result.ratios:
            if one.value is None:
                continue
            aim = "" if one.comparison.target is None else f"≤ {one.comparison.target:.3g}"
            missed = "" if one.reached in (None, True) else " (missed)"
            mine, theirs = (_median(result, side, one.comparison.figure) for side in _sides_of(one))
            lines.append(
                f"| {one.comparison.title} | {mine} | {theirs} | {one.value:.3g} | {one.low:.3g} – {one.high:.3g} "
                f"| {aim}{missed} |"
            )
    versions.pop("python", None)
    told = ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
    where = f"Measured {date} on {about['cores']} cores of {about['processor']}, {about['system']}; medians."
    return "\n".join([where, f"Versions: {told}.", "", *lines])


def _sides_of(ratio: Ratio) -> tuple[str, str]:
    return ratio.comparison.mine, ratio.comparison.theirs


def _median(result: Result, side: str, figure: str) -> str:
    unit = result.benchmark.figures.get(figure, "")
    values, per = _values(result.benchmark, result.runs[side], figure, unit)
    return amount(statistics.median(values), unit) + per


def put_between_markers(text: str, table: str) -> str:
    """``text`` with ``table`` in the place of what stood between the markers.

    **Errors**: ``ValueError`` when the markers are not there.
    """
    begin, end = MARKERS
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"there is no {begin} … {end} to put the table into")
    return f"{before}{begin}\n{table}\n{end}{after}"
