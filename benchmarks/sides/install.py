"""Packages and bytes of an install: of gym_trio without extras in a fresh environment, or of a peer's as it is."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from _side import options, report

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BESIDE = {"pip", "setuptools", "wheel"}


def size_of(place):
    return sum(
        os.lstat(path).st_size
        for path in pathlib.Path(place).rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and "__pycache__" not in path.parts
        and path.parts[-2:-1] != ("pip",)
    )


def measure(python):
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], check=True, capture_output=True).stdout
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    place = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    names = {row["name"] for row in json.loads(listed)} - BESIDE
    beside = sum(size_of(path) for name in BESIDE for path in pathlib.Path(place).glob(f"{name}*"))
    return {"packages": float(len(names)), "size_bytes": float(size_of(place) - beside)}


arguments = options(what="gym_trio")
if arguments.what == "gym_trio":
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        python = f"{place}/bin/python"
        quiet = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "pip", "install", *quiet, str(ROOT)], check=True, stdout=sys.stderr)
        figures = measure(python)
else:
    figures = measure(sys.executable)
report({"installs": 1}, figures, ["gym_trio", "nemo-gym"])
