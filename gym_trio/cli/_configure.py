"""From the words and flags of a command to one configuration."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from .. import environments, models
from ..collection import read_jsonl
from ..config import GymConfig, ServerBlock, load_config, suggestion
from ..errors import ConfigError
from ..gym import find_implementation
from ..servers import ResourcesServer

__all__ = ["ELSEWHERE", "ModelFlags", "configure", "environment_blocks", "rows_of", "split_words"]

MODEL_SERVER = "policy_model"
ELSEWHERE = {
    MODEL_SERVER: {
        "responses_api_models": {
            "openai_model": dict.fromkeys(("openai_base_url", "openai_api_key", "openai_model"), "")
        }
    }
}
NO_MODEL = "no model server is configured: give --model-type local, or --model-url URL --model NAME"
ALIASES = {"local": "local_model"}


@attrs.frozen(kw_only=True)
class ModelFlags:
    """The flags that choose the policy model."""

    model_type: str | None = None
    model_url: str | None = None
    model: str | None = None
    model_api_key: str | None = None

    def blocks(self) -> dict[str, Any]:
        """The model server's block, or nothing when no flag was given."""
        if self.model_type is None and self.model_url is None:
            return {}
        kind = ALIASES.get(self.model_type or "openai_model", self.model_type or "openai_model")
        known = models.IMPLEMENTATIONS
        if kind not in known:
            raise ConfigError(f"there is no model type {kind!r}{suggestion(kind, known)}", key="--model-type")
        if kind in ("openai_model", "vllm_model") and (not self.model_url or not self.model):
            raise ConfigError("an endpoint needs both --model-url and --model", key="--model-type")
        return {MODEL_SERVER: {"responses_api_models": {kind: self._settings(kind)}}}

    def _settings(self, kind: str) -> dict[str, Any]:
        if kind == "openai_model":
            return {
                "openai_base_url": self.model_url,
                "openai_api_key": self.model_api_key or "${oc.select:policy_api_key,''}",
                "openai_model": self.model,
            }
        if kind == "vllm_model":
            return {
                "base_url": self.model_url,
                "api_key": self.model_api_key or "${oc.select:policy_api_key,''}",
                "model": self.model,
            }
        return {"model": self.model} if self.model else {}


def split_words(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The environment's name and the ``key=value`` overrides among the words of a command.

    **Errors**: `ConfigError` for a second name.
    """
    overrides = [word for word in words if word.startswith(("+", "~")) or "=" in word]
    names = [word for word in words if word not in overrides]
    if len(names) > 1:
        raise ConfigError(f"one environment at a time, not {', '.join(names)} (an override is ++key=value)")
    return (names[0] if names else None), overrides


def environment_blocks(name: str) -> Mapping[str, Any] | pathlib.Path:
    """The servers of the environment called ``name``: built in, or a folder with a ``config.yaml``.

    **Errors**: `ConfigError` with the nearest environment there is.
    """
    folder = pathlib.Path(name)
    if name not in environments.IMPLEMENTATIONS:
        if (folder / "config.yaml").is_file():
            return folder / "config.yaml"
        if folder.is_dir():
            raise ConfigError("the folder has no config.yaml", file=name)
        hint = suggestion(name, environments.IMPLEMENTATIONS)
        raise ConfigError(f"there is no environment {name!r}{hint} (gym-trio list environments)")
    return {
        name: {"resources_servers": {name: {"domain": "other"}}},
        f"{name}_agent": {
            "responses_api_agents": {
                default_agent(name): {
                    "resources_server": {"type": "resources_servers", "name": name},
                    "model_server": {"type": "responses_api_models", "name": MODEL_SERVER},
                }
            }
        },
    }


def default_agent(name: str) -> str:
    """The agent that an environment is run with when nothing else is said."""
    block = ServerBlock(name=name, server_type="resources_servers", implementation=name, settings={})
    cls = find_implementation(block)
    return cls.default_agent if issubclass(cls, ResourcesServer) else "simple_agent"


def configure(
    name: str | None,
    configs: Sequence[pathlib.Path],
    model: ModelFlags,
    overrides: Sequence[str],
    *,
    need_model: bool = True,
) -> GymConfig:
    """The configuration of a command.

    The process's environment gives ``${oc.env:...}`` and, when neither a flag nor ``env.yaml`` names one, the key of
    the model endpoint (``POLICY_API_KEY``, then ``OPENAI_API_KEY``).

    **Errors**: `ConfigError`, one line.
    """
    if name is None and not configs:
        raise ConfigError("name an environment (gym-trio list environments), or give --config, or both")
    sources: list[Any] = [*configs]
    if name is not None:
        found = environment_blocks(name)
        sources.append(found)
    # A fleet that runs already has its own model; the configuration here only has to be whole.
    sources.append(model.blocks() or ({} if need_model else ELSEWHERE))
    key = os.environ.get("POLICY_API_KEY") or os.environ.get("OPENAI_API_KEY")
    try:
        loaded = load_config(sources, overrides=overrides, env=os.environ)
    except ConfigError as error:
        if need_model and not model.blocks() and repr(MODEL_SERVER) in str(error):
            raise ConfigError(NO_MODEL, key=error.key, file=error.file) from None
        raise
    if key and not loaded.settings.get("policy_api_key") and model.model_api_key is None:
        loaded = load_config([*sources, {"policy_api_key": key}], overrides=overrides, env=os.environ)
    if need_model and not loaded.of_type("responses_api_models") and _needs_model(loaded):
        raise ConfigError(NO_MODEL, key=MODEL_SERVER)
    return loaded


def _needs_model(config: GymConfig) -> bool:
    return any("model_server" in block.settings for block in config.servers)


def rows_of(config: GymConfig, split: str | None = None) -> Iterator[dict[str, Any]]:
    """The rows of the configuration's datasets, and of environments that bring rows and have no dataset configured.

    Each row has the agent whose dataset it is, or that uses its environment. ``split`` is a dataset's ``type``.

    **Errors**: `ConfigError` when there are none; `RowError` for a file that cannot be read.
    """
    found = False
    covered: set[str] = set()
    for agent in config.of_type("responses_api_agents"):
        for dataset in agent.settings.get("datasets") or ():
            if split is None or dataset.get("type") == split:
                covered.add((agent.settings.get("resources_server") or {}).get("name", ""))
                for _, row in read_jsonl(dataset_path(dataset, agent)):
                    found = True
                    yield with_agent(row, agent.name)
    for block in config.of_type("resources_servers"):
        cls = find_implementation(block)
        user = next((agent.name for agent in config.of_type("responses_api_agents") if _uses(agent, block.name)), None)
        if user is None or block.name in covered or not issubclass(cls, ResourcesServer):
            continue
        for row in cls.rows(block.settings):
            found = True
            yield with_agent(row, user)
    if not found:
        what = f"of type {split!r} " if split else ""
        raise ConfigError(
            f"the configuration has no dataset {what}and no environment with rows: give --input FILE.jsonl"
        )


def with_agent(row: Mapping[str, Any], agent: str) -> dict[str, Any]:
    """``row`` for ``agent``, unless it names one."""
    if "agent_ref" in row:
        return dict(row)
    return {**row, "agent_ref": {"type": "responses_api_agents", "name": agent}}


def dataset_path(dataset: Mapping[str, Any], agent: ServerBlock) -> pathlib.Path:
    """Where a dataset's rows are: as written, or beside the file that names it."""
    path = pathlib.Path(str(dataset.get("jsonl_fpath")))
    beside = pathlib.Path(agent.file).parent / path if agent.file else path
    for place in (path, beside):
        if place.is_file():
            return place
    raise ConfigError(
        f"the dataset {dataset.get('name')!r} has no file {path}", file=agent.file, key=f"{agent.key}.datasets"
    )


def _uses(agent: ServerBlock, environment: str) -> bool:
    return (agent.settings.get("resources_server") or {}).get("name") == environment
