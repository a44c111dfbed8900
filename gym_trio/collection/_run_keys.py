"""The run keys of NeMo Gym that mean nothing here: each is refused by name, or told of; none is passed over in silence.

Refused is what would change which rollouts are made or how they are scored. Told of is what only says how NeMo Gym's
own machinery goes about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..config import ACCEPTED_ELSEWHERE, GymConfig
from ..errors import UsageError

REFUSED: Mapping[str, str] = {
    "rollout_collection_driver": "a driver of NeMo Gym's collector does not run on trio; write a program around"
    " gym.run_examples(rows), or serve the loop as an agent",
    "skip_verification": "a rollout without its verifier has no reward; write an agent whose run() gives one",
    "skip_verification_reward": "a rollout without its verifier has no reward; write an agent whose run() gives one",
}

_VENVS = "servers run in this Python; there are no environments to make"
_PORTS = "ports are bound by the system before their server starts, so none can be taken"
WITHOUT_EFFECT: Mapping[str, str] = {
    "allow_unsupported_pairing": "every agent may be paired with every model",
    "cache_dir": "nothing is cached",
    "disallowed_ports": _PORTS,
    "port_range_high": _PORTS,
    "port_range_low": _PORTS,
    "retain_results_in_memory": "results are never kept in memory; they are in the output file",
    "reuse_existing_data_preparation": "rows are read from where they are",
    "skip_venv_if_present": _VENVS,
    "use_absolute_ip": "servers listen where default_host says",
    "uv_venv_dir": _VENVS,
    **dict.fromkeys(ACCEPTED_ELSEWHERE, "it is a key of NeMo Gym's own machinery"),
}


def check_run_keys(config: GymConfig) -> None:
    """See that the run keys ask for nothing that cannot be, and agree with each other.

    **Errors**: `UsageError` that names the key, and what to do.
    """
    run = config.run
    for key, reason in REFUSED.items():
        if config.settings.get(key):
            raise UsageError(f"{key}: is not to be had here: {reason}")
    routes = run.environment_server_routes
    if routes and run.environment_routing_mode != "taskset":
        raise UsageError("environment_server_routes: needs environment_routing_mode: taskset")
    if run.environment_routing_mode == "taskset" and not routes and run.environment_server_name is None:
        raise UsageError("environment_routing_mode: taskset needs environment_server_routes, {taskset: server}")
    if routes or run.environment_server_name is not None:
        named = "environment_server_routes" if routes else "environment_server_name"
        for key in ("agent_map", "fan_out", "agent_name"):
            if getattr(run, key):
                raise UsageError(f"{key}: rows go to environment servers ({named}), which have their agents")


def keys_without_effect(config: GymConfig) -> Iterator[str]:
    """One sentence for each key that was given and changes nothing here."""
    for key, reason in WITHOUT_EFFECT.items():
        if config.settings.get(key) is not None:
            yield f"{key} has no effect here: {reason}"
    if config.settings.get("route_failures_to_sidecar") is False:
        yield "route_failures_to_sidecar: false has no effect here: failures always go to their own file"
