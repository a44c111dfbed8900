"""The last line of defence: find and end processes by the marker that every managed server's environment carries.

Used only when a warden was killed and gym_trio lives. Whatever was in the warden's tree has then been handed to an
ancestor of gym_trio or to init, unless it still has its old parent, so two things together tell it from a stranger
that came by the marker in another way (a job queue that copies environments): the marker, and a chain of marked
parents that ends at one of gym_trio's own ancestors.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from .warden import _kernel

ROUNDS_WITHOUT_A_FIND = 2
SWEEP_SECONDS = 5.0


def sweep(token: str, caller: int) -> int:
    """SIGKILL everything of the tree that ``token`` names, until two looks find nothing; return how many that were.

    Blocking: run it in a thread.
    """
    heirs = _ancestors(caller)
    ended = idle = 0
    deadline = time.monotonic() + SWEEP_SECONDS
    while idle < ROUNDS_WITHOUT_A_FIND and time.monotonic() < deadline:
        found = [pid for pid in _candidates(token) if _is_ours(pid, token, heirs)]
        for pid in found:
            ended += _kernel.signal_process(pid, signal.SIGKILL, lambda each: _is_ours(each, token, heirs))
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)  # ours to reap if gym_trio is init, or the subreaper of its own choice
        idle = 0 if found else idle + 1
        time.sleep(0.02)
    return ended


def _candidates(token: str) -> list[int]:
    return [each.pid for each in _kernel.everything() if each.alive and is_marked(each.pid, token)]


def is_marked(pid: int, token: str) -> bool:
    """Say whether a process carries the token, in its environment or (warden and keepers) as an argument."""
    for place in ("environ", "cmdline"):
        try:
            with open(f"/proc/{pid}/{place}", "rb") as file:
                if token.encode() in file.read():
                    return True
        except OSError:
            continue
    return False


def _ancestors(pid: int) -> set[int]:
    found = {1}
    while pid > 1 and pid not in found:
        found.add(pid)
        process = _kernel.describe(pid)
        pid = process.parent if process is not None else 1
    return found


def _is_ours(pid: int, token: str, heirs: set[int]) -> bool:
    """Walk up over marked processes; what stands above the topmost must be an heir."""
    while pid not in heirs:
        process = _kernel.describe(pid)
        if process is None or not is_marked(pid, token):
            return False
        pid = process.parent
    return True
