from __future__ import annotations

from typing import Any

import orjson
import pytest


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "name": name,
        "arguments": orjson.dumps(arguments).decode(),
        "call_id": f"call_{name}",
    }


def say(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def config_of(environment: str, replies: list[list[dict[str, Any]]], **settings: Any) -> dict[str, Any]:
    return {
        environment: {"resources_servers": {environment: {"domain": "other", **settings}}},
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


@pytest.fixture
def scripted() -> Any:
    """``scripted(environment, replies)``: a configuration whose model answers from a script."""
    return config_of


@pytest.fixture
def calling() -> Any:
    return call


@pytest.fixture
def saying() -> Any:
    return say
