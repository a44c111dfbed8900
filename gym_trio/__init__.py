"""gym_trio: reinforcement-learning rollouts on trio, where stopping is exact.

The public names, by room; each is imported from its room when it is first used:

================  =====================================================================================
rollouts          `RolloutStream`, `RolloutOutcome` = `Completed` | `Failed` | `Drained`, `RolloutFailure`
the gym           `open_gym`, `connect_gym`, `Gym`
servers           `AgentServer`, `ResourcesServer`, `ModelServer`, `EnvironmentServer`, `tool`
HTTP              `open_server`, `serve`, `CancelOnDisconnect`, `Response`
processes         `open_supervisor`
errors            everything drawn in `gym_trio.errors`
================  =====================================================================================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import *  # noqa: F403  the tree's own __all__ is the list

if TYPE_CHECKING:
    from . import testing as testing

__version__ = "0.1.0"

_HOMES: dict[str, str] = {
    "AgentServer": "gym_trio.servers",
    "CancelOnDisconnect": "gym_trio.http",
    "Completed": "gym_trio.rollouts",
    "Drained": "gym_trio.rollouts",
    "EnvironmentServer": "gym_trio.servers",
    "Failed": "gym_trio.rollouts",
    "Gym": "gym_trio.gym",
    "GymnasiumServer": "gym_trio.servers",
    "ModelServer": "gym_trio.servers",
    "RequestBody": "gym_trio.servers",
    "ResourcesServer": "gym_trio.servers",
    "Response": "gym_trio.http",
    "RolloutOutcome": "gym_trio.rollouts",
    "RolloutStream": "gym_trio.rollouts",
    "Session": "gym_trio.servers",
    "connect_gym": "gym_trio.gym",
    "next_attempt": "gym_trio.rollouts",
    "open_gym": "gym_trio.gym",
    "output_text": "gym_trio.servers",
    "open_server": "gym_trio.http",
    "open_sandbox": "gym_trio.processes",
    "open_supervisor": "gym_trio.processes",
    "rows_to_send_again": "gym_trio.rollouts",
    "serve": "gym_trio.http",
    "take_groups": "gym_trio.rollouts",
    "take_until_count": "gym_trio.rollouts",
    "take_until_deadline": "gym_trio.rollouts",
    "tool": "gym_trio.servers",
}

__all__ = [*errors.__all__, *_HOMES, "__version__", "errors", "testing"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name == "testing":
        value = importlib.import_module("gym_trio.testing")
    else:
        raise AttributeError(f"module 'gym_trio' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
