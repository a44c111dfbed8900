"""Replies of a model, verdicts of an environment, and where the contract's data is."""

from __future__ import annotations

import importlib
import inspect
import json
import pathlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from gym_trio.environments import IMPLEMENTATIONS
from gym_trio.servers import RequestBody, ResourcesServer

RECORDED = pathlib.Path(__file__).parents[3] / "shared" / "data" / "recorded"


def find_class(name: str) -> type[ResourcesServer]:
    module, _, found = IMPLEMENTATIONS[name].partition(":")
    return getattr(importlib.import_module(module), found)


def say(*texts: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": parts}


def call(name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "name": name, "arguments": text, "call_id": f"call_{name}"}


def config_of(environment: str, replies: list[list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        environment: {"resources_servers": {environment: {"domain": "other"}}},
        "my_agent": {
            "responses_api_agents": {
                "simple_agent": {
                    "resources_server": {"type": "resources_servers", "name": environment},
                    "model_server": {"type": "responses_api_models", "name": "policy_model"},
                }
            }
        },
        "policy_model": {"responses_api_models": {"scripted_model": {"replies": replies}}},
    }


Judge = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="session")
def judge() -> Judge:
    """``await judge(name, row, *items, config={})``: what the environment says of a response of ``items``."""

    async def verdict(name: str, row: Mapping[str, Any], *items: Any, config: Any = None) -> dict[str, Any]:
        environment = find_class(name)(name=name, config=config or {})
        session = await environment.create_session()
        request = RequestBody({**row, "response": {"output": list(items)}})
        answer = environment.verify(session, request)
        answer = await answer if inspect.isawaitable(answer) else answer
        return dict(answer) if isinstance(answer, Mapping) else {"reward": answer}

    return verdict


@pytest.fixture(scope="session")
def saying() -> Any:
    return say


@pytest.fixture(scope="session")
def calling() -> Any:
    return call


@pytest.fixture(scope="session")
def scripted() -> Any:
    return config_of


@pytest.fixture(scope="session")
def environment_class() -> Callable[[str], type[ResourcesServer]]:
    return find_class


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], list[dict[str, Any]]]:
    def rows(name: str) -> list[dict[str, Any]]:
        path = RECORDED / f"{name}.jsonl"
        if not path.exists():
            pytest.skip(f"the contract's data is not at {path}")
        return [json.loads(line) for line in path.read_text().splitlines()]

    return rows
