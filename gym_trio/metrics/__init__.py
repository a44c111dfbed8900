"""Numbers that can be trusted: pure functions over rows, without files, HTTP or printing.

=====================  ====================================================================================
``_rows``, ``_table``  what is kept of a row: identity and numbers, in columns; ``_rollout_keys`` of millions
``_aggregate``         `Aggregator`: rows in, ``aggregate_metrics.json`` out; `Hooks` of environment authors
``_describe``          the statistics of agents, tasks and repeats
``_ledger``            `Coverage`: what was owed, scored, failed, masked and missing
``_passk``             pass@k, avg-of-k, majority@k, and choosing among them
``_intervals``         Wilson, clustered and paired bootstrap, Welch
``_extras``            intervals, pass@k and warnings beside the contract's keys
``_perf``              ``ng_perf`` of a rollout and its summary
``_profile``           `profile`: the reward of each task
``_compare``           `compare` two runs, ``_tasks`` in columns; ``_flips`` of them, ``_report`` JSON and Markdown
``_health``            `HealthChecker`: ``_evidence`` of a rollout, ``_checks``, ``_digests``, ``_quality`` of a run
``_live``              `RunningReward` while a run goes on
=====================  ====================================================================================
"""

from __future__ import annotations

from ._aggregate import Aggregate, Aggregator, SourceAggregate, aggregate, aggregate_responses
from ._checks import CHECKS, Finding
from ._compare import AgentComparison, Comparison, MetricRow, compare
from ._digest import RolloutDigest, Verdict
from ._flips import FlipSummary, TaskFlip
from ._health import CHECK_IDS, HealthChecker, HealthReport, check_health, normalize_ignored
from ._hooks import Hooks
from ._intervals import Interval, PairedDifference, clustered_bootstrap, paired_bootstrap, welch, wilson
from ._ledger import Coverage
from ._live import LiveStatistics, RunningReward
from ._names import is_primary_metric
from ._numbers import as_number, t_interval, t_quantile
from ._passk import avg_sample_std_dev, highest_k_metrics, pass_majority_metrics, subset_metrics
from ._perf import rollout_perf
from ._profile import Profile, profile
from ._report import to_json, to_markdown
from ._rows import COUNTED_AS_ZERO, RowSummary, Source, strip_payload, summarize

__all__ = [
    "CHECKS",
    "CHECK_IDS",
    "COUNTED_AS_ZERO",
    "AgentComparison",
    "Aggregate",
    "Aggregator",
    "Comparison",
    "Coverage",
    "Finding",
    "FlipSummary",
    "HealthChecker",
    "HealthReport",
    "Hooks",
    "Interval",
    "LiveStatistics",
    "MetricRow",
    "PairedDifference",
    "Profile",
    "RolloutDigest",
    "RowSummary",
    "RunningReward",
    "Source",
    "SourceAggregate",
    "TaskFlip",
    "Verdict",
    "aggregate",
    "aggregate_responses",
    "as_number",
    "avg_sample_std_dev",
    "check_health",
    "clustered_bootstrap",
    "compare",
    "highest_k_metrics",
    "is_primary_metric",
    "normalize_ignored",
    "paired_bootstrap",
    "pass_majority_metrics",
    "profile",
    "rollout_perf",
    "strip_payload",
    "subset_metrics",
    "summarize",
    "t_interval",
    "t_quantile",
    "to_json",
    "to_markdown",
    "welch",
    "wilson",
]
