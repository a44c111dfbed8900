"""The built-in agents, one file each.

============================  ===========================================================================
``simple_agent``              model, tools, model, … until the model answers without a tool call
``gymnasium_agent``           model, step, model, … until the environment ends the episode
``environment_driven_agent``  the environment runs the rollout itself, with the agent's model server
``remote_agent``              an agent service of someone else; its open tool calls are carried out here
``user_simulator_agent``      a dialogue with a second model that plays the user
============================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["IMPLEMENTATIONS"]

# Implementation name in a configuration → where its class is; imported when a block names it.
IMPLEMENTATIONS: Mapping[str, str] = MappingProxyType(
    {
        "environment_driven_agent": "gym_trio.agents.environment_driven_agent:EnvironmentDrivenAgent",
        "gymnasium_agent": "gym_trio.agents.gymnasium_agent:GymnasiumAgent",
        "remote_agent": "gym_trio.agents.remote_agent:RemoteAgent",
        "simple_agent": "gym_trio.agents.simple_agent:SimpleAgent",
        "user_simulator_agent": "gym_trio.agents.user_simulator_agent:UserSimulatorAgent",
    }
)
