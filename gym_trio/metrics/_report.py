"""A comparison as JSON and as Markdown: pure functions of the `Comparison`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ._compare import AgentComparison, Comparison, MetricRow, MetricValue
from ._flips import PASS_THRESHOLD, FlipSummary

NOTHING = "—"


def to_json(comparison: Comparison, provenance: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The content of ``compare_report.json``; ``provenance`` (files, command, time) is put in front of it."""
    return {
        "schema_version": "1",
        **(provenance or {}),
        "labels": list(comparison.labels),
        "comparisons": [_agent_json(agent) for agent in comparison.comparisons],
        "skipped_agents": comparison.skipped_agents,
    }


def _agent_json(agent: AgentComparison) -> dict[str, Any]:
    flips = attrs.asdict(agent.flips)
    return {
        "baseline_agent": agent.baseline_agent,
        "candidate_agents": [agent.candidate_agent],
        "baseline_task_count": agent.task_counts[0],
        "candidate_task_counts": [agent.task_counts[1]],
        "baseline_repeat_count": agent.repeat_counts[0],
        "candidate_repeat_counts": [agent.repeat_counts[1]],
        "metrics": [_metric_json(row) for row in agent.metrics],
        "flips": [{"candidate_index": 0, **flips, "flips": list(flips["flips"])}],
        "notes": list(agent.notes),
    }


def _metric_json(row: MetricRow) -> dict[str, Any]:
    change = attrs.asdict(row.change)
    paired = change.pop("paired")
    if paired is not None:
        interval = paired.pop("interval")
        paired |= {"ci_low_95": interval["low"], "ci_high_95": interval["high"]}
    candidate = None if row.candidate is None else attrs.asdict(row.candidate) | change | {"paired_bootstrap": paired}
    return {
        "metric": row.metric,
        "is_key_metric": row.is_key_metric,
        "present_in": row.present_in,
        "baseline": None if row.baseline is None else attrs.asdict(row.baseline),
        "candidates": [candidate],
    }


def to_markdown(comparison: Comparison, provenance: Mapping[str, Any] | None = None) -> str:
    """The content of ``compare_report.md``."""
    first, second = comparison.labels
    lines = [f"# {second} compared with {first}", ""]
    lines += [f"- {name}: `{value}`" for name, value in (provenance or {}).items()]
    for agent in comparison.comparisons:
        lines += ["", *_agent_markdown(agent)]
    if comparison.skipped_agents:
        lines += ["", "## Not compared", ""]
        lines += [f"- only in the {side}: {', '.join(names)}" for side, names in comparison.skipped_agents.items()]
    return "\n".join(lines).rstrip() + "\n"


def _agent_markdown(agent: AgentComparison) -> list[str]:
    names = dict.fromkeys((agent.baseline_agent, agent.candidate_agent))
    key = [row for row in agent.metrics if row.is_key_metric]
    other = [row for row in agent.metrics if not row.is_key_metric and row.baseline and row.candidate]
    alone = [row for row in agent.metrics if len(row.present_in) == 1]
    repeats = [NOTHING if count is None else str(count) for count in agent.repeat_counts]
    lines = [
        f"## {' and '.join(names)}",
        "",
        *_table(
            ("", "Baseline", "Candidate"),
            [
                ("Tasks", *map(str, agent.task_counts)),
                ("Repeats", *repeats),
            ],
        ),
        "",
        "### Key metrics",
        "",
        *_metric_table(key),
        "",
        "Δ is candidate minus baseline, between means over repeats where a run has repeats. The Welch interval comes "
        "from the runs' repeats, the paired one from resampling the tasks that both runs have; both are at 95 %.",
    ]
    if other:
        summary = f"<summary>{len(other)} other metrics</summary>"
        lines += ["", "<details>", summary, "", *_metric_table(other), "", "</details>"]
    lines += ["", *_flips_markdown(agent.flips)]
    if alone:
        lines += ["", "### In one run only", "", *(f"- `{row.metric}`: {row.present_in[0]}" for row in alone)]
    if agent.notes:
        lines += ["", "### Notes", "", *(f"- {note}" for note in agent.notes)]
    return lines


def _metric_table(rows: Sequence[MetricRow]) -> list[str]:
    header = ("Metric", "Δ", "Δ 95 % (Welch)", "Δ 95 % (paired)", "Baseline", "95 %", "Candidate", "95 %")
    return _table(header, [_metric_cells(row) for row in rows]) if rows else ["None."]


def _metric_cells(row: MetricRow) -> tuple[str, ...]:
    change = row.change
    percent = "" if change.delta_pct is None else f" ({change.delta_pct:+.1f} %)"
    delta = NOTHING if change.delta is None else f"{_signed(change.delta)}{percent}"
    paired = change.paired.interval if change.paired else None
    return (
        f"`{row.metric}`",
        delta,
        _range(change.delta_ci_low, change.delta_ci_high, signed=True),
        _range(paired.low, paired.high, signed=True) if paired else NOTHING,
        *_value_cells(row.baseline),
        *_value_cells(row.candidate),
    )


def _value_cells(value: MetricValue | None) -> tuple[str, str]:
    return (NOTHING, NOTHING) if value is None else (_plain(value.point), _range(value.ci_low, value.ci_high))


def _flips_markdown(flips: FlipSummary) -> list[str]:
    lines = ["### Flipped tasks", ""]
    if flips.mode == "unavailable":
        return [*lines, f"Not available: {flips.reason}."]
    lines += [
        f"{flips.common_task_count} tasks in both runs: {flips.pass_to_fail_count} from pass to fail, "
        f"{flips.fail_to_pass_count} from fail to pass (net {flips.net:+d}), {flips.unchanged_count} unchanged, "
        f"{flips.tied_count} at {PASS_THRESHOLD}. A task passes when its mean reward is above {PASS_THRESHOLD}. "
        "Tasks are joined by their index, which takes for granted that both runs had the same tasks in the same order.",
    ]
    if flips.flips:
        header = ("Task", "Direction", "Baseline", "Candidate", "Δ", "Baseline repeats", "Candidate repeats")
        cells = [
            (
                str(flip.task_index),
                flip.direction.replace("_to_", " → "),
                _plain(flip.baseline_score),
                _plain(flip.candidate_score),
                _signed(flip.delta),
                _rewards(flip.baseline_rewards),
                _rewards(flip.candidate_rewards),
            )
            for flip in flips.flips
        ]
        lines += ["", *_table(header, cells)]
    return lines


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_line(header), _line(["---"] * len(header)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plain(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def _signed(value: float) -> str:
    return f"{value:+.4f}" if abs(value) < 10 else f"{value:+.2f}"


def _range(low: float | None, high: float | None, *, signed: bool = False) -> str:
    if low is None or high is None:
        return NOTHING
    show = _signed if signed else _plain
    return f"[{show(low)}, {show(high)}]"


def _rewards(rewards: Sequence[float] | None) -> str:
    return ", ".join(f"{reward:g}" for reward in rewards) if rewards else NOTHING
