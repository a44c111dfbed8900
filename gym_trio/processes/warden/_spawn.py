"""From a request to a running program: fork, own session, signals as at birth, descriptors in place, exec."""

from __future__ import annotations

import json
import os
import signal

from . import _kernel
from ._marker import mark_limits, marked_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class SpawnError(Exception):
    """The program could not be started; the message says why."""


def spawn(request: dict[str, Any], fds: list[int], token: str) -> int:
    """Start ``request["command"]`` and return its pid once the program has replaced the fork.

    ``fds[i]`` becomes descriptor ``request["targets"][i]`` of the program, for several numbers where a list is given.
    """
    keeper = os.getpid()
    try:
        failed, failing = os.pipe()
        pid = os.fork()
    except OSError as exc:  # no more descriptors or processes for this user
        raise SpawnError(str(exc.strerror)) from exc
    if pid == 0:
        _become(request, fds, token, keeper, failing)
    os.close(failing)
    with open(failed, "rb") as file:
        problem = file.read()
    if problem:
        os.waitpid(pid, 0)
        raise SpawnError(json.loads(problem))
    return pid


def _become(request: dict[str, Any], fds: list[int], token: str, keeper: int, failing: int) -> NoReturn:
    """In the fork: turn into the program, or write why not to ``failing``. Never returns into the keeper's code."""
    problem = "the keeper ended"
    try:
        os.setsid()
        _kernel.die_with_parent()
        if os.getppid() == keeper:  # else the keeper ended before the kernel had been asked
            failing = _place(fds, request["targets"], failing)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)  # an ignored signal stays ignored through exec
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            mark_limits(token)
            problem = request["cwd"] or ""
            if problem:
                os.chdir(problem)
            problem = request["command"][0]
            os.execvpe(problem, request["command"], marked_environment(request["env"], token))
    except OSError as exc:
        problem = f"{problem}: {exc.strerror}"
    finally:
        os.write(failing, json.dumps(problem).encode())
        os._exit(127)


def _place(fds: list[int], targets: list[list[int]], failing: int) -> int:
    """Put every descriptor at its number and /dev/null at 0; return where the failure pipe is now."""
    taken = {0, *(number for numbers in targets for number in numbers)}

    def out_of_the_way(fd: int) -> int:
        while fd in taken:
            fd = os.dup(fd)
        return fd

    failing = out_of_the_way(failing)
    sources = [out_of_the_way(fd) for fd in [*fds, os.open(os.devnull, os.O_RDONLY)]]
    for source, numbers in zip(sources, [*targets, [0]], strict=True):
        for number in numbers:
            os.dup2(source, number, inheritable=True)
    return failing
