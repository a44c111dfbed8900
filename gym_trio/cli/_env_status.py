"""``gym-trio env status`` and ``env stop``: a running fleet, from another terminal."""

from __future__ import annotations

import math
import os
import signal
import time
from typing import Annotated, Any

import trio
from cyclopts import Parameter

from ..errors import GymError, RunError, TransportError
from ..http import ServerClient, SocketTransport, open_socket_transport
from ._console import print_json, print_line, print_table
from ._fleets import Fleet, find_fleet, forget, recorded_fleets

__all__ = ["env_status", "env_stop"]

ANSWER_SECONDS = 5.0
LOOK_INTERVAL_SECONDS = 0.05
# The warden of a fleet sees to it (`gym_trio.processes`).
ENDED = "ended without being stopped, and its servers with it, at most two seconds later"
SHOWN_ROLLOUTS = 10  # per server, the oldest; --json has a hundred


def env_status(
    fleet: str | None = None, *, as_json: Annotated[bool, Parameter(name="--json", negative=())] = False
) -> None:
    """Servers, health, sessions and uptime of the running fleets, or of one; and which fleets were killed.

    Parameters
    ----------
    fleet
        A fleet's name or folder; all of them by default.
    as_json
        Print JSON.
    """
    fleets = recorded_fleets() if fleet is None else [find_fleet(fleet)]
    described = trio.run(_describe_all, fleets)
    if as_json:
        print_json(described)
        return
    if not any(one["running"] for one in described):
        print_line("no fleet is running")
    for one in described:
        if not one["running"]:
            print_line(f"{one['name']} (pid {one['pid']}, {one['folder']}): {one['error']}")
            continue
        rows = [
            (
                server["name"],
                server["implementation"],
                server["url"],
                str(server["pid"]),
                server["health"],
                _sessions(server["status"]),
                _age(server["started_at"]),
            )
            for server in one["servers"]
        ]
        title = f"{one['name']} (pid {one['pid']}, {one['folder']}, up {_age(one['started_at'])})"
        print_table(title, ("server", "implementation", "url", "pid", "health", "sessions", "up"), rows)
        for server in one["servers"]:
            for rollout in ((server["status"] or {}).get("running") or ())[:SHOWN_ROLLOUTS]:
                stage, age = rollout["stage"], rollout["age_seconds"]
                print_line(f"{server['name']}: rollout {rollout['rollout_id']}: {stage}, {age:.1f} s")
        if one["error"]:
            print_line(f"{one['name']}: {one['error']}")


def env_stop(fleet: str | None = None, *, kill_after_seconds: float = 120.0) -> None:
    """Stop a running fleet, and say what was stopped. What is recorded of one that was killed is taken away.

    Parameters
    ----------
    fleet
        Its name or folder; may be left out when only one is running.
    kill_after_seconds
        When its own shutdown takes longer, it is told a second time, which skips the grace.
    """
    found = find_fleet(fleet)
    if not found.is_alive():
        forget(found)
        print_line(f"nothing to stop: {found.name} (pid {found.pid}) {ENDED}")
        return
    described = trio.run(_describe_all, [found])
    os.kill(found.pid, signal.SIGTERM)
    if not trio.run(_wait_gone, found, kill_after_seconds):
        os.kill(found.pid, signal.SIGTERM)
        if not trio.run(_wait_gone, found, ANSWER_SECONDS * 4):
            raise RunError(
                f"the fleet {found.name} (pid {found.pid}) is still there; kill -9 {found.pid} ends all of it"
            )
    names = ", ".join(server["name"] for server in described[0]["servers"]) or "no servers"
    print_line(f"stopped {found.name} (pid {found.pid}): {names}")


async def _wait_gone(fleet: Fleet, bound_seconds: float) -> bool:
    # Nobody tells us when a process ends that is not our child, so it is looked at now and then.
    for _ in range(math.ceil(bound_seconds / LOOK_INTERVAL_SECONDS)):
        if not fleet.is_alive():
            return True
        await trio.sleep(LOOK_INTERVAL_SECONDS)
    return not fleet.is_alive()


async def _describe_all(fleets: list[Fleet]) -> list[dict[str, Any]]:
    async with open_socket_transport() as transport:
        return [await _describe(fleet, transport) for fleet in fleets]


async def _describe(fleet: Fleet, transport: SocketTransport) -> dict[str, Any]:
    client = ServerClient({"head": (transport, fleet.head_url)})
    described: dict[str, Any] = {
        "name": fleet.name,
        "pid": fleet.pid,
        "folder": fleet.folder,
        "head": fleet.head_url,
        "started_at": fleet.started_at,
        "uptime_seconds": round(time.time() - fleet.started_at, 1),
        "running": fleet.is_alive(),
        "servers": [],
        "error": None,
    }
    if not described["running"]:
        return {**described, "uptime_seconds": None, "error": f"{ENDED} (env stop {fleet.name} forgets it)"}
    headers = {"authorization": f"Bearer {fleet.token}"} if fleet.token else None
    try:
        with trio.fail_after(ANSWER_SECONDS):
            response = await client.get("head", "/server_instances", headers=headers)
        response.raise_for_status()
        instances = response.json()
    except (GymError, trio.TooSlowError) as error:
        described["error"] = f"its head server does not answer: {error or 'no answer in time'}"
        return described
    for instance in instances:
        client.register(instance["name"], transport, instance["url"])
        described["servers"].append({**instance, **await _health(client, instance["name"])})
    return described


async def _health(client: ServerClient, name: str) -> dict[str, Any]:
    try:
        with trio.fail_after(ANSWER_SECONDS):
            health = await client.get(name, "/health")
            status = await client.get(name, "/status")
    except (TransportError, trio.TooSlowError) as error:
        return {"health": f"unreachable ({error or 'no answer in time'})", "status": None}
    word = "ok" if health.status == 200 else f"status {health.status}"
    return {"health": word, "status": status.json() if status.status == 200 else None}


def _sessions(status: Any) -> str:
    sessions = status.get("sessions") if isinstance(status, dict) else None
    if not isinstance(sessions, dict):
        return "-"
    return ", ".join(f"{count} {state}" for state, count in sessions.items() if isinstance(count, int) and count) or "0"


def _age(started_at: Any) -> str:
    if not isinstance(started_at, int | float):
        return "-"
    seconds = max(0, round(time.time() - started_at))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
