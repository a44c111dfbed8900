"""A configuration's servers as managed processes."""

from __future__ import annotations

import functools
import os
import pathlib
import shlex
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import IO, Any, Literal

import attrs
import orjson
import trio

from ..config import GymConfig, ServerBlock
from ..errors import ConfigError
from ..http import ServerClient, open_socket_transport
from ..processes import ManagedProcess, Supervisor, bind_port, check_port_free, open_supervisor
from ._build import find_implementation
from ._evidence import capture_folder, evidence_of_processes
from ._gym import Gym
from ._open import is_observed
from ._restarts import restarting

__all__ = ["ProcessOptions", "open_gym_processes", "shutdown_grace_seconds"]

# What the process of one server runs; it belongs to the command line, which alone may read an environment.
SERVE_MANAGED = "from gym_trio.cli import serve_managed; serve_managed()"

DEFAULT_SESSION_CLOSE_SECONDS = 60.0
GRACE_BEYOND_SESSIONS_SECONDS = 10.0


@attrs.frozen(kw_only=True)
class ProcessOptions:
    """How a fleet of processes is run.

    ``on_exit``: what a server's unexpected end does. ``"report"`` logs it, and its rollouts fail from then on;
    ``"restart"`` starts it again at its address, a few times: the rollouts that it was at work for fail, those that
    come later wait for it (a server of a ``command`` block is only reported); ``"raise"`` ends the gym with
    `ServerDied`. ``output`` is told each line, ``log_folder`` gets a ``NAME.log`` per server,
    ``on_open`` the supervisor before any server has started, for whoever may want to escalate during the start.
    """

    on_exit: Literal["report", "restart", "raise"] = "report"
    output: Callable[[str], None] | IO[str] | None = None
    log_folder: pathlib.Path | None = None
    on_open: Callable[[Supervisor], None] | None = None


@attrs.frozen
class _Place:
    """Where one server of the fleet is."""

    block: ServerBlock
    host: str
    port: int
    listener: socket.socket | None  # bound here and handed over; None for a command, which binds its own

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def shutdown_grace_seconds(config: GymConfig) -> float:
    """What servers get between SIGINT and SIGKILL: as configured, else enough for their session drains."""
    if config.run.server_shutdown_timeout_seconds is not None:
        return config.run.server_shutdown_timeout_seconds
    bounds = [
        block.settings.get("session_close_timeout_seconds", DEFAULT_SESSION_CLOSE_SECONDS)
        for block in config.servers
        if "command" not in block.settings and find_implementation(block).keeps_sessions
    ]
    return max(bounds) + GRACE_BEYOND_SESSIONS_SECONDS if bounds else 1.0


@asynccontextmanager
async def open_gym_processes(config: GymConfig, options: ProcessOptions | None = None) -> AsyncIterator[Gym]:
    """The servers of ``config``, each in a process of its own, started side by side.

    **Cancellation**: leaving the block stops them: SIGINT, the grace, SIGKILL; see `open_supervisor`.

    **Errors**: `ConfigError` before anything starts; `ServerStartError` of the first server that fails, with its last
    lines, after the others have been stopped.
    """
    options = options or ProcessOptions()
    _check_blocks(config)
    with ExitStack() as lasting, ExitStack() as stack:
        places = [stack.enter_context(_place_of(block, config)) for block in config.servers]
        folder = capture_folder(config, lasting) if is_observed(config) else None
        urls = {place.block.name: place.url for place in places}
        described = stack.enter_context(_description(config, urls, folder))
        grace = shutdown_grace_seconds(config)
        async with (
            open_supervisor(server_shutdown_timeout_seconds=grace, output=options.output) as supervisor,
            open_socket_transport() as transport,
        ):
            if options.on_open is not None:
                options.on_open(supervisor)
            started = await _start_all(supervisor, places, described, config, options)
            if options.on_exit != "restart":
                stack.close()
            client = ServerClient()
            addresses = {place.block.name: place.url for place in places}
            for name, url in addresses.items():
                client.register(name, transport, url)
            agents = [place.block.name for place in places if place.block.server_type == "responses_api_agents"]
            evidence = None if folder is None else evidence_of_processes(config, folder, client)
            gym = Gym(
                client, agents=agents, config=config, supervisor=supervisor, addresses=addresses, evidence=evidence
            )
            if options.on_exit != "restart":
                yield gym
                return
            try:
                async with restarting(supervisor, started, _giving_up(places, started)):
                    yield gym
            finally:
                # Before anything stops: who calls a server that has gone must be refused, not left waiting.
                stack.close()


def _giving_up(places: list[_Place], started: Iterable[ManagedProcess]) -> Callable[[str], None]:
    """What closes a server's listener when the last of its workers is not started again: they listen together."""
    left = Counter(_server_of(process.name) for process in started)

    def give_up(name: str) -> None:
        left[_server_of(name)] -= 1
        for place in places:
            if place.listener is not None and not left[place.block.name]:
                place.listener.close()

    return give_up


def _server_of(name: str) -> str:
    return name.partition("/")[0]


async def _start_all(
    supervisor: Supervisor, places: list[_Place], described: int, config: GymConfig, options: ProcessOptions
) -> dict[ManagedProcess, Callable[[], Awaitable[ManagedProcess]]]:
    """Every server of ours, and how to start it once more.

    **Errors**: that of the first one that fails.
    """
    failures: list[Exception] = []
    started: dict[ManagedProcess, Callable[[], Awaitable[ManagedProcess]]] = {}

    async def start(place: _Place) -> None:
        again = functools.partial(_start, supervisor, place, described, config, options)
        try:
            process = await again()
            if place.listener is not None:
                started[process] = again
        except Exception as error:  # noqa: BLE001  the first one is raised by the caller, outside the nursery
            failures.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for place in places:
            for _ in range(place.block.num_workers or 1):
                nursery.start_soon(start, place)
    if failures:
        raise failures[0]
    return started


async def _start(
    supervisor: Supervisor, place: _Place, described: int, config: GymConfig, options: ProcessOptions
) -> ManagedProcess:
    block = place.block
    bound = config.run.server_spinup_timeout_seconds
    workers = block.num_workers or 1
    name = block.name if workers == 1 else _worker_name(supervisor, block.name)
    common: dict[str, Any] = {
        "ready_timeout_seconds": 600 if bound is None else bound,
        "on_exit": "raise" if options.on_exit == "raise" else "report",
        "log_path": options.log_folder / f"{name}.log" if options.log_folder else None,
    }
    if place.listener is None:
        command = block.settings["command"]
        return await supervisor.start(
            name,
            shlex.split(command) if isinstance(command, str) else [str(word) for word in command],
            cwd=block.settings.get("cwd"),
            env={key: str(value) for key, value in (block.settings.get("env") or {}).items()},
            ready_url=block.settings.get("ready_url") or place.url,
            interrupt="group",
            **common,
        )
    listener = place.listener.fileno()
    return await supervisor.start(
        name,
        [sys.executable, "-c", SERVE_MANAGED, block.name, str(listener), str(described)],
        ready_fd=True,
        pass_fds=[listener, described],
        **common,
    )


def _worker_name(supervisor: Supervisor, name: str) -> str:
    taken = supervisor.processes
    number = 1
    while f"{name}/{number}" in taken:
        number += 1
    return f"{name}/{number}"


@contextmanager
def _place_of(block: ServerBlock, config: GymConfig) -> Iterator[_Place]:
    host = block.host or config.run.default_host or "127.0.0.1"
    if "command" in block.settings:
        if block.port is None:
            raise ConfigError("a command block names the port it serves on", file=block.file, key=f"{block.key}.port")
        check_port_free(block.name, host, block.port, key=f"{block.key}.port")
        yield _Place(block, host, block.port, None)
        return
    with bind_port(block.name, host, block.port or 0, key=f"{block.key}.port") as listener:
        yield _Place(block, host, listener.getsockname()[1], listener)


@contextmanager
def _description(config: GymConfig, urls: Mapping[str, str], folder: pathlib.Path | None) -> Iterator[int]:
    """A descriptor that holds the configuration for the workers: it may hold keys, so no file and no argument does."""
    content = orjson.dumps(
        {
            "config": config.to_mapping(anywhere=True),
            "urls": urls,
            "sys_path": sys.path,  # a script's own folder is on it, and not on a worker's
            "capture_folder": str(folder) if folder else None,
        },
        option=orjson.OPT_NON_STR_KEYS,
    )
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("gym_trio")
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    try:
        with os.fdopen(os.dup(number), "wb") as writer:
            writer.write(content)
        yield number
    finally:
        os.close(number)


def _check_blocks(config: GymConfig) -> None:
    for block in config.servers:
        if "command" in block.settings:
            continue
        cls = find_implementation(block)
        if (block.num_workers or 1) > 1 and cls.keeps_sessions:
            raise ConfigError(
                "num_workers must be 1: this server keeps sessions, and another worker would not know them",
                file=block.file,
                key=f"{block.key}.num_workers",
            )
