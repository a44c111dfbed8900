"""No key of a run's configuration is passed over in silence."""

from __future__ import annotations

import ast
import pathlib
from typing import Any

import attrs
import pytest

import gym_trio
from gym_trio.collection import keys_without_effect, options_from
from gym_trio.collection._run_keys import REFUSED, WITHOUT_EFFECT
from gym_trio.config import ACCEPTED_ELSEWHERE, GymConfig, RunSettings, load_config
from gym_trio.errors import RowError, UsageError

KEYS = [field.name for field in attrs.fields(RunSettings)]
# Read as text, not as a setting: by `${...}` in blocks, and by the reader of files.
READ_BY_NAME = {"config_paths", "policy_api_key", "policy_base_url", "policy_model_name", "error_on_almost_servers"}
# Asked for by name: both are what always happens, and a value that says otherwise is told of.
ALWAYS = {"route_failures_to_sidecar"}


def _attributes_read() -> set[str]:
    """Every attribute that the package reads anywhere."""
    folder = pathlib.Path(gym_trio.__file__).parent
    trees = (
        ast.parse(path.read_text()) for path in folder.rglob("*.py") if path.name != "_run.py" or "cli" in path.parts
    )
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_every_run_key_is_used_or_refused_or_told_of() -> None:
    """A key that is added to the settings and read nowhere fails here."""
    unread = set(KEYS) - _attributes_read() - READ_BY_NAME
    assert unread <= {*REFUSED, *WITHOUT_EFFECT, *ALWAYS}
    assert set(WITHOUT_EFFECT) <= {*KEYS, *ACCEPTED_ELSEWHERE}
    assert set(REFUSED) <= set(KEYS)


def _config(**keys: Any) -> GymConfig:
    blocks = {
        "shop": {"resources_servers": {"mcqa": {"domain": "knowledge"}}},
        "agent": {
            "responses_api_agents": {
                "simple_agent": {
                    "resources_server": {"type": "resources_servers", "name": "shop"},
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                }
            }
        },
        "env": {
            "environment_servers": {
                "environment": {
                    "agent_server": {"type": "responses_api_agents", "name": "agent"},
                    "resources_server": {"type": "resources_servers", "name": "shop"},
                }
            }
        },
        "policy_model": {"responses_api_models": {"scripted_model": {"replies": []}}},
    }
    return load_config({**blocks, **keys})


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_a_key_that_would_change_the_rollouts_is_refused_by_name(key: str, tmp_path: pathlib.Path) -> None:
    """With what to do; as NeMo Gym's default it is no request."""
    value = {"skip_verification": True, "skip_verification_reward": 0.5}.get(key, "module:function")
    with pytest.raises(UsageError, match=rf"^{key}: is not to be had here: "):
        options_from(_config(**{key: value}), rows=[{}], output=tmp_path / "r.jsonl")
    options_from(_config(**{key: False} if key == "skip_verification" else {}), rows=[{}], output=tmp_path / "r.jsonl")


@pytest.mark.parametrize("key", sorted({*WITHOUT_EFFECT, *ALWAYS}))
def test_a_key_without_effect_is_told_of(key: str) -> None:
    """Once, with the reason, and only where it was given."""
    value = {"disallowed_ports": [1], "port_range_low": 11_000, "port_range_high": 19_000}.get(key, False)
    texts = {"cache_dir", "uv_venv_dir"}
    (told,) = keys_without_effect(_config(**{key: "x" if key in texts else value}))
    assert f"{key}" in told.split(" ")[0]
    assert "has no effect here: " in told
    assert list(keys_without_effect(_config())) == []


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"environment_server_routes": {"t": "env"}}, "environment_server_routes: needs environment_routing_mode"),
        ({"environment_routing_mode": "taskset"}, "environment_routing_mode: taskset needs environment_server_routes"),
        ({"environment_server_name": "env", "agent_name": "agent"}, "agent_name: rows go to environment servers"),
        ({"environment_server_name": "env", "agent_map": {"a": "agent"}}, "agent_map: rows go to environment servers"),
        ({"environment_server_name": "env", "fan_out": {"a": ["agent"]}}, "fan_out: rows go to environment servers"),
    ],
)
def test_routing_keys_that_do_not_agree_are_refused(keys: dict[str, Any], says: str, tmp_path: pathlib.Path) -> None:
    """Before anything is written, and by name."""
    with pytest.raises(UsageError, match=says):
        options_from(_config(**keys), rows=[{}], output=tmp_path / "r.jsonl")


def _rows(*tasksets: str | None) -> list[dict[str, Any]]:
    inner = {"responses_create_params": {"input": "2+2?"}, "task_data": {"n": 1}}
    return [
        {"task_input": inner, **({"task_id": {"taskset": name, "task_id": f"t{at}"}} if name else {})}
        for at, name in enumerate(tasksets)
    ]


def test_rows_go_to_the_environment_server_that_is_named(prepare: Any, read: Any) -> None:
    """All of them to one, or each to that of its taskset; each row names the server, and the agent behind it."""
    named = {"environments": {"env": "agent", "other": None}, "environment": "env"}
    with prepare(_rows("a", None), **named) as run:
        rows = read(run.files.materialized)
    assert [row["_ng_environment_server"] for row in rows] == ["env", "env"]
    assert {row["agent_ref"]["name"] for row in rows} == {"agent"}
    routed = {**named, "environment": None, "environment_routes": {"a": "env", "b": "other", "c": "env"}}
    with prepare(_rows("a", "b"), **routed) as run:
        assert [row["_ng_environment_server"] for row in read(run.files.materialized)] == ["env", "other"]
        assert any("environment_server_routes names 'c', which no row has" in note for note in run.notes)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"environment": "nev"}, UsageError, r"no environment server 'nev'; did you mean 'env'"),
        ({"environments": {}, "environment": "env"}, UsageError, "the configuration has none"),
        ({"environment_routes": {"a": "env"}}, RowError, "is of taskset 'b', for which environment_server_routes has"),
        ({"environment_routes": {"b": "env"}}, RowError, r"names no taskset \(task_id.taskset\)"),
    ],
)
def test_a_row_without_a_server_is_named(prepare: Any, options: dict[str, Any], error: Any, says: str) -> None:
    """Before anything starts, with the nearest name there is."""
    with (
        pytest.raises(error, match=says),
        prepare(_rows("b", None), **{"environments": {"env": "agent"}, **options}),
    ):
        pass
