"""The marker: how a server and whatever descends from it is recognized when its parents have been killed.

It is carried twice. The environment is inherited, and lists every supervisor above a process, but a program may clear
it. A resource limit is inherited too and survives that: the bound on processor time under real-time scheduling, which
is infinite by default, is set to a number of many thousand years that is made from the token.
"""

from __future__ import annotations

import os
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "GYM_TRIO_WARDEN"
LIMIT_NAME = b"Max realtime timeout"
SMALLEST_LIMIT = 1 << 61  # microseconds
LIMIT_DIGITS = 15  # of the token, which is hexadecimal; sixty bits


def marked_environment(env: Mapping[str, str], token: str) -> dict[str, str]:
    """Lay ``env`` over this process's own, and add the token to those of the supervisors above."""
    outer = os.environ.get(VARIABLE)
    return {**os.environ, **env, VARIABLE: f"{outer}:{token}" if outer else token}


def mark_limits(token: str) -> None:
    """Mark this process and its descendants; does nothing where the limit is not infinite, or does not exist."""
    which = getattr(resource, "RLIMIT_RTTIME", None)
    if which is not None and resource.getrlimit(which)[1] == resource.RLIM_INFINITY:
        resource.setrlimit(which, (_limit(token), _limit(token)))


def is_marked(pid: int, token: str) -> bool:
    """Say whether a process carries the token: a server as above, a warden or a keeper as its last argument."""
    variable = f"{VARIABLE}=".encode()
    return (
        any(each.startswith(variable) and token.encode() in each for each in _read(pid, "environ").split(b"\0"))
        or _read(pid, "cmdline").split(b"\0")[-2:-1] == [token.encode()]
        or str(_limit(token)).encode() in _limits(pid).split()
    )


def _limit(token: str) -> int:
    return SMALLEST_LIMIT + int(token[:LIMIT_DIGITS], 16)


def _limits(pid: int) -> bytes:
    return next((line for line in _read(pid, "limits").splitlines() if line.startswith(LIMIT_NAME)), b"")


def _read(pid: int, place: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{place}", "rb") as file:
            return file.read()
    except OSError:
        return b""
