"""A row as the episode of an environment server, and the server's answer as the rollout's result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import FailureKind, RolloutFailure, Stage

__all__ = ["ENVIRONMENT_SERVER", "LEGACY_AGENT", "episode_of", "result_of_episode"]

# The row's key that names the environment server in front of its agent.
ENVIRONMENT_SERVER = "_ng_environment_server"
LEGACY_AGENT = "legacy_agent"  # the implementation that hands rows on as they are
_TASK_ID = "_ng_task_id"
_PARAMS = "responses_create_params"
_NOT_TASK_DATA = frozenset({_PARAMS, "agent_ref", "task_source", "skills_ref"})
_ATTEMPT = re.compile(r"-a(\d+)\Z")


def episode_of(row: Mapping[str, Any], rollout_id: str, server: str) -> dict[str, Any]:
    """The body of an environment server's ``/run`` for a row; one without a task id is a task of ``server``'s own."""
    named = row.get(_TASK_ID)
    task_id = {"taskset": server, "task_id": str(row.get("_ng_task_index", rollout_id))}
    if isinstance(named, Mapping):
        task_id |= {name: named[name] for name in task_id if name in named}
    elif named is not None:
        task_id["task_id"] = str(named)
    suffix = _ATTEMPT.search(rollout_id)
    data = {name: value for name, value in row.items() if name[:4] != "_ng_" and name not in _NOT_TASK_DATA}
    return {
        "episode_id": {
            "rollout_id": rollout_id[: suffix.start()] if suffix else rollout_id,
            "attempt": int(suffix[1]) if suffix else 0,
        },
        "task": {"task_id": task_id, "task_input": {_PARAMS: row.get(_PARAMS), "task_data": data}},
    }


def result_of_episode(server: str, answer: Mapping[str, Any], status: int) -> dict[str, Any]:
    """The result in the answer.

    **Errors**: `RolloutFailure`: the one that the answer tells of, or that it is no answer to an episode.
    """
    result, failure = answer.get("result"), answer.get("failure")
    if isinstance(result, dict):
        return result
    if not isinstance(failure, Mapping):
        message = f"{server} answered /run with neither a result nor a failure"
        raise RolloutFailure(FailureKind.AGENT_RUN_ERROR, message, status, Stage.AGENT)
    partial, http_status = failure.get("partial_response"), failure.get("http_status")
    raise RolloutFailure(
        _word(failure.get("failure_kind")) or FailureKind.AGENT_RUN_ERROR,
        str(failure.get("failure_reason")),
        http_status if type(http_status) is int else None,
        _word(failure.get("stage")) or Stage.AGENT,
        bool(failure.get("terminal")),
        details={"partial_response": partial} if partial is not None else None,
    )


def _word(value: Any) -> str:
    """A text, or an empty one for what another server wrote in its place."""
    return value if isinstance(value, str) else ""
