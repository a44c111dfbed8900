"""The schema that an OpenEnv server publishes of its actions, and what it settles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import FailureKind, ResponseError, RolloutFailure, Stage
from ..http import Origin, Request, Transport
from ._openenv_settings import OpenEnvSettings
from ._openenv_texts import Actions, actions_of_schema

__all__ = ["choose_actions", "fetch_action_schema"]


async def fetch_action_schema(
    transport: Transport, url: str, headers: tuple[tuple[bytes, bytes], ...]
) -> Mapping[str, Any]:
    """The JSON schema of the actions of the server at ``url``; empty where it publishes none.

    **Errors**: `TransportError`, `ResponseError`.
    """
    origin, target = Origin.parse(f"{url}/schema")
    response = await transport.send(Request("GET", origin, target, headers))
    if response.status == 404:
        return {}
    response.server = str(origin)
    response.raise_for_status()
    schema = response.json()
    schema = schema.get("action") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping):
        raise ResponseError(
            f"{origin}: /schema names no action", server=str(origin), status=response.status, body=response.text
        )
    return schema


def choose_actions(schema: Mapping[str, Any], settings: OpenEnvSettings, server: str) -> Actions:
    """How replies become actions: what the settings leave open goes by ``schema``.

    **Errors**: `RolloutFailure` (terminal) when neither says it.
    """
    actions = actions_of_schema(
        schema,
        form=settings.action,
        field=settings.action_field,
        pattern=settings.action_pattern,
        fixed=settings.action_values,
    )
    needs_field = settings.action == "text" or (settings.action == "auto" and not schema)
    if needs_field and actions.field is None and not actions.tools:
        raise RolloutFailure(
            FailureKind.AGENT_RUN_ERROR,
            f"{server}: the server's schema does not say which field takes the reply: set action_field",
            stage=Stage.SEED,
            terminal=True,
        )
    return actions
