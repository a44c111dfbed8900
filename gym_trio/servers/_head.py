"""`HeadServer`: says which servers a fleet has, where they are, and whether all of them are ready."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import RequestRefused
from ._body import Reply, RequestBody
from ._server import Server

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["HeadServer", "with_addresses"]


class HeadServer(Server):
    """``GET /server_instances``, ``/global_config_dict_yaml``, ``/livez`` and ``/readyz`` of a fleet.

    ``instances()`` is the present list, ``config_yaml()`` the configuration with secrets hidden and each server's host
    and port filled in, ``is_ready()`` whether every server is. With a ``token`` both lists need
    ``Authorization: Bearer <token>``; the health routes never do.

    **Errors**: 401 without the token; ``/readyz`` is 503 until all servers are ready.
    """

    server_type = "head_server"

    def __init__(
        self,
        *,
        instances: Callable[[], Sequence[Mapping[str, Any]]],
        config_yaml: Callable[[], str],
        is_ready: Callable[[], bool],
        token: str | None = None,
    ) -> None:
        super().__init__(name="head")
        self._instances = instances
        self._config_yaml = config_yaml
        self._is_ready = is_ready
        self._token = token

    def routes(self) -> list[BaseRoute]:
        return [
            self.route("GET", "/server_instances", self._answer_instances),
            self.route("GET", "/global_config_dict_yaml", self._answer_config),
            self.route("GET", "/readyz", self._answer_ready),
            *super().routes(),
        ]

    async def _answer_instances(self, request: RequestBody) -> Reply:
        self._check_token(request)
        return Reply(list(self._instances()))

    async def _answer_config(self, request: RequestBody) -> Reply:
        self._check_token(request)
        return Reply(self._config_yaml())

    async def _answer_ready(self, request: RequestBody) -> Reply:
        ready = self._is_ready()
        return Reply({"status": "ok" if ready else "starting"}, status=200 if ready else 503)

    def _check_token(self, request: RequestBody) -> None:
        if self._token is None:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            raise RequestRefused(401, "this head server needs its bearer token")


def with_addresses(config: Mapping[str, Any], addresses: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    """``config`` with each server's host and port, and an environment server in front of every agent.

    NeMo Gym's collector reaches an agent through the one environment server whose block names it; an agent that none
    names gets a ``legacy_agent`` entry whose host and port are the agent's own.
    """
    filled: dict[str, Any] = dict(config)
    named: set[str] = set()
    agents: list[str] = []
    for name, (host, port) in addresses.items():
        [(server_type, implementations)] = config[name].items()
        [(implementation, settings)] = implementations.items()
        filled[name] = {server_type: {implementation: {"entrypoint": "app.py", **settings, "host": host, "port": port}}}
        if server_type == "environment_servers":
            named.add((settings.get("agent_server") or {}).get("name", ""))
        if server_type == "responses_api_agents":
            agents.append(name)
    for agent in agents:
        if agent not in named:
            host, port = addresses[agent]
            filled[f"{agent}_environment"] = {
                "environment_servers": {
                    "legacy_agent": {
                        "entrypoint": "app.py",
                        "agent_server": {"type": "responses_api_agents", "name": agent},
                        "host": host,
                        "port": port,
                    }
                }
            }
    return filled
