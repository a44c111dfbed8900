"""What `Supervisor.start` was asked for, checked."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import attrs

from ..errors import UsageError
from ._readiness import ReadyUrl

MAX_PASSED = 200  # the kernel takes 253 descriptors in one message, and the pipes need a place
Interrupt = Literal["process", "group"]
OnExit = Literal["report", "raise", "ignore"]


def checked_seconds(key: str, value: float) -> float:
    """Return a duration that is a finite number and not negative, or raise a `UsageError` that names the key."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise UsageError(f"{key} must be a finite number of seconds, 0 or more, not {value!r}")
    return value


@attrs.frozen
class ServerSpec:
    """The arguments of `Supervisor.start`, in the form in which they are used."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    ready_url: ReadyUrl | None
    ready_fd: bool
    ready_timeout_seconds: float
    on_exit: OnExit
    interrupt: Interrupt
    pass_fds: tuple[int, ...]
    log_path: str | None

    @property
    def signals_readiness(self) -> bool:
        """Whether there is anything to wait for once the program runs."""
        return self.ready_fd or self.ready_url is not None


def check_spec(name: str, command: Any, **given: Any) -> ServerSpec:
    """Make a spec.

    **Errors**: `UsageError` names the server and the argument that cannot work.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"a server needs a name, not {name!r}")
    try:
        return ServerSpec(
            name=name,
            command=_command(command),
            env=_env(given["env"] or {}),
            cwd=_path(given["cwd"]),
            ready_url=ReadyUrl(given["ready_url"]) if given["ready_url"] is not None else None,
            ready_fd=bool(given["ready_fd"]),
            ready_timeout_seconds=checked_seconds("ready_timeout_seconds", given["ready_timeout_seconds"]),
            on_exit=_one_of("on_exit", given["on_exit"], get_args(OnExit)),
            interrupt=_one_of("interrupt", given["interrupt"], get_args(Interrupt)),
            pass_fds=_fds(given["pass_fds"]),
            log_path=_path(given["log_path"]),
        )
    except (UsageError, TypeError, ValueError) as exc:
        raise UsageError(f"server {name}: {exc}") from exc


def _command(command: Any) -> tuple[str, ...]:
    parts: Sequence[Any] = shlex.split(command) if isinstance(command, str) else command
    words = tuple(os.fsdecode(part) for part in parts)
    if not words or not words[0]:
        raise UsageError("command is empty")
    _without_nul("command", words)
    return words


def _env(env: Mapping[Any, Any]) -> dict[str, str]:
    words = {os.fsdecode(key): os.fsdecode(value) for key, value in env.items()}
    if wrong := [key for key in words if not key or "=" in key]:
        raise UsageError(f"env has a name that no variable can have: {wrong[0]!r}")
    _without_nul("env", [*words, *words.values()])
    return words


def _without_nul(what: str, words: Sequence[str]) -> None:
    if wrong := [word for word in words if "\0" in word]:
        raise UsageError(f"{what} has a NUL character in {wrong[0]!r}")


def _path(path: Any) -> str | None:
    return None if path is None else os.path.abspath(os.fsdecode(path))


def _one_of(key: str, value: Any, choices: Sequence[str]) -> Any:
    if value not in choices:
        raise UsageError(f"{key} must be {' or '.join(map(repr, choices))}, not {value!r}")
    return value


def _fds(fds: Sequence[int]) -> tuple[int, ...]:
    if len(fds) > MAX_PASSED:
        raise UsageError(f"pass_fds has {len(fds)} file descriptors; {MAX_PASSED} is the most")
    for fd in fds:
        if fd <= 2:
            raise UsageError(f"pass_fds has {fd}, which is a standard stream")
        try:
            os.fstat(fd)
        except OSError as exc:
            raise UsageError(f"pass_fds has {fd}, which is not an open file descriptor") from exc
    return tuple(fds)
