"""``gym-trio env start``: a fleet of managed servers with a head server, until it is told to stop."""

from __future__ import annotations

import logging
import os
import pathlib
import re
import secrets
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import attrs
import trio
from cyclopts import Parameter

from ..config import GymConfig
from ..errors import UsageError
from ..gym import Gym, ProcessOptions, open_gym
from ..http import open_server
from ..processes import StopReport, Supervisor, check_port_free
from ..servers import HeadServer, with_addresses
from ._app import Exit
from ._configure import ModelFlags, configure, split_words
from ._console import print_table, tell
from ._fleets import HEAD_TOKEN, registered
from ._signals import open_interrupts

__all__ = ["env_start"]

_FLEET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def env_start(
    *words: str,
    config: Annotated[list[pathlib.Path] | None, Parameter(name=["--config"], negative=())] = None,
    model_type: str | None = None,
    model_url: str | None = None,
    model: Annotated[str | None, Parameter(name=["--model", "-m"])] = None,
    model_api_key: str | None = None,
    name: str | None = None,
    logs: pathlib.Path | None = None,
    head_token: str | None = None,
    on_exit: Literal["report", "restart", "raise"] = "report",
) -> None:
    """Start a configuration's servers as managed processes, with a head server, until SIGINT or SIGTERM.

    Stopping sends each server SIGINT once, gives all of them one grace (server_shutdown_timeout_seconds), then kills
    what is left with everything that descends from it. A second Ctrl-C skips the grace.

    Parameters
    ----------
    words
        An environment's name or folder, and any number of ++key=value overrides.
    config
        A configuration file in NeMo Gym's form; may be given several times.
    model_type
        local, openai_model, vllm_model or scripted_model.
    model_url
        The base URL of an OpenAI-compatible endpoint.
    model
        The model's name at the endpoint.
    model_api_key
        The endpoint's key; better in env.yaml or in POLICY_API_KEY.
    name
        What env status and env stop call the fleet; by default the folder's name.
    logs
        A folder for a NAME.log per server.
    head_token
        A bearer token that the head server asks for; "random" makes one. Also GYM_TRIO_HEAD_TOKEN.
    on_exit
        What a server's unexpected end does: report it, restart the server a few times, or (raise) end the fleet.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    environment, overrides = split_words(words)
    flags = ModelFlags(model_type=model_type, model_url=model_url, model=model, model_api_key=model_api_key)
    loaded = configure(environment, config or [], flags, overrides)
    for warning in loaded.warnings:
        tell(f"warning: {warning}")
    fleet_name = name or pathlib.Path.cwd().name or "fleet"
    if not _FLEET_NAME.fullmatch(fleet_name):
        raise UsageError(f"{fleet_name!r} cannot name a fleet: letters, digits, '.', '_' and '-'; give --name")
    token = head_token or os.environ.get(HEAD_TOKEN)
    token = secrets.token_urlsafe(24) if token == "random" else token
    head = loaded.run.head_server
    check_port_free("head", head.host, head.port, key="head_server.port")
    state = FleetState(loaded, time.time())
    with registered(fleet_name, head.url, state.started_at, token):
        code = trio.run(_run_fleet, state, token, ProcessOptions(on_exit=on_exit, log_folder=logs))
    raise Exit(code)


@attrs.define
class FleetState:
    """What the head server tells of: the fleet while it starts, runs and ends."""

    config: GymConfig
    started_at: float
    gym: Gym | None = None
    supervisor: Supervisor | None = None
    ready: bool = False

    def addresses(self) -> dict[str, tuple[str, int]]:
        if self.gym is None:
            return {}
        return {name: _host_and_port(url) for name, url in self.gym.addresses.items()}

    def instances(self) -> list[Mapping[str, Any]]:
        return [self._instance(name, host, port) for name, (host, port) in self.addresses().items()]

    def _instance(self, name: str, host: str, port: int) -> dict[str, Any]:
        block = self.config.server(name)
        running = self.supervisor.processes if self.supervisor else {}
        workers = [one for key, one in running.items() if key == name or key.startswith(f"{name}/")]
        return {
            "name": name,
            "process_name": name,
            "server_type": block.server_type,
            "implementation": block.implementation,
            "host": host,
            "port": port,
            "url": f"http://{host}:{port}",
            "pid": workers[0].pid if workers else None,
            "pids": [one.pid for one in workers],
            "state": ", ".join(sorted({one.state.value for one in workers})) or "gone",
            "started_at": workers[0].started_at if workers else None,
        }

    def config_yaml(self) -> str:
        import yaml

        redacted = with_addresses(self.config.redacted(), self.addresses())
        text: str = yaml.safe_dump(redacted, sort_keys=False, allow_unicode=True)
        return text

    def is_ready(self) -> bool:
        return self.ready and all(entry["state"] == "ready" for entry in self.instances())

    def escalate(self) -> None:
        if self.supervisor is not None:
            self.supervisor.escalate()

    def keep_supervisor(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor


def _host_and_port(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host.strip("[]"), int(port)


async def _run_fleet(state: FleetState, token: str | None, options: ProcessOptions) -> int:
    head = state.config.run.head_server
    server = HeadServer(instances=state.instances, config_yaml=state.config_yaml, is_ready=state.is_ready, token=token)
    fleet = trio.CancelScope()
    options = attrs.evolve(options, on_open=state.keep_supervisor)
    # The head server ends last: it answers for as long as there is a server to tell of.
    async with (
        open_interrupts(fleet.cancel, state.escalate) as interrupts,
        open_server(server.app, host=head.host, port=head.port) as running,
    ):
        with fleet:
            async with open_gym(state.config, "processes", processes=options) as gym:
                state.gym, state.ready = gym, True
                _tell_started(state, running.url)
                await trio.sleep_forever()
    if state.supervisor is not None and state.supervisor.report is not None:
        _tell_stopped(state.supervisor.report)
    return interrupts.exit_code


def _tell_started(state: FleetState, head_url: str) -> None:
    rows = [(one["name"], one["implementation"], one["url"], str(one["pid"])) for one in state.instances()]
    print_table("servers", ("name", "implementation", "url", "pid"), rows)
    tell(f"all servers are ready; head server at {head_url}; Ctrl-C stops them")


def _tell_stopped(report: StopReport) -> None:
    rows = [
        (one.name, str(one.pid), str(one.returncode), "yes" if one.escalated else "no", str(len(one.reaped)))
        for one in report.exits
    ]
    print_table("stopped", ("server", "pid", "exit code", "killed", "processes reaped"), rows)
