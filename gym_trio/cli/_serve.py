"""``gym-trio serve MODULE:NAME``: one server on a port, until it is told to stop."""

from __future__ import annotations

import importlib
import os
import pathlib
import sys
from typing import Any

import trio

from ..config import GymConfig, ServerBlock, load_config, suggestion
from ..errors import ConfigError
from ..gym import build_server, find_implementation
from ..http import ServerClient, open_server, open_socket_transport
from ..processes import check_port_free
from ..servers import Server
from ._app import Exit
from ._collector import collector_for_rollouts
from ._console import tell
from ._list import KINDS
from ._signals import open_interrupts

__all__ = ["serve_command"]


def serve_command(
    target: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    config: pathlib.Path | None = None,
    name: str | None = None,
) -> None:
    """Serve one agent, environment or model server, or any ASGI app, until SIGINT or SIGTERM.

    Parameters
    ----------
    target
        ``module:NAME`` or ``file.py:NAME``, where NAME is a server class, a server object or an ASGI app; or the name
        of a built-in environment, agent or model.
    host
        The address to listen on.
    port
        The port to listen on; 0 takes a free one.
    config
        A configuration. The server takes the keys of its block, and reaches the other servers of the configuration at
        the host and port of theirs. What these still lack, such as a key of theirs, is asked for where they are served.
    name
        Which server of the configuration it is; not needed when only one fits.
    """
    sys.path.insert(0, os.getcwd())
    loaded = load_config(config, env=os.environ, whole=False) if config is not None else None
    if port:
        check_port_free(target, host, port)
    code = trio.run(_serve, target, host, port, loaded, name)
    raise Exit(code)


async def _serve(target: str, host: str, port: int, loaded: GymConfig | None, name: str | None) -> int:
    stop = trio.Event()
    async with open_socket_transport() as transport:
        client = ServerClient()
        for block in loaded.servers if loaded else ():
            if block.port is not None:
                client.register(block.name, transport, f"http://{block.host or '127.0.0.1'}:{block.port}")
        app, shown = load_target(target, loaded, name, client)
        async with open_interrupts(stop.set) as interrupts, open_server(app, host=host, port=port) as server:
            tell(f"{shown} at {server.url} (Ctrl-C stops it)")
            with collector_for_rollouts():
                await stop.wait()
            tell("stopping: requests in flight get their grace, then sessions are closed")
    return interrupts.exit_code


def load_target(target: str, loaded: GymConfig | None, name: str | None, client: ServerClient) -> tuple[Any, str]:
    """The ASGI app that ``target`` names, and what to call it.

    **Errors**: `ConfigError` when it cannot be found.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon:
        server_type = next((kind for kind, known in KINDS.values() if target in known), None)
        if server_type is None:
            everything = [one for _, known in KINDS.values() for one in known]
            hint = suggestion(target, everything)
            raise ConfigError(f"{target!r} is neither MODULE:NAME nor a built-in server{hint}")
        block = _block_of(loaded, name, server_type, target)
        return build_server(block, client).app, block.name
    found = _load(module_name, attribute, target)
    if isinstance(found, type) and issubclass(found, Server):
        block = _block_of(loaded, name, found.server_type, target)
        server = found(name=block.name, config=block.settings, client=client)
        return server.app, server.name
    if isinstance(found, Server):
        return found.app, found.name
    if callable(found):
        return found, target
    raise ConfigError(f"{target} is no server class, server or ASGI app but a {type(found).__name__}")


def _load(module_name: str, attribute: str, target: str) -> Any:
    if module_name.endswith(".py"):
        path = pathlib.Path(module_name).resolve()
        if not path.is_file():
            raise ConfigError(f"{target}: there is no file {path}")
        sys.path.insert(0, str(path.parent))
        module_name = path.stem
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"{target} cannot be imported: {error}") from error
    if not hasattr(module, attribute):
        raise ConfigError(f"{module_name} has no {attribute!r}{suggestion(attribute, vars(module))}")
    return getattr(module, attribute)


def _block_of(loaded: GymConfig | None, name: str | None, server_type: str, target: str) -> ServerBlock:
    block = _find_block(loaded, name, server_type, target)
    if loaded is not None and block.name in loaded.dangling:
        raise loaded.dangling[block.name]
    return block


def _find_block(loaded: GymConfig | None, name: str | None, server_type: str, target: str) -> ServerBlock:
    if loaded is None:
        return ServerBlock(
            name=name or target.rpartition(":")[2], server_type=server_type, implementation=target, settings={}
        )
    if name is not None:
        return loaded.server(name)
    fitting = [block for block in loaded.of_type(server_type) if _fits(block, target)]
    if len(fitting) != 1:
        names = ", ".join(block.name for block in loaded.of_type(server_type)) or "none"
        raise ConfigError(f"say with --name which server of the configuration {target} is; of its type: {names}")
    return fitting[0]


def _fits(block: ServerBlock, target: str) -> bool:
    if block.entrypoint == target or block.implementation == target:
        return True
    return ":" in target and find_implementation(block).__name__ == target.rpartition(":")[2]
