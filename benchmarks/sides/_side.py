"""What every side uses: marks, the result line, digests. Standard library only: it runs under any peer's Python."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import resource
import sys
import time

BODY = {"text": "x" * 980, "n": 1}


def options(**defaults):
    """``--name VALUE`` for each default, of its type; booleans are flags."""
    parser = argparse.ArgumentParser()
    for name, value in defaults.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(value), default=value)
    return parser.parse_args()


class Clock:
    """CPU and wall time of a section of this process."""

    is_new = True

    def __enter__(self):
        self.is_new = False
        self._cpu, self._wall = time.process_time(), time.monotonic()
        return self

    def __exit__(self, *_):
        self.figures = {
            "cpu_seconds": time.process_time() - self._cpu,
            "wall_seconds": time.monotonic() - self._wall,
        }


def mark(name):
    """Let the harness read the clocks of the whole tree of processes here."""
    print(json.dumps({"mark": name}), flush=True)
    sys.stdin.readline()


def ready(url, *packages):
    print(json.dumps({"url": url, "versions": versions(*packages)}), flush=True)


def report(work, figures=None, packages=()):
    print(json.dumps({"work": work, "figures": figures or {}, "versions": versions(*packages)}), flush=True)


def versions(*packages):
    found = {"python": sys.version.split()[0]}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


class Digest:
    """Of bodies in any order."""

    def __init__(self):
        self._sum = 0
        self._last = None, 0

    def add(self, body):
        if body != self._last[0]:
            self._last = body, int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "big")
        self._sum = (self._sum + self._last[1]) % 2**64

    def __str__(self):
        return f"{self._sum:016x}"


def raise_file_limit():
    """As many descriptors as the machine allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
