"""Calls that are left behind: they keep their own places, and nobody else's."""

from __future__ import annotations

import ast
import pathlib
import threading

import pytest
import trio
import trio.testing

import gym_trio
from gym_trio.servers import ResourcesServer
from gym_trio.threads import Threads

PACKAGE = pathlib.Path(gym_trio.__file__).parent


@pytest.fixture
def hung() -> threading.Event:
    """What hung calls wait for."""
    return threading.Event()


async def leave_behind(threads: Threads, hung: threading.Event, calls: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(threads.run, hung.wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def finds_a_place(threads: Threads) -> bool:
    """Whether a call finds a place, in a run of its own."""

    async def main() -> bool:
        return await threads.run(lambda: True)

    return trio.run(main)


async def test_what_hangs_takes_none_of_the_shared_threads(hung: threading.Event) -> None:
    """More calls than there are shared threads are given up, and a name is looked up as if there were none."""
    shared = trio.to_thread.current_default_thread_limiter()
    try:
        await leave_behind(Threads(), hung, int(shared.total_tokens) + 1)
        assert shared.borrowed_tokens == 0
        assert await trio.to_thread.run_sync(lambda: "found") == "found"
    finally:
        hung.set()


async def test_what_hangs_keeps_its_own_place(hung: threading.Event, autojump_clock: object) -> None:
    """The bound counts those that were given up, in each set of threads for itself."""
    one, other = Threads(1), Threads(1)
    try:
        await leave_behind(one, hung, 1)
        with trio.move_on_after(1) as waiting:
            await one.run(lambda: None)
        assert waiting.cancelled_caught
        assert await other.run(lambda: 5) == 5
    finally:
        hung.set()


def test_a_run_that_ended_holds_no_place_of_the_next(hung: threading.Event) -> None:
    """A call may outlive its run; nobody is there to give its place back."""
    threads = Threads(1)
    try:
        trio.run(leave_behind, threads, hung, 1)
        assert finds_a_place(threads)
    finally:
        hung.set()


async def test_a_method_of_an_environment_has_the_environments_threads(hung: threading.Event) -> None:
    """What it gives up is neither the process's nor another environment's."""
    one, other = ResourcesServer(name="one"), ResourcesServer(name="other")
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(one.in_thread, hung.wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        assert await other.in_thread(max, 1, 2) == 2
    finally:
        hung.set()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_else_leaves_a_call_behind(path: pathlib.Path) -> None:
    """In the shared threads each call is waited for, so that none is left in them."""
    if path == PACKAGE / "threads.py":
        return
    names = {node.arg for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.keyword)}
    assert "abandon_on_cancel" not in names, f"{path}: use gym_trio.threads.Threads"
