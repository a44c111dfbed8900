"""The built-in environments, one file each; `IMPLEMENTATIONS` is the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["IMPLEMENTATIONS"]

# Implementation name in a configuration → where its class is; imported when a block names it.
IMPLEMENTATIONS: Mapping[str, str] = MappingProxyType(
    {
        "example_session_state_mgmt": "gym_trio.environments.example_session_state_mgmt:SessionStateManagement",
        "example_single_tool_call": "gym_trio.environments.example_single_tool_call:SingleToolCall",
        "mcqa": "gym_trio.environments.mcqa:MultipleChoice",
        "reasoning_gym": "gym_trio.environments.reasoning_gym:ReasoningGym",
    }
)
