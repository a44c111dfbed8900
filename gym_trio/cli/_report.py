"""What a run prints when it has ended."""

from __future__ import annotations

from typing import Any

import attrs

from ..collection import Ending, HealthChecked, RunReport
from ._console import print_json, print_line, print_table, tell

__all__ = ["show_metrics", "show_report"]

# At most so many key metrics are shown per agent; all are in the file.
SHOWN_METRICS = 24
# Rows for one rollout: those of one attempt were told of with their lines, those of several are as they should be.
NAMED_BY_LINE = "duplicate_rows"
ENDED_EARLY = {Ending.STOPPED: "stopped", Ending.BUDGET: "the dispatch budget is used up"}


def show_report(report: RunReport, health: HealthChecked | None, *, as_json: bool) -> None:
    """The table of key metrics, the coverage line and the files' paths; or all of it as JSON."""
    if as_json:
        print_json(report_as_json(report, health))
        return
    for entry in report.aggregate or ():
        show_metrics(entry)
    print_line(f"coverage: {report.coverage}")
    if report.ending in ENDED_EARLY and report.coverage.missing:
        why = ENDED_EARLY[report.ending]
        print_line(f"{why}: {report.coverage.missing} rollouts are missing; the same command with --resume goes on")
    if report.failure_classes:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(report.failure_classes.items()))
        print_line(f"failures: {kinds} (see {report.files.failures})")
    if health is not None:
        print_line(health.report.line)
    for label, path in _paths(report).items():
        print_line(f"{label}: {path}")


def show_metrics(entry: dict[str, Any]) -> None:
    """The key metrics of one agent."""
    name = (entry.get("agent_ref") or {}).get("name") or "all"
    metrics = entry.get("key_metrics") or {}
    shown = sorted(metrics.items(), key=lambda item: (item[0] != "mean/reward", item[0]))[:SHOWN_METRICS]
    rows = [(key, f"{value:.4g}" if isinstance(value, int | float) else str(value)) for key, value in shown]
    deviation = (entry.get("agent_metrics") or {}).get("std/reward")
    if deviation is not None:
        rows.insert(1, ("std/reward", f"{deviation:.4g}"))
    print_table(name, ("metric", "value"), rows)
    for warning in entry.get("warnings") or ():
        if warning.get("kind") != NAMED_BY_LINE:
            tell(f"warning: {name}: {' '.join(str(warning.get('message')).split())}")


def _paths(report: RunReport) -> dict[str, str]:
    files = report.files
    named = {
        "rollouts": files.output,
        "failures": files.failures,
        "inputs": files.materialized,
        "metrics": files.aggregate,
        "timing": files.timing,
    }
    return {label: str(path) for label, path in named.items() if path.exists() and path.stat().st_size}


def report_as_json(report: RunReport, health: HealthChecked | None) -> dict[str, Any]:
    """The report for machines."""
    return {
        "ending": str(report.ending),
        "complete": report.complete,
        "coverage": attrs.asdict(report.coverage),
        "completed": report.completed,
        "failed": report.failed,
        "drained": report.drained,
        "late": report.late,
        "failure_classes": dict(report.failure_classes),
        "unfinished": [
            {"task": one.task, "rollout": one.rollout, "delivery": str(one.delivery)} for one in report.unfinished
        ],
        "mean_reward": report.mean_reward,
        "timing": dict(report.timing),
        "metrics": [
            {name: entry.get(name) for name in ("agent_ref", "key_metrics", "warnings")}
            for entry in report.aggregate or ()
        ],
        "health": None if health is None else health.report.summary["run"]["verdicts"],
        "notes": list(report.notes),
        "files": _paths(report),
    }
