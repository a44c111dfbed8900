"""Those that gym_trio is compared with, each in a virtual environment of its own, outside the repository."""

from __future__ import annotations

import json
import os
import pathlib
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
            options=("--ignore-requires-python",),
            note="it asks for Python 3.13.14 or later; any 3.13 is taken, with --ignore-requires-python",
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


def setup(names: list[str]) -> dict[str, str]:
    """Install peers that are not there yet. What became of each, by name."""
    return {name: _install(PEERS[name]) for name in names}


def _install(peer: Peer) -> str:
    place, failed = home() / peer.name, home() / f"{peer.name}.failed"
    if python_of(peer.name):
        return f"is there already, in {place}"
    home().mkdir(parents=True, exist_ok=True)
    failed.unlink(missing_ok=True)
    python = _find_python(peer.python)
    if python is None:
        failed.write_text(f"no Python {peer.python} was found (name one in the variable PYTHON_{peer.name.upper()})")
        return failed.read_text()
    pip = [str(place / "bin" / "python"), "-m", "pip"]
    try:
        subprocess.run([python, "-m", "venv", "--clear", str(place)], check=True, capture_output=True, text=True)
        subprocess.run(
            [*pip, "install", "--quiet", "--disable-pip-version-check", *peer.options, *peer.packages],
            check=True,
            capture_output=True,
            text=True,
        )
        listed = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-3:]
        failed.write_text("could not be installed: " + " / ".join(said))
        return failed.read_text()
    versions = {row["name"]: row["version"] for row in json.loads(listed)}
    (place / "installed.json").write_text(json.dumps(versions))
    return f"installed, {len(versions)} packages, in {place}" + (f" ({peer.note})" if peer.note else "")


def _find_python(version: str | None) -> str | None:
    """A Python of that version: named by a variable, on the path, or among pyenv's."""
    if version is None:
        return sys.executable
    named = os.environ.get("PYTHON_NEMO_GYM")
    if named:
        return named
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
        return found
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv") / "versions"
    there = sorted(pyenv.glob(f"{version}.*/bin/python")) if pyenv.is_dir() else []
    return str(there[-1]) if there else None
