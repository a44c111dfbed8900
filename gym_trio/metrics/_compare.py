"""``eval compare``: two runs, from the entries of their ``aggregate_metrics.json``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ..errors import RowError, UsageError
from ._aggregate import Aggregator
from ._flips import SHOWN_EACH_WAY, FlipSummary, flip_summary
from ._intervals import PairedDifference, paired_bootstrap, welch
from ._names import ACROSS_REPEATS, is_primary_metric
from ._numbers import as_number
from ._rows import AGENT_REF, COUNTED_AS_ZERO
from ._tasks import TaskScores

Entry = Mapping[str, Any]


@attrs.frozen
class MetricValue:
    """One run's reading of a metric and what the run recorded of its uncertainty."""

    value: float
    ci_low: float | None = None
    ci_high: float | None = None
    se_across_repeats: float | None = None
    mean_across_repeats: float | None = None
    std_err_across_runs: float | None = None

    @property
    def point(self) -> float:
        """What is compared: the mean over repeats where there are repeats."""
        return self.value if self.mean_across_repeats is None else self.mean_across_repeats


@attrs.frozen
class Change:
    """Candidate minus baseline: Welch's interval from the runs' repeats, and resampling of their common tasks."""

    delta: float | None = None
    delta_pct: float | None = None
    delta_ci_low: float | None = None
    delta_ci_high: float | None = None
    paired: PairedDifference | None = None


@attrs.frozen
class MetricRow:
    """One metric in both runs; a run that does not have it has None."""

    metric: str
    is_key_metric: bool
    baseline: MetricValue | None
    candidate: MetricValue | None
    change: Change

    @property
    def present_in(self) -> list[str]:
        sides = {"baseline": self.baseline, "candidate[0]": self.candidate}
        return [name for name, value in sides.items() if value is not None]


@attrs.frozen
class AgentComparison:
    """One agent of the baseline beside one of the candidate."""

    baseline_agent: str
    candidate_agent: str
    task_counts: tuple[int, int]
    repeat_counts: tuple[int | None, int | None]
    metrics: tuple[MetricRow, ...]
    flips: FlipSummary
    notes: tuple[str, ...]


@attrs.frozen
class Comparison:
    """Two runs. ``labels`` name them; ``skipped_agents`` lists, for each side, agents that the other does not have."""

    labels: tuple[str, str]
    comparisons: tuple[AgentComparison, ...]
    skipped_agents: dict[str, list[str]]


@attrs.frozen
class _Side:
    """What is kept of an entry: all of it but its tasks, and of these their scores."""

    entry: Entry
    tasks: TaskScores


def compare(
    baseline: Iterable[Entry],
    candidate: Iterable[Entry],
    *,
    agent: str | None = None,
    baseline_agent: str | None = None,
    candidate_agent: str | None = None,
    labels: tuple[str, str] = ("baseline", "candidate"),
    flips_shown: int = SHOWN_EACH_WAY,
    seed: int = 0,
) -> Comparison:
    """Compare two runs, agent by agent.

    ``baseline_agent`` and ``candidate_agent`` choose one on their side, ``agent`` one on both; by default every agent
    that both runs have. An entry without ``repeat_level_metrics`` gets them from its rollout infos.

    The entries of the one run are let go before the other's are taken. An entry's ``group_level_metrics`` may be
    anything that can be gone through again; a million of them need not be in memory.

    **Errors**: `UsageError` when there is nothing to compare: an agent that a run does not have, no agent in common,
    no metric in common.
    """
    sides = _by_agent(baseline, labels[0]), _by_agent(candidate, labels[1])
    pairs = _pairs(sides, labels, (baseline_agent or agent, candidate_agent or agent))
    skipped = {
        name: missing
        for name, side, chosen in zip(("baseline", "candidate"), sides, zip(*pairs, strict=True), strict=True)
        if (missing := sorted(side.keys() - set(chosen)))
    }
    comparisons = tuple(
        _compare_agent(pair, (sides[0][pair[0]], sides[1][pair[1]]), flips_shown, seed) for pair in pairs
    )
    return Comparison(labels, comparisons, skipped)


def _by_agent(entries: Iterable[Entry], label: str) -> dict[str, _Side]:
    found: dict[str, _Side] = {}
    for entry in entries:
        ref = entry.get(AGENT_REF) if isinstance(entry, Mapping) else None
        name = ref.get("name") if isinstance(ref, Mapping) else None
        if not isinstance(name, str):
            raise UsageError(f"{label}: an entry without {AGENT_REF}.name; this is no list of aggregate metrics")
        server = entry.get("_ng_environment_server")
        # One agent behind two environment servers is two entries; the second is told apart by its server.
        key = name if name not in found else f"{name}@{server}"
        try:
            found[key] = _side(entry)
        except RowError as error:
            raise UsageError(f"{label}, agent {key}: {error}") from None
    if not found:
        raise UsageError(f"{label}: no agent in these aggregate metrics")
    return found


def _pairs(
    sides: tuple[Mapping[str, _Side], Mapping[str, _Side]],
    labels: tuple[str, str],
    wanted: tuple[str | None, str | None],
) -> list[tuple[str, str]]:
    if wanted == (None, None):
        common = sorted(sides[0].keys() & sides[1].keys())
        if common:
            return [(name, name) for name in common]
        names = "; ".join(f"{label} has {', '.join(sorted(side))}" for label, side in zip(labels, sides, strict=True))
        how = "name one for each side with --baseline-agent and --candidate-agents"
        raise UsageError(f"the runs have no agent in common: {names}; {how}")
    first, second = (_choose(side, label, name) for side, label, name in zip(sides, labels, wanted, strict=True))
    return [(first, second)]


def _choose(side: Mapping[str, _Side], label: str, name: str | None) -> str:
    if name is None:
        if len(side) > 1:
            raise UsageError(f"{label} has several agents, name one: {', '.join(sorted(side))}")
        return next(iter(side))
    if name not in side:
        raise UsageError(f"{label} has no agent {name!r}; it has {', '.join(sorted(side))}")
    return name


def _side(entry: Entry) -> _Side:
    """The entry with its repeats; files of older versions have only the tasks' rollout infos."""
    rest = {name: value for name, value in entry.items() if name != "group_level_metrics"}
    if "repeat_level_metrics" not in entry:
        aggregator = Aggregator()
        for group in _rows(entry, "group_level_metrics"):
            for info in _rows(group, "rollout_infos"):
                aggregator.add(info)
        for source in aggregator.finish().sources:
            rest["agent_metrics"] = {**source.agent_metrics, **(entry.get("agent_metrics") or {})}
            rest["repeat_level_metrics"] = source.repeat_level_metrics
    return _Side(rest, TaskScores(_rows(entry, "group_level_metrics")))


def _rows(entry: Entry, name: str) -> Iterator[Mapping[str, Any]]:
    rows = entry.get(name)
    if isinstance(rows, Iterable) and not isinstance(rows, str | Mapping):
        yield from (row for row in rows if isinstance(row, Mapping))


def _compare_agent(agents: tuple[str, str], sides: tuple[_Side, _Side], shown: int, seed: int) -> AgentComparison:
    entries = (sides[0].entry, sides[1].entry)
    common = sides[0].tasks.common(sides[1].tasks)
    metrics = tuple(_metrics(entry) for entry in entries)
    keys = {name for entry in entries for name in entry.get("key_metrics") or {}}
    names = [name for name in dict.fromkeys((*metrics[0], *metrics[1])) if is_primary_metric(name)]
    rows = []
    for name in names:
        before, after = _value(metrics[0], name), _value(metrics[1], name)
        if before is None and after is None:
            continue
        paired = paired_bootstrap(common.differences(name), seed) if name in keys else None
        rows.append(MetricRow(name, name in keys, before, after, _change(name, before, after, entries, paired)))
    if not any(row.baseline and row.candidate for row in rows):
        raise UsageError(
            f"{agents[0]} and {agents[1]} have no metric in common; names hold the number of repeats "
            "(pass@4), so runs with other repeats have other names"
        )
    repeats = (_repeats(sides[0]), _repeats(sides[1]))
    return AgentComparison(
        baseline_agent=agents[0],
        candidate_agent=agents[1],
        task_counts=(len(sides[0].tasks), len(sides[1].tasks)),
        repeat_counts=repeats,
        metrics=tuple(rows),
        flips=flip_summary(common, shown),
        notes=tuple(_notes(rows, entries, repeats)),
    )


def _metrics(entry: Entry) -> dict[str, Any]:
    """All metrics; a headline metric that only ``key_metrics`` has is one too."""
    return {**(entry.get("key_metrics") or {}), **(entry.get("agent_metrics") or {})}


def _value(metrics: Mapping[str, Any], name: str) -> MetricValue | None:
    def read(key: str) -> float | None:
        value = metrics.get(key)
        return None if isinstance(value, bool) else as_number(value)

    value = read(name)
    if value is None:
        return None
    return MetricValue(
        value=value,
        ci_low=read(f"ci_low_95{ACROSS_REPEATS}{name}"),
        ci_high=read(f"ci_high_95{ACROSS_REPEATS}{name}"),
        se_across_repeats=read(f"se{ACROSS_REPEATS}{name}"),
        mean_across_repeats=read(f"mean{ACROSS_REPEATS}{name}"),
        std_err_across_runs=read(f"{name}/std_err_across_runs"),
    )


def _change(
    name: str,
    before: MetricValue | None,
    after: MetricValue | None,
    entries: tuple[Entry, Entry],
    paired: PairedDifference | None,
) -> Change:
    if before is None or after is None:
        return Change()
    delta = after.point - before.point
    values = [
        [number for row in _rows(entry, "repeat_level_metrics") if (number := as_number(row.get(name))) is not None]
        for entry in entries
    ]
    interval = welch(values[0], values[1])
    return Change(
        delta=delta,
        delta_pct=100 * delta / abs(before.point) if before.point else None,
        delta_ci_low=interval.low if interval else None,
        delta_ci_high=interval.high if interval else None,
        paired=paired,
    )


def _repeats(side: _Side) -> int | None:
    """The repeats of the run: the most that any task was to have."""
    return side.tasks.most_expected or sum(1 for _ in _rows(side.entry, "repeat_level_metrics")) or None


def _notes(
    rows: Sequence[MetricRow], entries: tuple[Entry, Entry], repeats: tuple[int | None, int | None]
) -> list[str]:
    notes = []
    if None not in repeats and repeats[0] != repeats[1]:
        notes.append(f"the runs have {repeats[0]} and {repeats[1]} repeats; metrics whose names hold k do not line up")
    for side, entry in zip(("baseline", "candidate"), entries, strict=True):
        if any(row.get("missing_count") for row in _rows(entry, "repeat_level_metrics")):
            notes.append(
                f"repeats of the {side} lack tasks, so its intervals mix the spread of repeats with that of tasks"
            )
    if entries[0].get(COUNTED_AS_ZERO) != entries[1].get(COUNTED_AS_ZERO):
        notes.append("the runs do not count the same failed or missing rollouts as zero")
    if not any(row.change.delta_ci_low is not None for row in rows):
        notes.append("no interval for a difference from repeats: both runs need at least two")
    alone = sum(len(row.present_in) == 1 for row in rows)
    if alone:
        notes.append(f"{alone} metrics are in one run only")
    return notes
