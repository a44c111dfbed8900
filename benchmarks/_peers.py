"""Those that gym_trio is compared with, each in a virtual environment of its own, outside the repository."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import attrs

__all__ = ["PEERS", "Peer", "python_of", "setup"]


@attrs.frozen
class Peer:
    """What is installed, and under which Python, ours unless said."""

    name: str
    packages: tuple[str, ...]
    python: str | None = None
    options: tuple[str, ...] = ()
    note: str = ""


PEERS = {
    peer.name: peer
    for peer in (
        Peer("aiohttp", ("aiohttp", "uvloop")),
        Peer("httpx", ("httpx",)),
        Peer("uvicorn", ("uvicorn[standard]", "fastapi")),
        # The rest is what our middleware needs, which is put around the same app.
        Peer("hypercorn", ("hypercorn[trio]", "starlette", "httpx", "httptools", "orjson", "attrs")),
        Peer(
            "nemo_gym",
            ("nemo-gym==0.7.0",),
            python="3.13",
            options=("--python-version", "3.13.14"),
            note="it asks for Python 3.13.14 or later; any 3.13 is taken, and resolved for as if it were that",
        ),
    )
}


def home() -> pathlib.Path:
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "gym_trio" / "benchmarks"


def python_of(name: str | None) -> str | None:
    """The Python that a side of this peer runs under; None when the peer is not installed."""
    if name is None:
        return sys.executable
    python = home() / name / "bin" / "python"
    return str(python) if python.exists() and (home() / name / "installed.json").exists() else None


def why_absent(name: str) -> str:
    """Why a peer cannot run."""
    failed = home() / f"{name}.failed"
    if failed.exists():
        return failed.read_text()
    return "not installed (python -m benchmarks setup)"


def setup(name: str) -> str:
    """Install a peer unless it is there. What became of it, in words; `python_of` tells whether it can run."""
    peer, place, failed = PEERS[name], home() / name, home() / f"{name}.failed"
    if python_of(name):
        return f"is there already, in {place}"
    home().mkdir(parents=True, exist_ok=True)
    failed.unlink(missing_ok=True)
    try:
        python = _find_python(peer)
        _said_by([python, "-m", "venv", "--clear", str(place)])
        uv = [_find_uv(), "pip"]
        inside = ["--python", str(place / "bin" / "python")]
        # As pip does: without it, the first import of each module would be measured with its compilation.
        _said_by([*uv, "install", "--quiet", "--compile-bytecode", *inside, *peer.options, *peer.packages])
        listed = _said_by([*uv, "list", "--format=json", *inside])
    except (LookupError, OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-3:]
        failed.write_text("could not be installed: " + " / ".join(said))
        return failed.read_text()
    versions = {row["name"]: row["version"] for row in json.loads(listed)}
    (place / "installed.json").write_text(json.dumps(versions))
    return f"installed, {len(versions)} packages, in {place}" + (f" ({peer.note})" if peer.note else "")


def _said_by(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _find_uv() -> str:
    """The one on the path that works, or one of our own: NeMo Gym's 160 packages take pip twenty times as long."""
    found = shutil.which("uv")
    if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
        return found
    tools = home() / "tools"
    if not (tools / "bin" / "uv").exists():
        _said_by([sys.executable, "-m", "venv", "--clear", str(tools)])
        _said_by([str(tools / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"])
    return str(tools / "bin" / "uv")


def _find_python(peer: Peer) -> str:
    """A Python of the peer's version: named by a variable, on the path, or the newest of pyenv's.

    **Errors**: `LookupError` when there is none.
    """
    if peer.python is None:
        return sys.executable
    variable = f"PYTHON_{peer.name.upper()}"
    named = os.environ.get(variable)
    if named:
        return named
    found = shutil.which(f"python{peer.python}")
    if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
        return found
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv") / "versions"
    there = [place for place in pyenv.glob(f"{peer.python}.*") if (place / "bin" / "python").exists()]
    if not there:
        raise LookupError(f"no Python {peer.python} was found (name one in the variable {variable})")
    newest = max(there, key=lambda place: [int(part) for part in re.findall(r"\d+", place.name)])
    return str(newest / "bin" / "python")
