"""A whole run: rows materialised, sent, written, resumed, and told about.

==================  =========================================================================================
``_options``        `RunOptions`: what a run is asked to do
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
==================  =========================================================================================
"""

from __future__ import annotations

from ._collect import collect
from ._ledger import Coverage
from ._options import RunOptions, options_from, parse_shard, stream_arguments
from ._paths import RunFiles
from ._prepare import PreparedRun, prepare_run
from ._report import Ending, InFlight, Progress, RunReport, StopRequest, UnfinishedRollout

__all__ = [
    "Coverage",
    "Ending",
    "InFlight",
    "PreparedRun",
    "Progress",
    "RunFiles",
    "RunOptions",
    "RunReport",
    "StopRequest",
    "UnfinishedRollout",
    "collect",
    "options_from",
    "parse_shard",
    "prepare_run",
    "stream_arguments",
]
