"""Drills with SIGKILL: the runner, the warden, a keeper, several of them at once."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys

import pytest
import trio

from gym_trio import ServerStartError
from gym_trio.processes import open_supervisor
from gym_trio.processes._sweep import sweep

STUBBORN = {"ignore": True, "children": [{"how": how, "ignore": True} for how in ("fork", "session", "daemon")]}
HIDING = {"ignore": True, "children": [{"how": "daemon", "ignore": True, "children": [{"how": "session"}]}]}
BOUND_SECONDS = 2


async def started(runner_command, marked):
    """Start a runner and return it when its servers are up."""
    env = {**os.environ, **marked.env}
    process = await trio.lowlevel.open_process(runner_command, stdout=subprocess.PIPE, env=env)
    said = b""
    with trio.fail_after(20):
        while b"ready\n" not in said:
            said += await process.stdout.receive_some()
    return process


async def killed(process):
    process.kill()
    await process.wait()
    await process.stdout.aclose()


def parents(pid, parent_of):
    """List the keeper and the warden of a server."""
    keeper = parent_of(pid)
    return keeper, parent_of(keeper)


async def test_a_killed_runner_leaves_nothing(runner, marked):
    """Within two seconds of SIGKILL to the runner, its servers, their descendants and the wardens are gone."""
    process = await started(runner(STUBBORN, HIDING, {}), marked)
    await marked.wait_alive(1 + 1 + 3 + 4 + 3 + 1)
    await killed(process)
    await marked.wait_alive(0, BOUND_SECONDS)


@pytest.mark.parametrize("when_seconds", [0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4])
async def test_a_runner_killed_while_it_starts_leaves_nothing(when_seconds, runner, marked):
    """There is no moment during the start at which SIGKILL leaves anything."""
    env = {**os.environ, **marked.env}
    process = await trio.lowlevel.open_process(runner(STUBBORN, {}, {}), stdout=subprocess.PIPE, env=env)
    await trio.sleep(when_seconds)  # the moment itself is what is tried
    await killed(process)
    await marked.wait_alive(0, BOUND_SECONDS)


async def test_a_child_forked_without_exec_keeps_nothing_alive(runner, marked):
    """A forked child's copies of the sockets delay neither the leaving of the block nor the end of killed servers."""
    process = await started(runner(STUBBORN, forks=True), marked)
    await killed(process)
    (forked,) = await marked.wait_alive(1, BOUND_SECONDS)
    os.kill(forked, signal.SIGKILL)
    process = await started(runner(STUBBORN, forks=True, ends=True, grace=0), marked)
    with trio.fail_after(30):  # the forked child lives for longer
        assert await process.wait() == 0
    (forked,) = marked.alive()
    os.kill(forked, signal.SIGKILL)
    await process.stdout.aclose()


async def test_a_stuck_warden_does_not_keep_servers_alive(runner, marked, parent_of):
    """With the warden stopped, the keepers still end everything when the runner is killed; and the other way round."""
    process = await started(runner(STUBBORN, {}), marked)
    everybody = await marked.wait_alive(1 + 1 + 2 + 4 + 1)
    warden = next(pid for pid in everybody if parent_of(pid) == process.pid)
    keeper = next(pid for pid in everybody if parent_of(pid) == warden)
    os.kill(keeper, signal.SIGSTOP)
    await killed(process)
    await marked.wait_alive(0, BOUND_SECONDS)

    process = await started(runner(STUBBORN, {}), marked)
    everybody = await marked.wait_alive(1 + 1 + 2 + 4 + 1)
    warden = next(pid for pid in everybody if parent_of(pid) == process.pid)
    os.kill(warden, signal.SIGSTOP)
    await killed(process)
    await marked.wait_alive(1, BOUND_SECONDS)
    os.kill(warden, signal.SIGCONT)
    await marked.wait_alive(0, BOUND_SECONDS)


WHO = {"the warden": [1], "the keeper": [0], "keeper, then warden": [0, 1], "warden, then keeper": [1, 0]}


@pytest.mark.parametrize("who", WHO)
async def test_servers_end_when_somebody_kills(who, marked, lines, program, parent_of):
    """Servers and all their descendants end within two seconds while gym_trio lives on; the block ends normally."""
    with trio.fail_after(20):
        async with open_supervisor(0.3, output=lines) as supervisor:
            process = await supervisor.start("s", program(**STUBBORN), env=marked.env)
            hiding = await supervisor.start("hiding", program(**HIDING), env=marked.env)
            await marked.wait_alive(4 + 3)
            victims = [parents(each.pid, parent_of)[level] for level in WHO[who] for each in (process, hiding)]
            for pid in dict.fromkeys(victims):
                os.kill(pid, signal.SIGKILL)
            await marked.wait_alive(0, BOUND_SECONDS)
            assert await process.wait() == -signal.SIGKILL
    assert [each.returncode for each in supervisor.report.exits] == [-signal.SIGKILL, -signal.SIGKILL]
    assert supervisor.report.escalated


async def test_a_hidden_daemon_ends_when_warden_and_keeper_are_killed(
    marked, lines, program, parent_of, is_alive, until
):
    """A daemon that cleared its environment is recognized, and ends too."""
    with trio.fail_after(20):
        async with open_supervisor(0.3, output=lines) as supervisor:
            hiding = {"how": "daemon", "clean": True, "ignore": True, "says": "hiding", "children": [{"how": "daemon"}]}
            process = await supervisor.start("s", program(children=[hiding]), env=marked.env)
            await lines.wait_for("up ", 3)
            pids = [int(line.rpartition(" ")[2]) for line in lines.lines if "up " in line]
            for victim in parents(process.pid, parent_of):
                os.kill(victim, signal.SIGKILL)
            assert await until(lambda: not any(map(is_alive, pids)), BOUND_SECONDS)


async def test_no_server_is_started_without_a_warden(lines, program, parent_of, caplog):
    """A start after the warden's death says so, and one that was under way fails."""
    async with open_supervisor(output=lines) as supervisor:
        process = await supervisor.start("s", program())
        warden = parents(process.pid, parent_of)[1]
        async with trio.open_nursery() as nursery:

            async def hang() -> None:
                with pytest.raises(ServerStartError, match="late"):
                    await supervisor.start("late", program(), ready_fd=True)

            nursery.start_soon(hang)
            await lines.wait_for("(late) up")
            os.kill(warden, signal.SIGKILL)
        await process.wait()
        with pytest.raises(ServerStartError, match="later c"):
            await supervisor.start("later", program())
    assert any("warden" in record.message for record in caplog.records if record.levelno == logging.ERROR)


STRANGER = """
import json, os, subprocess, sys
env = {"GYM_TRIO_WARDEN": sys.stdin.readline().strip()}
child = subprocess.Popen(json.loads(sys.argv[1]), env=env, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


async def test_a_sweep_spares_strangers_with_the_marker(marked, lines, program, parent_of, is_alive):
    """What carries a supervisor's marker by accident, and descends from nobody of it, is not signalled."""
    show = [sys.executable, "-I", "-S", "-c", "import os; print('env', os.environ['GYM_TRIO_WARDEN'], flush=True)"]
    async with open_supervisor(0, output=lines) as supervisor:
        await supervisor.start("show", show)
        await lines.wait_for("env ")
        token = lines.lines[0].split()[-1]
        stranger = await trio.lowlevel.open_process(
            [sys.executable, "-I", "-S", "-c", STRANGER, json.dumps(program())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        await stranger.stdin.send_all(token.encode() + b"\n")
        strange_pid = int(await stranger.stdout.receive_some())
        process = await supervisor.start("s", program(**STUBBORN), env=marked.env)
        await marked.wait_alive(4)
        for pid in parents(process.pid, parent_of)[::-1]:
            os.kill(pid, signal.SIGKILL)
        await marked.wait_alive(0, BOUND_SECONDS)
    assert is_alive(strange_pid)
    await stranger.stdin.aclose()
    await stranger.wait()
    await stranger.stdout.aclose()


async def test_a_sweep_finds_nobody_for_a_token_that_nobody_carries():
    """A sweep signals no process when there is none of its tree: not this one, not its ancestors."""
    assert await trio.to_thread.run_sync(sweep, "0" * 32, os.getpid()) == 0
