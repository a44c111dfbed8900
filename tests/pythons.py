"""Pythons with packages that do not go with this one's, for the tests that need them: made once, kept in the cache.

``python pythons.py NAME...`` makes those that are not there yet and prints the place of each. One process at a time
makes a Python; another that wants the same waits for it. With ``--behind`` it does so behind its caller, as no child of
it, for as long as its standard input is held open.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import venv
from collections.abc import Iterator
from dataclasses import dataclass

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gym_trio" / "tests"
UNREACHABLE = (
    *("NewConnectionError", "NameResolutionError", "Temporary failure in name resolution", "ConnectTimeout"),
    *("ReadTimeoutError", "ProxyError"),
)
UNREACHABLE_CODE = 3  # the exit code for a registry that cannot be reached


@dataclass(frozen=True)
class Wanted:
    """What one Python has."""

    installs: tuple[tuple[str, ...], ...]  # the words of each call of pip
    tried: tuple[str, str]  # a room's folder, and what is run in it: what that imports is compiled ahead of the tests
    below: str | None = None  # another of these, whose packages it has too
    on_this: bool = True  # has this Python's packages too, and installs none of them again


WANTED = {
    # Of what the package asks for, what its server needs: the rest (gradio and its like) is three times as much.
    "openenv": Wanted(
        (("--no-deps", "openenv==0.10.0"), ("fastapi", "uvicorn", "websockets", "fastmcp>=3,<4", "requests")),
        ("openenv", "import games, uvicorn.protocols.websockets.auto"),
        on_this=False,
    ),
    # Tasksets alone.
    "verifiers": Wanted((("verifiers==0.4.0",),), ("environments/verifiers_modules", "import vf_tasks")),
    # The last with `load_environment`; of what it asks for, what is imported.
    "classic verifiers": Wanted(
        (
            (
                *("--no-deps", "verifiers==0.3.1", "datasets==5.2.0", "dill==0.4.1", "multiprocess==0.70.19"),
                *("xxhash", "pyarrow", "pandas", "aiolimiter", "setproctitle", "openai-agents", "griffe", "griffelib"),
                "types-requests",
            ),
        ),
        ("environments/verifiers_modules", "import vf_classic; vf_classic.load_environment('')"),
        below="verifiers",
    ),
}


class Unreachable(Exception):
    """The registry of packages cannot be reached."""


def folder_of(name: str) -> pathlib.Path:
    wanted = WANTED[name]
    site = sysconfig.get_path("purelib") if wanted.on_this else ""
    below = wanted.below and folder_of(wanted.below)
    named = hashlib.sha256(repr((wanted, str(below), site, sys.version)).encode()).hexdigest()[:16]
    return CACHE / f"{name.replace(' ', '-')}-{named}"


def python_of(name: str) -> pathlib.Path:
    """Return its program, and make it first if it is not complete."""
    wanted, folder = WANTED[name], folder_of(name)
    below = [python_of(wanted.below)] if wanted.below else []
    python = folder / "bin" / "python"
    with _locked(folder):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            own_pip = importlib.util.find_spec("pip") is None
            venv.create(folder, symlinks=True, with_pip=own_pip)
            paths = [str(next(other.parents[1].glob("lib/python*/site-packages"))) for other in below]
            if wanted.on_this:
                paths.append(sysconfig.get_path("purelib"))
            (next(folder.glob("lib/python*/site-packages")) / "below.pth").write_text("\n".join(paths))
            pip = [python, "-m", "pip"] if own_pip else [sys.executable, "-m", "pip", "--python", python]
            for words in wanted.installs:
                _run([*pip, "--disable-pip-version-check", "install", "--quiet", "--no-compile", *words])
            room, code = wanted.tried
            _run([python, "-c", code], cwd=pathlib.Path(__file__).parent / room)
            (folder / "complete").touch()
    return python


def _run(command: list[str | pathlib.Path], cwd: pathlib.Path | None = None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=cwd)
    if ran.returncode:
        kind = Unreachable if any(word in ran.stdout + ran.stderr for word in UNREACHABLE) else RuntimeError
        raise kind(f"{command}: {ran.stderr[-2000:]}")


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """One process at a time; the kernel gives the lock back whatever happens to its holder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go_behind() -> None:
    """Go on as a child of nobody, in the session of one's own that the caller gave; end when standard input does."""
    if os.fork():
        os._exit(0)
    os.nice(10)

    def end_with_the_caller() -> None:
        sys.stdin.buffer.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_the_caller, daemon=True).start()


def main(*names: str) -> int:
    if names[0] == "--behind":
        _go_behind()
        names = names[1:]
    try:
        for name in names:
            print(python_of(name))
    except Unreachable as error:
        print(error, file=sys.stderr)
        return UNREACHABLE_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
