"""The fleets that run on this machine: one small file each, which ``env status`` and ``env stop`` find them by."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import orjson

from ..config import suggestion
from ..errors import UsageError

__all__ = ["HEAD_TOKEN", "Fleet", "find_fleet", "forget", "recorded_fleets", "registered"]

HEAD_TOKEN = "GYM_TRIO_HEAD_TOKEN"  # the variable that has the head server's token


@attrs.frozen
class Fleet:
    """A ``gym-trio env start``: it runs, or it was killed, for one that is stopped takes its record away."""

    name: str
    pid: int
    pid_started: str  # tells the process from a later one with its number
    folder: str
    head_url: str
    started_at: float  # Unix time
    token: str | None = None

    def is_alive(self) -> bool:
        """Whether that very process still runs."""
        return process_start(self.pid) == self.pid_started != ""


def process_start(pid: int) -> str:
    """When the process of that number started, in the kernel's words; empty when there is none."""
    try:
        content = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        if pathlib.Path("/proc/self").exists():
            return ""
        return _exists_without_proc(pid)
    # The command in parentheses may hold anything; the fields after it are plain. The 22nd is the start.
    fields = content.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _exists_without_proc(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "alive"


def fleet_folder() -> pathlib.Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_STATE_HOME")
    root = pathlib.Path(base) if base else pathlib.Path.home() / ".local" / "state"
    return root / "gym_trio" / "fleets"


def recorded_fleets() -> list[Fleet]:
    """Every fleet that runs, and every one that ended without being stopped and that nobody has forgotten."""
    found = []
    for path in sorted(fleet_folder().glob("*.json")):
        try:
            found.append(Fleet(**orjson.loads(path.read_bytes())))
        except (OSError, orjson.JSONDecodeError, TypeError):
            continue
    return found


def find_fleet(which: str | None) -> Fleet:
    """The recorded fleet of that name or folder, a running one first; the only running one when nothing is said.

    **Errors**: `UsageError` with what runs.
    """
    recorded = recorded_fleets()
    running = [fleet for fleet in recorded if fleet.is_alive()]
    names = [fleet.name for fleet in running]
    if which is None:
        if len(running) == 1:
            return running[0]
        here = [fleet for fleet in running if fleet.folder == os.getcwd()]
        if len(here) == 1:
            return here[0]
        raise UsageError(f"say which fleet; running: {', '.join(names)}" if names else _none_runs(recorded))
    folder = str(pathlib.Path(which).resolve())
    ended = [fleet for fleet in recorded if fleet not in running]
    for fleet in [*running, *ended]:
        if which == fleet.name or folder == fleet.folder:
            return fleet
    raise UsageError(f"no fleet {which!r} is running{suggestion(which, names)}")


def _none_runs(ended: list[Fleet]) -> str:
    names = ", ".join(fleet.name for fleet in ended)
    return f"no fleet is running; ended without being stopped: {names}" if names else "no fleet is running"


def forget(fleet: Fleet) -> None:
    """Take away what is recorded of a fleet that has ended."""
    (fleet_folder() / f"{fleet.name}.json").unlink(missing_ok=True)


@contextmanager
def registered(name: str, head_url: str, started_at: float, token: str | None) -> Iterator[Fleet]:
    """This process as a fleet, for the length of the block.

    **Errors**: `UsageError` when a fleet of that name is running.
    """
    for fleet in recorded_fleets():
        if fleet.name == name and fleet.is_alive():
            raise UsageError(f"a fleet {name!r} is running already (pid {fleet.pid}); stop it or give another --name")
    folder = fleet_folder()
    folder.mkdir(parents=True, exist_ok=True)
    fleet = Fleet(name, os.getpid(), process_start(os.getpid()), os.getcwd(), head_url, started_at, token)
    path = folder / f"{name}.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps(attrs.asdict(fleet)))
    try:
        yield fleet
    finally:
        path.unlink(missing_ok=True)
