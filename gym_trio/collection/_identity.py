"""What a run is, so that a resumed one can tell that it is the same: its tasks, its agents, its configuration.

Left out are secrets, endpoints, and everything that changes how a run goes and not what it measures: a run may be
resumed on another machine, with another key, at another concurrency.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from ..config import GymConfig, is_secret_name, redact_text
from ..errors import RunError, UsageError
from ._jsonl import dump_json, write_whole
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
    """The digest of materialised rows, in their order."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.rows = 0

    def add(self, line: bytes) -> None:
        self._hash.update(line)
        self.rows += 1

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


def check_identity(files: RunFiles, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """See that a resumed run is the run that was begun.

    **Errors**: `UsageError` that names what differs, and what it was.
    """
    # JSON is what the stored one went through; the new one must too, or a tuple would differ from a list.
    now = orjson.loads(dump_json(now))
    differences = [
        *_differences("option ", stored.get("options") or {}, now["options"]),
        *_differences("", stored.get("configuration") or {}, now["configuration"]),
    ]
    if stored.get("agents") != now["agents"]:
        were, are = (", ".join(agents or ["none"]) for agents in (stored.get("agents"), now["agents"]))
        differences.append(f"the agents were {were}, and are {are}")
    if stored.get("rows_digest") != now["rows_digest"] and not differences:
        differences.append(f"the input rows differ ({stored.get('rows')} then, {now['rows']} now)")
    if differences:
        more = f" (and {len(differences) - 1} more)" if differences[1:] else ""
        raise UsageError(
            f"{files.output}: cannot be resumed, it was another run: {differences[0]}{more};"
            " run it as it was begun, or choose another --output"
        )


def _differences(kind: str, stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*stored, *now]):
        if name not in now:
            yield f"{kind}{name} was {stored[name]!r}, and is not set"
        elif name not in stored:
            yield f"{kind}{name} was not set, and is {now[name]!r}"
        elif stored[name] != now[name]:
            yield f"{kind}{name} was {stored[name]!r}, and is {now[name]!r}"
