"""`open_gym` and `connect_gym`: from a configuration, or from addresses, to a `Gym`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from ..config import GymConfig, load_config
from ..errors import ConfigError, UsageError
from ..http import MemoryTransport, ServerClient, SocketTransport, open_lifespan, open_socket_transport
from ..servers import AgentServer, Server
from ._build import build_server
from ._gym import Gym

if TYPE_CHECKING:
    from ._evidence import Evidence
    from ._processes import ProcessOptions

__all__ = ["connect_gym", "open_gym", "open_gym_of"]

Source = Mapping[str, Any] | GymConfig | str | os.PathLike[str]
Serve = Literal["memory", "sockets", "processes"]


def is_observed(config: GymConfig | None) -> TypeGuard[GymConfig]:
    """Whether the configuration asks for evidence: ``observability_enabled``, a capture folder, or token capture."""
    if config is None:
        return False
    run = config.run
    return run.observability_enabled or run.model_call_capture_dir is not None or run.token_id_capture.enabled


# Started first, ended last: those that others call.
_START_ORDER = ("responses_api_models", "resources_servers", "responses_api_agents", "environment_servers")


@asynccontextmanager
async def open_gym(
    config: Source | Sequence[Source],
    serve: Serve = "memory",
    *,
    overrides: Sequence[str] = (),
    processes: ProcessOptions | None = None,
) -> AsyncIterator[Gym]:
    """Start the servers of ``config`` (a mapping in NeMo Gym's form, a path, or a list of these); a `Gym`.

    ``serve="memory"`` keeps them in this process without sockets, ``"sockets"`` gives each a loopback port of this
    process, ``"processes"`` makes each a managed process, as ``processes`` says. Results are the same.

    **Cancellation**: leaving the block, however it is left, ends rollouts, then sessions, then servers, then
    processes, each within its own bound.

    **Errors**: `ConfigError` and `MissingExtraError` before anything starts; `ServerStartError` when a server does not
    become ready, after those already started have been stopped.

    **Ownership**: the block owns every server, session and connection.
    """
    loaded = config if isinstance(config, GymConfig) and not overrides else load_config(config, overrides=overrides)
    if not loaded.servers:
        raise ConfigError("the configuration has no server")
    if serve == "processes":
        from ._processes import open_gym_processes

        async with open_gym_processes(loaded, processes) as gym:
            yield gym
        return
    if serve not in ("memory", "sockets"):
        raise ConfigError(f"serve must be 'memory', 'sockets' or 'processes', not {serve!r}")
    client = ServerClient()
    servers = [build_server(block, client) for block in loaded.servers]
    async with open_gym_of(servers, client, serve=serve, config=loaded) as gym:
        yield gym


@asynccontextmanager
async def open_gym_of(
    servers: Iterable[Server],
    client: ServerClient,
    *,
    serve: Literal["memory", "sockets"] = "memory",
    config: GymConfig | None = None,
) -> AsyncIterator[Gym]:
    """A `Gym` of server objects that were made with ``client``."""
    ordered = sorted(servers, key=lambda server: _START_ORDER.index(server.server_type))
    async with AsyncExitStack() as stack:
        evidence: Evidence | None = None
        if is_observed(config):
            from ._evidence import open_evidence

            evidence = await stack.enter_async_context(open_evidence(config, ordered))
        transport: SocketTransport | None = None
        if serve == "sockets":
            transport = await stack.enter_async_context(open_socket_transport())
        for server in ordered:
            if transport is None:
                state = await stack.enter_async_context(open_lifespan(server.app, server=server.name))
                client.register(server.name, MemoryTransport(server.app, state=state), f"http://{server.name}")
            else:
                from ..http import open_server

                running = await stack.enter_async_context(open_server(server.app))
                client.register(server.name, transport, running.url)
        agents = [one.name for one in ordered if isinstance(one, AgentServer)]
        yield Gym(client, agents=agents, config=config, evidence=evidence, in_memory=transport is None)


@asynccontextmanager
async def connect_gym(where: str | Mapping[str, str], *, token: str | None = None) -> AsyncIterator[Gym]:
    """A `Gym` of servers that someone else runs: a head server's URL, or ``{server name: URL}``.

    Nothing is sent on entry; the head is asked when its answer is first needed, with ``token`` when it wants one.

    **Cancellation**, **Ownership**: leaving the block closes the connections. The servers are not touched.

    **Errors**: `ConfigError` for what is no URL; `TransportError` on first use when the head cannot be reached.
    """
    client = ServerClient()
    async with open_socket_transport() as transport:
        if isinstance(where, Mapping):
            for name, url in where.items():
                client.register(name, transport, url)
            yield Gym(client, agents=tuple(where))
            return
        client.register("head", transport, where)

        async def find_routes() -> tuple[str, ...]:
            return await ask_head(client, transport, token)

        yield Gym(client, find_routes=find_routes)


async def ask_head(client: ServerClient, transport: SocketTransport, token: str | None) -> tuple[str, ...]:
    """Register every server that the head server lists; the names of the agents.

    **Errors**: `TransportError`, `ResponseError` of the head; `ConfigError` when its list is not one.
    """
    headers = {"authorization": f"Bearer {token}"} if token else None
    response = await client.get("head", "/server_instances", headers=headers)
    response.raise_for_status()
    listed = response.json()
    if not isinstance(listed, list):
        raise ConfigError("the head server's /server_instances is no list", key="head_server")
    agents = []
    for entry in listed:
        name, url = (entry.get("name"), entry.get("url")) if isinstance(entry, Mapping) else (None, None)
        if not isinstance(name, str) or not isinstance(url, str):
            said = f"the head server lists an instance without name and url: {entry!r:.200}"
            raise ConfigError(said, key="head_server")
        try:
            client.register(name, transport, url)
        except UsageError as error:
            raise ConfigError(
                f"the head server lists {name} where nothing can be: {error}", key="head_server"
            ) from None
        if entry.get("server_type") == "responses_api_agents":
            agents.append(name)
    return tuple(agents)
