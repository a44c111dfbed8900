"""What the drills share: marked processes, counted by reading /proc, and a program that misbehaves."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio

HERE = pathlib.Path(__file__).parent


class Marked:
    """Processes that carry one variable in their environment, or are known by their pid."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self.env = {"GYM_TRIO_DRILL": self.token}

    def alive(self) -> set[int]:
        """Read /proc: who carries the marker and is no zombie."""
        found = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if self.token.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes() and is_alive(int(pid)):
                    found.add(int(pid))
        return found

    async def wait_alive(self, count: int, within_seconds: float = 20) -> set[int]:
        """Wait until exactly so many are alive, twice in a row: one that is just replacing itself shows no marker."""
        seen: list[set[int]] = [set(), self.alive()]

        def settled() -> bool:
            seen.append(self.alive())
            return seen[-1] == seen[-2] and len(seen[-1]) == count

        assert await until(settled, within_seconds), [describe(pid) for pid in seen[-1]]
        return seen[-1]


class Lines:
    """An ``output`` that can be waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._news = trio.Event()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._news.set()
        self._news = trio.Event()

    def count(self, text: str) -> int:
        return sum(text in line for line in self.lines)

    async def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until ``text`` stood in so many lines."""
        with trio.fail_after(30):
            while self.count(text) < times:
                await self._news.wait()


async def until(condition: Callable[[], bool], within_seconds: float = 20) -> bool:
    """Ask again and again, as /proc has no event to wait for; return the last answer."""
    deadline = trio.current_time() + within_seconds
    while True:
        answer = condition()
        if answer or trio.current_time() > deadline:
            return answer
        await trio.sleep(0.01)


def stat_fields(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_alive(pid: int) -> bool:
    try:
        return stat_fields(pid)[0] not in "ZX"
    except OSError:
        return False


def describe(pid: int) -> str:
    try:
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[-200:]
        return f"{pid} parent {parent_of(pid)}: {command}"
    except OSError:
        return f"{pid} has ended"


def parent_of(pid: int) -> int:
    return int(stat_fields(pid)[1])


def zombie_children() -> list[int]:
    """List the zombies that this process has not reaped."""
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if not is_alive(int(pid))]


@pytest.fixture
def marked() -> Marked:
    return Marked()


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def program() -> Callable[..., list[str]]:
    """Return what makes the command line of a program with the given faults."""

    def make(**spec: object) -> list[str]:
        return [sys.executable, "-I", "-S", str(HERE / "program.py"), json.dumps(spec)]

    return make


@pytest.fixture
def runner() -> Callable[..., list[str]]:
    """Return what makes the command line of a program that owns servers with the given faults."""

    def make(*servers: dict[str, object], **plan: object) -> list[str]:
        return [sys.executable, str(HERE / "runner.py"), json.dumps({"servers": servers, **plan})]

    return make


@pytest.fixture(name="is_alive")
def is_alive_fixture() -> Callable[[int], bool]:
    return is_alive


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., Awaitable[bool]]:
    return until


@pytest.fixture(name="parent_of")
def parent_of_fixture() -> Callable[[int], int]:
    return parent_of


@pytest.fixture(autouse=True)
def no_zombies() -> Iterator[None]:
    """Hold, after every test, that no zombie of it is left."""
    before = set(zombie_children())
    yield
    assert set(zombie_children()) <= before
