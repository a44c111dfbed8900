"""The built-in agents, one file each.

===================  =======================================================================
``simple_agent``     model, tools, model, … until the model answers without a tool call
``gymnasium_agent``  model, step, model, … until the environment ends the episode
===================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["IMPLEMENTATIONS"]

# Implementation name in a configuration → where its class is; imported when a block names it.
IMPLEMENTATIONS: Mapping[str, str] = MappingProxyType(
    {
        "gymnasium_agent": "gym_trio.agents.gymnasium_agent:GymnasiumAgent",
        "simple_agent": "gym_trio.agents.simple_agent:SimpleAgent",
    }
)
