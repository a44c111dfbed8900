"""What the kernel knows about processes, and signals that cannot reach the wrong one.

A process id is only a number: between reading it and using it the process may have ended and the number may name a
stranger. `signal_process` therefore opens a pidfd first and asks again, with the pidfd open, whether the number still
names one of ours. If it does not, nothing is sent; if the process ended in between, the pidfd names nobody.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36


class Process:
    """One process as the kernel described it: ``state`` is its letter (``Z`` for a zombie)."""

    __slots__ = ("group", "parent", "pid", "session", "state")

    def __init__(self, pid: int, state: str, parent: int, group: int, session: int) -> None:
        self.pid = pid
        self.state = state
        self.parent = parent
        self.group = group
        self.session = session

    @property
    def alive(self) -> bool:
        return self.state not in ("Z", "X")


def _prctl(option: int, argument: int | bytes) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the subreaper of its descendants: one whose parent ends becomes a child of this process."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends."""
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def name_this_process(name: str) -> None:
    """Set the short name that ``ps`` and ``top`` show."""
    _prctl(PR_SET_NAME, name.encode()[:15])


def open_process(pid: int) -> int | None:
    """Return a pidfd, which turns readable when the process ends; None where the kernel has none or nobody is there."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def describe(pid: int) -> Process | None:
    """Look one process up; None when it does not exist."""
    if not LINUX:
        return _from_ps().get(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            data = file.read()
    except OSError:
        return None
    # The command stands in parentheses and may itself contain them, so the fields begin after the last one.
    fields = data[data.rfind(b")") + 2 :].split()
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]))


def children(pid: int) -> list[int]:
    """List the children of a process, zombies included. One that is being reparented right now may be missing."""
    if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
        return [each.pid for each in everything() if each.parent == pid]
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:
            continue
    return found


def descendants(roots: Iterable[int]) -> list[int]:
    """Walk down from ``roots``, which are included: parents come before their children."""
    found = dict.fromkeys(roots)
    pending = list(found)
    for pid in pending:
        new = [child for child in children(pid) if child not in found]
        found.update(dict.fromkeys(new))
        pending += new
    return list(found)


def everything() -> list[Process]:
    """List every process that this user may see."""
    if not LINUX:
        return list(_from_ps().values())
    numbers = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [found for found in map(describe, numbers) if found is not None]


def signal_process(pid: int, number: int, is_ours: Callable[[int], bool]) -> bool:
    """Send a signal to ``pid`` if ``is_ours(pid)`` still holds; return whether it was sent. Never to init or itself."""
    if pid <= 1 or pid == os.getpid():
        return False
    handle = open_process(pid)
    try:
        if not is_ours(pid):
            return False
        if handle is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def kill_trees(roots: Iterable[int], parent: int) -> int:
    """SIGKILL everything below and including ``roots``, which are children of ``parent``; return how many it reached.

    Parents first, so that a shell or a master has no time to mourn or replace a child. This is one round: who forked
    meanwhile is found by the next one, because its parent is dead and it has been adopted.
    """
    tree = dict.fromkeys(descendants(roots))

    def is_ours(pid: int) -> bool:
        found = describe(pid)
        return found is not None and found.alive and (found.parent == parent or found.parent in tree)

    return sum(signal_process(pid, signal.SIGKILL, is_ours) for pid in tree)


def _from_ps() -> dict[int, Process]:
    """Ask ``ps``, where there is no /proc."""
    import subprocess

    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat=,ppid=,pgid=,sess="], capture_output=True, check=False)
    return parse_ps(listed.stdout.decode())


def parse_ps(text: str) -> dict[int, Process]:
    """Read lines of ``pid stat ppid pgid sess``; a session that is not a number (macOS prints addresses) is 0."""
    found: dict[int, Process] = {}
    for line in text.splitlines():
        pid, state, parent, group, session = line.split()
        known = int(session) if session.isdigit() else 0
        found[int(pid)] = Process(int(pid), state[0], int(parent), int(group), known)
    return found
