"""The program that confines itself and then turns into the sandboxed command. Run as a script, on no module of ours.

``python -I -S _sandbox_launcher.py SPEC COMMAND...``; SPEC is JSON: ``fds`` (standard streams and the status pipe),
``limits``, ``env``, ``uid`` and ``reachable``. One JSON line on the status pipe says what the kernel allowed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MARKER = "GYM_TRIO_WARDEN"
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 8, 38, 47
CAPABILITY_VERSION = 0x20080522
CAP_DAC_READ_SEARCH = 2
NOT_STARTED = 127


def _prctl(option: int, *arguments: int) -> bool:
    if sys.platform != "linux":
        return False
    padded = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    return bool(ctypes.CDLL(None).prctl(option, *padded) == 0)


def _unshare(flags: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).unshare(flags) == 0)
    except AttributeError:
        return False


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def leave_network() -> tuple[bool, bool]:
    """Say whether this process is now in a network of its own, without any link, and in a user namespace of its own."""
    if os.getuid() == 0 and _unshare(CLONE_NEWNET):
        return True, False
    uid, gid = os.getuid(), os.getgid()
    if not _unshare(CLONE_NEWUSER | CLONE_NEWNET):
        return False, False
    with contextlib.suppress(OSError):  # without a map it runs as nobody, which is no less confined
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
    return True, True


def _may_reach(paths: list[str]) -> bool:
    return all(os.access(path, os.X_OK, effective_ids=True) for path in paths)


def become_another(uid: int, reachable: list[str]) -> bool:
    """Give up root for a user that nobody else is, so that the kernel counts its processes apart.

    What it must reach may lie where only root can look (an interpreter in root's home): then it keeps the one right
    to read, and no other.
    """
    try:
        os.setgroups([])
        os.setegid(uid)
        os.seteuid(uid)
        reaches = _may_reach(reachable)
        os.seteuid(0)
        _prctl(PR_SET_KEEPCAPS, int(not reaches))
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError:
        return False
    if not reaches:
        bit = 1 << CAP_DAC_READ_SEARCH
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
        ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)(bit, bit, bit))
        _prctl(PR_CAP_AMBIENT, 2, CAP_DAC_READ_SEARCH)
    return True


def limit(name: str, value: int) -> None:
    which = getattr(resource, name, None)
    if which is None:
        return
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(OSError, ValueError):  # macOS refuses some
        resource.setrlimit(which, (value, value))


def confine(spec: dict[str, Any]) -> dict[str, bool]:
    """Everything but the bound on memory, which this program itself might not keep."""
    limits = spec["limits"]
    isolated, has_own_users = (False, False) if spec["network"] else leave_network()
    counted = has_own_users and os.getuid() != 0
    if os.getuid() == 0 and spec["uid"] is not None and not has_own_users:
        counted = become_another(spec["uid"], spec["reachable"])
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _prctl(PR_SET_PDEATHSIG, 9)  # a change of user has cleared it
    limit("RLIMIT_CORE", 0)
    limit("RLIMIT_CPU", limits["cpu_seconds"])
    limit("RLIMIT_FSIZE", limits["file_bytes"])
    limit("RLIMIT_NOFILE", limits["open_files"])
    if counted:
        limit("RLIMIT_NPROC", limits["processes"])
    return {"isolated_network": isolated, "counted": counted}


def main(spec: dict[str, Any], command: list[str]) -> NoReturn:
    *streams, status = spec["fds"]
    os.set_inheritable(status, False)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(3, status)
    os.closerange(status + 1, max(status, *streams) + 1)
    env = {**spec["env"], **({MARKER: os.environ[MARKER]} if MARKER in os.environ else {})}
    answer = json.dumps(confine(spec)) + "\n"
    limit("RLIMIT_AS", spec["limits"]["memory_bytes"])
    os.write(status, answer.encode())
    try:
        os.execvpe(command[0], command, env)
    except (OSError, ValueError, MemoryError) as error:
        os.write(2, f"{command[0]}: {getattr(error, 'strerror', None) or error}\n".encode())
    os._exit(NOT_STARTED)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
