"""The warden and its keepers, and what they know about processes."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from gym_trio.processes import ServerState, Supervisor
from gym_trio.processes._report import describe_returncode
from gym_trio.processes.warden import _kernel, _marker

PYTHON = [sys.executable, "-I", "-S", "-c"]
PYPROJECT = pathlib.Path(__file__).parents[2] / "pyproject.toml"
TREE = {"ignore": True, "children": [{"how": how, "ignore": True} for how in ("fork", "session", "daemon")]}


@pytest.fixture
def supervise(monkeypatch, lines):
    """Return what makes a supervisor whose warden is measured when the tests are measured for coverage."""
    if "coverage" in sys.modules:
        monkeypatch.setenv("COVERAGE_PROCESS_START", str(PYPROJECT))

    def make(grace_seconds: float) -> Supervisor:
        return Supervisor(grace_seconds, 5, lines, warden_python=(sys.executable, "-I"))

    return make


async def test_a_fleet_of_every_kind_ends(supervise, marked, lines, program):
    """Polite, slow, stubborn, detached, crashed and never started servers: each end is reported as it was."""
    async with supervise(0.4) as supervisor:
        await supervisor.start("polite", program(), env=marked.env)
        await supervisor.start("group", program(children=[{"slow": 0.1}]), env=marked.env, interrupt="group")
        await supervisor.start("left", program(exit_after=0, children=[{}]), env=marked.env, interrupt="group")
        await supervisor.start("gone", program(exit_after=0, children=[{"how": "session"}]), env=marked.env)
        await supervisor.start("stubborn", program(**TREE), env=marked.env)
        await supervisor.start("hiding", program(children=[{"how": "daemon", "clean": True}]), env=marked.env)
        for wrong in (["no-such-program"], [*PYTHON, "exit(1)"]):
            with pytest.raises(Exception, match="wrong"):
                await supervisor.start("wrong", wrong, ready_fd=True)
        await lines.wait_for("up ", 13)
        await supervisor.processes["left"].wait()
        await supervisor.processes["gone"].wait()
    assert marked.alive() == set()
    exits = {each.name: each for each in supervisor.report.exits}
    assert {name: each.returncode for name, each in exits.items()} == {
        "polite": 0, "group": 0, "left": 0, "gone": 0, "stubborn": -9, "hiding": 0
    }  # fmt: skip
    assert {name for name, each in exits.items() if each.escalated} == {"gone", "stubborn", "hiding"}
    assert len(exits["stubborn"].reaped) == 4
    assert exits["stubborn"].reaped[0] == exits["stubborn"].pid


async def test_a_killed_keeper_hands_its_tree_to_the_warden(supervise, marked, lines, program, parent_of):
    """The warden ends what a keeper cannot end any more; other keepers' servers live on."""
    async with supervise(0.3) as supervisor:
        process = await supervisor.start("s", program(**TREE), env=marked.env)
        other = await supervisor.start("other", program())
        await lines.wait_for("up ", 5)
        os.kill(parent_of(process.pid), signal.SIGKILL)
        await marked.wait_alive(0, 2)
        await process.wait_gone()
        assert process.state is ServerState.GONE
        assert other.returncode is None


async def test_a_killed_warden_ends_every_tree(supervise, marked, lines, program, parent_of):
    """Keepers that lose the warden end their trees and say so."""
    async with supervise(0.3) as supervisor:
        process = await supervisor.start("s", program(**TREE), env=marked.env)
        await lines.wait_for("up ", 4)
        os.kill(parent_of(parent_of(process.pid)), signal.SIGKILL)
        await marked.wait_alive(0, 2)
        await process.wait_gone()
        assert process.exit().reaped


async def test_a_stuck_keeper_is_killed_when_the_block_is_left(supervise, marked, program, parent_of):
    """A stopped keeper costs the bounds, and nothing is left."""
    async with supervise(0.1) as supervisor:
        supervisor._reap_seconds = 0.1
        process = await supervisor.start("s", program(**TREE), env=marked.env)
        await marked.wait_alive(4)
        os.kill(parent_of(process.pid), signal.SIGSTOP)
    await marked.wait_alive(0)


async def test_wardens_ignore_what_terminals_and_administrators_send(supervise, lines, program, parent_of):
    """SIGINT, SIGTERM and SIGHUP to warden and keeper change nothing."""
    async with supervise(5) as supervisor:
        process = await supervisor.start("s", program())
        await lines.wait_for("up ")
        keeper = parent_of(process.pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(keeper, number)
            os.kill(parent_of(keeper), number)
        await supervisor.start("other", program())
        assert process.returncode is None
    assert not supervisor.report.escalated


def test_a_process_is_described():
    """/proc and ps tell the same about this process."""
    own = _kernel.describe(os.getpid())
    assert (own.pid, own.parent, own.group, own.session) == (os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0))
    assert own.alive
    for listed in (_kernel.everything(), _kernel._from_ps().values()):
        assert own.parent in {each.parent for each in listed if each.pid == own.pid}
    parsed = _kernel.parse_ps(f"  {own.pid} Ss+ {own.parent} {own.group} {own.session}\n 7 Z 1 7 0xff\n")
    assert (parsed[own.pid].parent, parsed[own.pid].group, parsed[own.pid].session) == (
        own.parent,
        own.group,
        own.session,
    )
    assert (parsed[7].alive, parsed[7].session) == (False, 0)


def test_return_codes_are_described():
    """Exit codes, signals with and without a name, and what has not ended."""
    described = [describe_returncode(code) for code in (0, 3, -9, -99, None)]
    assert described == ["exit code 0", "exit code 3", "killed by SIGKILL", "killed by signal 99", "it has not ended"]


def test_nobody_is_signalled_who_is_not_ours():
    """A process for which the question is answered with no gets no signal, nor do init and this process itself."""
    child = subprocess.Popen([*PYTHON, "import time; time.sleep(1000)"])
    try:
        assert not _kernel.signal_process(child.pid, signal.SIGKILL, lambda _pid: False)
        assert not _kernel.signal_process(os.getpid(), signal.SIGKILL, lambda _pid: True)
        assert not _kernel.signal_process(1, 0, lambda _pid: True)
        assert child.poll() is None
        assert child.pid in _kernel.children(os.getpid())
        assert _kernel.descendants([os.getpid()])[0] == os.getpid()
        assert _kernel.kill_trees([child.pid], os.getpid()) == 1
        assert child.wait() == -signal.SIGKILL
        assert not _kernel.signal_process(child.pid, signal.SIGKILL, lambda _pid: True)
        assert _kernel.describe(child.pid) is None
        assert _kernel.children(child.pid) == []
    finally:
        child.kill()
        child.wait()


def test_markers_of_nested_supervisors_are_kept(monkeypatch):
    """A supervisor inside a managed server adds its token to the outer one."""
    monkeypatch.delenv(_marker.VARIABLE, raising=False)
    assert _marker.marked_environment({"A": "1"}, "inner")[_marker.VARIABLE] == "inner"
    monkeypatch.setenv(_marker.VARIABLE, "outer")
    merged = _marker.marked_environment({"A": "1"}, "inner")
    assert (merged[_marker.VARIABLE], merged["A"]) == ("outer:inner", "1")


async def test_a_supervisor_inside_a_managed_server(lines, marked, runner):
    """Supervisors nest: the outer one ends the inner one's wardens and servers, politely or not."""
    for grace_seconds in (5, 0):
        async with supervisor_of(grace_seconds, lines) as supervisor:
            nested = runner({"children": [{"how": "daemon"}]}, grace=0.2)
            await supervisor.start("outer", nested, env=marked.env)
            await marked.wait_alive(5)
        assert marked.alive() == set()


def supervisor_of(grace_seconds: float, lines) -> Supervisor:
    return Supervisor(grace_seconds, 5, lines)


async def test_the_warden_is_light(lines, program, parent_of):
    """The warden and its keepers run without the environment's packages."""
    async with supervisor_of(1, lines) as supervisor:
        process = await supervisor.start("s", program())
        keeper = parent_of(process.pid)
        for pid in (keeper, parent_of(keeper)):
            place = pathlib.Path(f"/proc/{pid}")
            assert place.joinpath("cmdline").read_bytes().split(b"\0")[1:3] == [b"-I", b"-S"]
            assert "site-packages" not in place.joinpath("maps").read_text()
