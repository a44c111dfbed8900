"""What a run is, so that a resumed one can tell that it is the same: its tasks, its agents, its configuration.

Left out are secrets, endpoints, and everything that changes how a run goes and not what it measures: a run may be
resumed on another machine, with another key, at another concurrency. It may also grow, by a larger limit, more repeats
or more input rows, as long as every row that it had is still there as it was.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from ..config import GymConfig, is_secret_name, redact_text
from ..errors import RunError, UsageError
from ._jsonl import dump_json, open_to_read, write_whole
from ._keys import NumberSet, digest
from ._options import RunOptions
from ._paths import RunFiles

SCHEMA_VERSION = 1

_ENDPOINT = re.compile(r"(^|_)(url|base_url|host|port|endpoint|address)$")
_HOW = frozenset(
    {
        "config_paths",
        "disable_aggregation",
        "disallowed_ports",
        "dispatch_budget_s",
        "dispatch_longest_first",
        "drain_margin_s",
        "dry_run",
        "error_on_almost_servers",
        "fsync",
        "head_server",
        "input_jsonl_fpath",
        "json",
        "max_resident_rollout_tasks",
        "max_rollout_attempts",
        "model_call_capture_dir",
        "num_samples_in_parallel",
        "num_workers",
        "observability_enabled",
        "output_jsonl_fpath",
        "port_range_high",
        "port_range_low",
        "require_complete",
        "results_dir",
        "cache_dir",
        "resume_from_cache",
        "retain_results_in_memory",
        "retry_terminal_timeouts",
        "retry_invalid_judge_responses",
        "count_failure_classes_as_zero",
        "count_missing_rollouts_as_zero",
        "rollout_timeout_seconds",
        "server_shutdown_timeout_seconds",
        "server_spinup_timeout_seconds",
        "model_endpoint_readiness_timeout_seconds",
        "session_close_timeout_seconds",
        "telemetry",
        "token_id_capture",
        "upload_rollouts",
        "upload_rollouts_to_wandb",
        "use_absolute_ip",
        "verbose",
        "n_parallel",
        "n_threads",
    }
)


# What decides how many rollouts there are, and their order. A run may grow: the rows themselves are compared.
_REACH = frozenset({"limit", "num_repeats", "interleave_repeats"})


def identity_of(options: RunOptions, rows_digest: str, rows: int, agents: list[str]) -> dict[str, Any]:
    """The identity of a run whose materialised rows have this digest."""
    return {
        "schema_version": SCHEMA_VERSION,
        "rows": rows,
        "rows_digest": rows_digest,
        "agents": sorted(agents),
        "options": {
            "limit": options.limit,
            "num_repeats": options.num_repeats,
            "num_repeats_add_seed": options.num_repeats_add_seed,
            "interleave_repeats": options.interleave_repeats,
            "shard": list(options.shard) if options.shard else None,
            "responses_create_params": dict(options.responses_create_params),
        },
        "configuration": dict(_kept(options.config)) if options.config is not None else {},
    }


def _kept(config: GymConfig) -> Iterator[tuple[str, Any]]:
    """The configuration as dotted paths and values, without what may change."""
    for path, value in _leaves(config.to_mapping(), ()):
        names = [name for name in path if not name.startswith("[")]
        if any(is_secret_name(name) or name in _HOW or _ENDPOINT.search(name) for name in names):
            continue
        yield ".".join(path).replace(".[", "["), redact_text(value) if isinstance(value, str) else value


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _leaves(item, (*path, f"[{number}]"))
    else:
        yield path, value


class RowsDigest:
    """The digest of materialised rows, in their order; with ``each`` also one of every row, eight bytes."""

    def __init__(self, *, each: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._of_each = array("Q") if each else None
        self.rows = 0

    def add(self, line: bytes) -> None:
        self._hash.update(line)
        self.rows += 1
        if self._of_each is not None:
            self._of_each.append(digest(line))

    def lost(self, path: pathlib.Path) -> int:
        """How many rows of a file of materialised rows are not among these, as they stand there."""
        these = NumberSet(self._of_each or ())
        with open_to_read(path) as file:
            return sum(digest(line) not in these for line in file)

    def text(self) -> str:
        return self._hash.hexdigest()


def write_identity(files: RunFiles, identity: Mapping[str, Any], *, fsync: bool) -> None:
    """Store the identity beside the output."""
    write_whole(files.identity, dump_json(identity), fsync=fsync)


def read_identity(path: pathlib.Path) -> dict[str, Any] | None:
    """The stored identity, None if there is none. **Errors**: `RunError` when the file is not one."""
    try:
        stored = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, orjson.JSONDecodeError) as error:
        raise RunError(f"{path}: cannot be read ({error}); remove it to resume without the check") from None
    return stored if isinstance(stored, dict) else None


def check_identity(files: RunFiles, stored: Mapping[str, Any], now: Mapping[str, Any], rows: RowsDigest) -> str | None:
    """See that a resumed run is the run that was begun, or has all of its rollouts and more; says so if it has.

    **Errors**: `UsageError` that names what differs, and what it was.
    """
    # JSON is what the stored one went through; the new one must too, or a tuple would differ from a list.
    now = orjson.loads(dump_json(now))
    were, are = stored.get("options") or {}, now["options"]
    same_rows = stored.get("rows_digest") == now["rows_digest"]
    reach = [] if same_rows else list(_differences("option ", _only(were, _REACH), _only(are, _REACH)))
    differences = [
        *_differences("option ", _without(were, _REACH), _without(are, _REACH)),
        *_differences("", _without(stored.get("configuration") or {}, _REACH), _without(now["configuration"], _REACH)),
    ]
    lost = 0 if same_rows or differences else _lost(files, stored, rows)
    if lost and reach and now["rows"] < (stored.get("rows") or 0):
        raise UsageError(
            f"{files.output}: cannot be resumed with fewer rollouts: {reach[0]}, and {lost} of its {stored.get('rows')}"
            " would be left out; give as many as before or more, or choose another --output"
        )
    if lost and stored.get("agents") != now["agents"]:
        names = (", ".join(agents or ["none"]) for agents in (stored.get("agents"), now["agents"]))
        differences.append("the agents were {}, and are {}".format(*names))
    elif lost:
        differences.append(f"the input rows differ ({stored.get('rows')} then, {now['rows']} now, {lost} changed)")
    if differences:
        more = f" (and {len(differences) - 1} more)" if differences[1:] else ""
        raise UsageError(
            f"{files.output}: cannot be resumed, it was another run: {differences[0]}{more};"
            " run it as it was begun, or choose another --output"
        )
    return None if same_rows else f"{files.output}: the run grows from {stored.get('rows')} to {now['rows']} rollouts"


def _lost(files: RunFiles, stored: Mapping[str, Any], rows: RowsDigest) -> int:
    try:
        return rows.lost(files.materialized)
    except UsageError:
        # Without the rows that it had, a run cannot be seen to have them all.
        return int(stored.get("rows") or 1)


def _only(options: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def _without(options: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name.partition(".")[0] not in names}


def _differences(kind: str, stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*stored, *now]):
        if name not in now:
            yield f"{kind}{name} was {stored[name]!r}, and is not set"
        elif name not in stored:
            yield f"{kind}{name} was not set, and is {now[name]!r}"
        elif stored[name] != now[name]:
            yield f"{kind}{name} was {stored[name]!r}, and is {now[name]!r}"
