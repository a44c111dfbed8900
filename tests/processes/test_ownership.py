"""Drills: whatever a server does with its descendants, the supervisor ends them, and nobody else."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys

import pytest
import trio

from gym_trio.processes import open_supervisor

PR_GET_CHILD_SUBREAPER = 37
FORKS = {"ignore": True, "children": [{"how": how, "ignore": True} for how in ("fork", "session", "daemon")]}
DEEP = {"children": [{"how": "daemon", "children": [{"how": "session", "children": [{"how": "daemon"}]}]}]}

DRILLS = {
    "ignores SIGINT and SIGTERM": ({"ignore": True}, 1),
    "forks, takes sessions, daemonizes, keeps its pipe": (FORKS, 4),
    "daemons of daemons": (DEEP, 4),
    "exits and leaves grandchildren": ({"exit_after": 0, "children": [{"how": "daemon"}, {"how": "fork"}]}, 2),
    "ends politely and leaves a stubborn daemon": ({"children": [{"how": "daemon", "ignore": True}]}, 2),
}


@pytest.mark.parametrize("name", DRILLS)
@pytest.mark.parametrize("interrupt", ["process", "group"])
async def test_nothing_is_left_of_a_server_that(name, interrupt, marked, lines, program):
    """After the block, no process of the server is alive, however it detached itself."""
    spec, count = DRILLS[name]
    async with open_supervisor(0.3, output=lines) as supervisor:
        await supervisor.start("s", program(**spec), env=marked.env, interrupt=interrupt)
        await marked.wait_alive(count)
    assert marked.alive() == set()


SHELLS = {
    "a shell wrapper": ("{program}; true", 2),
    "a pipeline": ("{program} | cat", 3),
    "a tee": ("{program} 2>&1 | tee /dev/null | cat", 4),
    "a background job": ("{program} & wait", 2),
    "a detached job": ("setsid {program} & sleep 1000", 3),
    "nohup": ("nohup {program} >/dev/null 2>&1 & exit 0", 1),
}


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("interrupt", ["process", "group"])
async def test_the_real_program_ends_behind(name, interrupt, marked, program):
    """A wrapper's real program is ended with it."""
    script, count = SHELLS[name]
    async with open_supervisor(0.3, output=lambda _line: None) as supervisor:
        command = ["sh", "-c", script.format(program=shlex.join(program()))]
        await supervisor.start("s", command, env=marked.env, interrupt=interrupt)
        await marked.wait_alive(count)
    assert marked.alive() == set()


async def test_a_group_interrupt_lets_the_real_program_finish(lines, marked, program):
    """With interrupt="group" the program behind a wrapper gets SIGINT and the grace."""
    async with open_supervisor(20, output=lines) as supervisor:
        script = f"{shlex.join(program(slow=0.3))}; true"
        await supervisor.start("s", ["sh", "-c", script], env=marked.env, interrupt="group")
        await lines.wait_for("up ")
    assert lines.lines[-1] == "(s) bye"
    assert not supervisor.report.escalated
    assert marked.alive() == set()


async def test_a_clean_environment_hides_nobody(marked, lines, program, is_alive):
    """A daemon that cleared its environment is found all the same, since it is found by its parents."""
    async with open_supervisor(0, output=lines) as supervisor:
        await supervisor.start("s", program(children=[{"how": "daemon", "clean": True}]), env=marked.env)
        await lines.wait_for("up ", 2)
    pids = [int(line.rpartition(" ")[2]) for line in lines.lines]
    assert not any(map(is_alive, pids))


async def test_a_comet_is_caught(marked, program):
    """A process that does nothing but fork and exit is caught."""
    async with open_supervisor(0.1, output=lambda _line: None) as supervisor:
        await supervisor.start("s", program(children=[{"comet": True, "how": "daemon"}]), env=marked.env)
        await trio.sleep(0.3)
    assert marked.alive() == set()
    assert supervisor.report.exits[0].escalated


async def test_orphans_of_a_killed_server_are_ended(marked, lines, program):
    """A server killed by somebody else leaves descendants; they end with the block."""
    async with open_supervisor(0.3, output=lines) as supervisor:
        process = await supervisor.start("s", program(**FORKS), env=marked.env)
        await lines.wait_for("up ", 4)
        os.kill(process.pid, signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        assert len(marked.alive()) == 3
    assert marked.alive() == set()
    exit_ = supervisor.report.exits[0]
    assert (exit_.returncode, exit_.escalated, len(exit_.reaped)) == (-signal.SIGKILL, True, 4)


async def test_a_start_that_fails_ends_what_it_had_started(marked, lines, program):
    """A server that dies before it is ready takes its daemons with it, and leaves its siblings alone."""
    dying = program(exit_after=0.2, children=[{"how": "daemon", "ignore": True}])
    async with open_supervisor(0.3, output=lines) as supervisor:
        sibling = await supervisor.start("sibling", program())
        with pytest.raises(Exception, match="ended before it was ready: exit code 0"):
            await supervisor.start("s", dying, env=marked.env, ready_fd=True)
        assert marked.alive() == set()
        assert sibling.returncode is None


async def test_orphans_are_reaped_while_the_server_runs(marked, lines, program, until):
    """Daemons that end while their server runs do not stay as zombies."""
    spec = {"children": [{"how": "daemon", "exit_after": 0.05}]}
    async with open_supervisor(output=lines) as supervisor:
        await supervisor.start("s", program(**spec), env=marked.env)
        await lines.wait_for("up ", 2)
        pids = {int(line.rpartition(" ")[2]) for line in lines.lines}
        assert await until(lambda: sum(os.path.exists(f"/proc/{pid}") for pid in pids) == 1)


async def test_the_callers_own_children_are_untouched(marked, program):
    """Children and daemons of the caller live on, its exit codes stay to be collected, and it is no subreaper."""
    env = {**os.environ, **marked.env}
    mine = await trio.lowlevel.open_process(program(returncode=7), stdout=subprocess.PIPE, env=env)
    ended = await trio.lowlevel.open_process([sys.executable, "-I", "-S", "-c", "raise SystemExit(5)"])
    starter = program(exit_after=0, children=[{"how": "daemon"}])
    await trio.run_process(starter, stdout=subprocess.DEVNULL, env=env)
    await mine.stdout.receive_some()
    before = await marked.wait_alive(2)
    async with open_supervisor(0, output=lambda _line: None) as supervisor:
        await supervisor.start("s", program(**FORKS))
        is_subreaper = ctypes.c_int(-1)
        ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper), 0, 0, 0)
        assert is_subreaper.value == 0
    assert marked.alive() == before
    assert await ended.wait() == 5
    mine.send_signal(signal.SIGINT)
    assert await mine.wait() == 7
    await mine.stdout.aclose()
    for pid in before - {mine.pid}:
        os.kill(pid, signal.SIGKILL)
