"""The run keys: the top-level keys of a configuration that are no server blocks, in NeMo Gym's spelling."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from ._validators import (
    InvalidSetting,
    finite_seconds,
    fraction,
    not_empty,
    optional,
    port_number,
    positive_int,
    positive_seconds,
)


@attrs.frozen(kw_only=True)
class HeadServer:
    """Where the head server listens."""

    host: str = "127.0.0.1"
    port: int = attrs.field(default=11000, validator=port_number)

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://{self.host}:{self.port}"


@attrs.frozen(kw_only=True)
class Skills:
    """A folder of agent skills that every row of the run is given."""

    path: str = attrs.field(validator=not_empty)


@attrs.frozen(kw_only=True)
class TokenIdCapture:
    """What training-token capture keeps, and where."""

    enabled: bool = False
    all_agents: bool = False
    dir: str | None = None
    sink: str | None = None
    lineage_store: str | None = None
    rebuild_response: bool = False
    max_mask_fraction: float | None = attrs.field(default=None, validator=optional(fraction))


def _repeats(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    for count in value.values() if isinstance(value, dict) else [value]:
        positive_int(instance, attribute, count)


def _targets(instance: Any, attribute: attrs.Attribute[Any], value: dict[str, tuple[str, ...]]) -> None:
    for source, agents in value.items():
        if not agents:
            raise InvalidSetting(attribute.name, f"{source!r} lists no agent, so its rows would be dropped")
        if len(set(agents)) < len(agents):
            raise InvalidSetting(attribute.name, f"{source!r} lists an agent twice; use num_repeats to repeat")


@attrs.frozen(kw_only=True)
class RunSettings:
    """Everything about a run that is no server. None means: not set."""

    # What is read and written
    config_paths: tuple[str, ...] = ()
    input_jsonl_fpath: str | None = None
    output_jsonl_fpath: str | None = None
    split: Literal["train", "validation", "benchmark", "example"] | None = None
    resume_from_cache: bool = False
    reuse_existing_data_preparation: bool = False
    results_dir: str | None = None
    cache_dir: str | None = None
    fsync: bool = False

    # Which rows are run, how often and by whom
    agent_name: str | None = None
    agent_map: dict[str, str] = attrs.Factory(dict)
    fan_out: dict[str, tuple[str, ...]] = attrs.field(factory=dict, validator=_targets)
    limit: int | None = attrs.field(default=None, validator=optional(positive_int))
    num_repeats: int | dict[str, int] = attrs.field(default=1, validator=_repeats)
    num_repeats_add_seed: bool = False
    interleave_repeats: bool = False
    shard: str | None = None
    prompt_config: str | None = None
    skills: Skills | None = None
    responses_create_params: dict[str, Any] = attrs.Factory(dict)

    # How they are run
    num_samples_in_parallel: int | None = attrs.field(default=None, validator=optional(positive_int))
    max_resident_rollout_tasks: int | None = attrs.field(default=None, validator=optional(positive_int))
    rollout_timeout_seconds: float | None = attrs.field(default=None, validator=optional(positive_seconds))
    dispatch_budget_s: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    drain_margin_s: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    dispatch_longest_first: bool = False
    retry_terminal_timeouts: bool = False
    retry_invalid_judge_responses: bool = False
    max_rollout_attempts: int | None = attrs.field(default=None, validator=optional(positive_int))
    environment_routing_mode: Literal["agent", "legacy", "taskset"] = "agent"
    environment_server_name: str | None = None
    environment_server_routes: dict[str, str] = attrs.Factory(dict)
    rollout_collection_driver: str | None = None
    skip_verification: bool = False
    skip_verification_reward: float | None = None

    # What counts
    require_complete: bool = False
    retain_results_in_memory: bool = True
    route_failures_to_sidecar: bool = False
    count_failure_classes_as_zero: tuple[str, ...] = ()
    count_missing_rollouts_as_zero: bool = False
    disable_aggregation: bool = False

    # The servers as a whole
    dry_run: bool = False
    server_spinup_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    server_shutdown_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    session_close_timeout_seconds: float | None = attrs.field(default=None, validator=optional(finite_seconds))
    model_endpoint_readiness_timeout_seconds: float = attrs.field(default=600.0, validator=finite_seconds)
    use_absolute_ip: bool = False
    default_host: str | None = None
    port_range_low: int = attrs.field(default=10_001, validator=port_number)
    port_range_high: int = attrs.field(default=20_000, validator=port_number)
    disallowed_ports: tuple[int, ...] = ()
    head_server: HeadServer = attrs.Factory(HeadServer)
    allow_unsupported_pairing: bool = False
    error_on_almost_servers: bool = True
    uv_venv_dir: str | None = None
    skip_venv_if_present: bool = False

    # What is observed
    observability_enabled: bool = False
    model_call_capture_dir: str | None = None
    token_id_capture: TokenIdCapture = attrs.Factory(TokenIdCapture)
    upload_rollouts: bool = False
    upload_rollouts_to_wandb: bool = True
    wandb_project: str | None = None
    wandb_name: str | None = None
    wandb_api_key: str | None = attrs.field(default=None, repr=False)
    mlflow_tracking_uri: str | None = None
    mlflow_experiment_name: str | None = None
    telemetry: dict[str, Any] = attrs.Factory(dict)
    verbose: bool = False
    json: bool = False
    policy_base_url: str | tuple[str, ...] | None = None
    policy_api_key: str | None = attrs.field(default=None, repr=False)
    policy_model_name: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.port_range_low > self.port_range_high:
            raise InvalidSetting("port_range_low", "is above port_range_high")


# Keys that NeMo Gym's own machinery has and gym_trio has no use for. They are accepted, so that a configuration that
# works there loads here.
ACCEPTED_ELSEWHERE: frozenset[str] = frozenset(
    {
        "agent_bindings",
        "allow_openai_version_skew",
        "component_name",
        "entrypoint",
        "head_server_deps",
        "hf_token",
        "nemo_gym_log_dir",
        "pip_install_verbose",
        "python_version",
        "query",
        "ray_head_node_address",
        "rollout_input",
        "tasksets",
        "uv_cache_dir",
        "uv_pip_set_python",
    }
)
