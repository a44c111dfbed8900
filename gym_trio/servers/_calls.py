"""One server's call of another: JSON there and back, cookies brought up to date, failures with their stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import errors
from ..errors import RolloutFailure, Stage
from ._failures import failure_of

if TYPE_CHECKING:
    from ..http import ServerClient

__all__ = ["call_server"]


async def call_server(
    client: ServerClient,
    server: str,
    path: str,
    body: Any,
    cookies: dict[str, str],
    rollout_id: str | None,
    *,
    stage: str = Stage.AGENT,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """``POST path`` on ``server``; ``cookies`` are sent and brought up to date with the answer's.

    **Errors**: `RolloutFailure` with ``stage``, for no answer, an error status, and a body that is no JSON object.
    """
    if rollout_id:
        headers = {"x-ng-rollout-id": rollout_id, **(headers or {})}
    try:
        response = await client.post(server, path, json=body, headers=headers, cookies=cookies or None)
        response.raise_for_status()
        answer = response.json()
    except (errors.TransportError, errors.ResponseError) as error:
        raise failure_of(error, stage=stage) from None
    cookies.update(response.cookies())
    if not isinstance(answer, dict):
        raise RolloutFailure(
            errors.FailureKind.AGENT_RUN_ERROR,
            f"{server}{path} answered with a {type(answer).__name__}, not an object",
            response.status,
            stage,
        )
    return answer
