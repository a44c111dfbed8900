"""A whole run: rows materialised, sent, written, resumed, and told about.

==================  =========================================================================================
``_options``        `RunOptions`: what a run is asked to do
``_run_keys``       the run keys that mean nothing here: refused, or told of
``_source``         the rows that were given, checked one by one
``_routing``        which agents a row goes to, and how often
``_materialize``    the rows that are sent: task, repeat, attempt, agent, seed
``_keys``           rollouts as numbers, millions of them in little memory
``_identity``       what a run is, so that a resumed one can tell that it is the same
``_ledger``         what is known of every rollout; `Coverage`
``_lock``           one run per output
``_jsonl``          lines: read, appended, repaired where a write was cut
``_paths``          the names of a run's files
``_prepare``        `prepare_run`: all that can go wrong before a run starts
``_records``        from an outcome to its line
``_timing``         where the time went
``_report``         `Progress`, `StopRequest`, `RunReport`
``_collect``        `collect`: the loop
``_shards``         files of rollouts by name or glob
``_merge``          the rows of many shards in one set of files
``_aggregate``      `aggregate_files`, and `aggregate_run` for the end of a run
``_repeated``       lines that say again what another line says; ``_recorded``: of recorded rollouts each once
``_profile``        `profile_files`
``_compare``        `compare_files`, over ``_entries`` of aggregate metrics
``_health``         `health_check_dir`
``_judged``         results without a valid judgement, taken back on resume
``_reverify``       `reverify_rollouts`: new rewards for recorded rollouts
``_trackers``       a finished run in Weights & Biases or MLflow
``_prompt``         prompt templates; ``_skills``: skills that every row is given
==================  =========================================================================================
"""

from __future__ import annotations

from ._aggregate import Aggregated, aggregate_files, aggregate_run
from ._collect import collect
from ._compare import Compared, compare_files
from ._health import HealthChecked, health_check_dir
from ._jsonl import dump_json, read_jsonl
from ._ledger import Coverage
from ._options import RunOptions, options_from, parse_shard, stream_arguments
from ._paths import RunFiles
from ._prepare import PreparedRun, prepare_run, rollouts_of
from ._profile import Profiled, profile_files
from ._report import Ending, InFlight, Progress, RunReport, StopRequest, UnfinishedRollout
from ._reverify import Reverified, RewardChange, reverify_rollouts
from ._run_keys import keys_without_effect
from ._shards import whole_rows
from ._source import read_rows
from ._trackers import check_trackers, track_run, tracked_numbers

__all__ = [
    "Aggregated",
    "Compared",
    "Coverage",
    "Ending",
    "HealthChecked",
    "InFlight",
    "PreparedRun",
    "Profiled",
    "Progress",
    "Reverified",
    "RewardChange",
    "RunFiles",
    "RunOptions",
    "RunReport",
    "StopRequest",
    "UnfinishedRollout",
    "aggregate_files",
    "aggregate_run",
    "check_trackers",
    "collect",
    "compare_files",
    "dump_json",
    "health_check_dir",
    "keys_without_effect",
    "options_from",
    "parse_shard",
    "prepare_run",
    "profile_files",
    "read_jsonl",
    "read_rows",
    "reverify_rollouts",
    "rollouts_of",
    "stream_arguments",
    "track_run",
    "tracked_numbers",
    "whole_rows",
]
