"""Stopping: the order, the shared grace, escalation, the report, and who may ask for it."""

from __future__ import annotations

import signal
import sys

import pytest
import trio
import trio.testing

from gym_trio import ServerStartError
from gym_trio.processes import open_supervisor

PYTHON = [sys.executable, "-I", "-S", "-c"]


async def test_each_server_is_interrupted_once(lines, program):
    """One SIGINT, however often and from wherever the stop is asked for."""
    async with open_supervisor(20, output=lines) as supervisor:
        await supervisor.start("s", program(count=True, slow=0.3))
        await lines.wait_for("up ")
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(supervisor.stop)
        assert await supervisor.stop() is supervisor.report
    assert lines.count("interrupt") == 1
    assert lines.lines[-1] == "(s) bye"
    assert not supervisor.report.escalated


async def test_a_group_is_interrupted_once(lines, program):
    """With interrupt="group" each process of the group gets one SIGINT, and those outside of it none."""
    children = [{"count": True, "slow": 0.2}, {"count": True, "slow": 0.2, "how": "session"}]
    async with open_supervisor(20, output=lines) as supervisor:
        await supervisor.start("s", program(count=True, slow=0.2, children=children), interrupt="group")
        await lines.wait_for("up ", 3)
    assert lines.count("interrupt 1") == 2
    assert lines.count("interrupt 2") == 0


async def test_a_group_whose_leader_has_ended_is_interrupted_too(lines, program):
    """What is left of a wrapper's group gets SIGINT and the grace."""
    spec = {"exit_after": 0, "children": [{"slow": 0.2}]}
    async with open_supervisor(20, output=lines) as supervisor:
        process = await supervisor.start("s", program(**spec), interrupt="group")
        await lines.wait_for("up ", 2)
        assert await process.wait() == 0
    assert lines.lines[-1] == "(s) bye"
    assert not supervisor.report.escalated


async def test_servers_stop_side_by_side(lines, program):
    """All eight have begun to end before the first one has ended, and none is killed."""
    async with open_supervisor(20, output=lines) as supervisor:
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(supervisor.start, f"s{number}", program(slow=2))
        await lines.wait_for("up ", 8)
        report = await supervisor.stop()
    told = [line.split()[-1] for line in lines.lines if line.endswith((" ending", " bye"))]
    assert told == ["ending"] * 8 + ["bye"] * 8
    assert [(each.returncode, each.escalated) for each in report.exits] == [(0, False)] * 8


async def test_a_long_grace_costs_nothing(lines, program):
    """The stop is over when the last server has gone, and a stubborn one is killed when the grace is over."""
    async with open_supervisor(0.5, output=lines) as supervisor:
        await supervisor.start("polite", program())
        await supervisor.start("stubborn", program(ignore=True))
        await supervisor.start("crashed", program(exit_after=0, returncode=3))
        await lines.wait_for("up ", 3)
        await supervisor.processes["crashed"].wait()
        began = trio.current_time()
        report = await supervisor.stop()
        assert 0.4 < trio.current_time() - began < 30
    assert [(each.name, each.returncode, each.escalated) for each in report.exits] == [
        ("polite", 0, False),
        ("stubborn", -signal.SIGKILL, True),
        ("crashed", 3, False),
    ]
    assert all(each.reaped == (each.pid,) for each in report.exits)


async def test_zero_kills_at_once(lines, program):
    """Without a grace nobody is interrupted."""
    async with open_supervisor(0, output=lines) as supervisor:
        await supervisor.start("s", program(count=True))
        await lines.wait_for("up ")
    assert lines.count("interrupt") == 0
    assert supervisor.report.exits[0].escalated


async def test_escalate_skips_the_rest_of_the_grace(lines, program):
    """A second interrupt kills what is left at once."""
    with trio.fail_after(20):
        async with open_supervisor(1000, output=lines) as supervisor:
            await supervisor.start("s", program(ignore=True))
            await lines.wait_for("up ")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervisor.stop)
                await trio.testing.wait_all_tasks_blocked()
                supervisor.escalate()
    assert supervisor.report.exits[0].escalated


async def test_escalate_alone_stops(lines, program):
    """Escalating before a stop is a stop without a grace."""
    with trio.fail_after(20):
        async with open_supervisor(1000, output=lines) as supervisor:
            await supervisor.start("s", program(ignore=True))
            supervisor.escalate()
            assert (await supervisor.stop()).escalated


async def test_a_cancelled_block_still_gives_the_grace(lines, program, marked):
    """Cancellation from outside stops as leaving does: in order, within the bounds, and nothing is left."""
    with trio.CancelScope() as scope:
        async with open_supervisor(20, output=lines) as supervisor:
            await supervisor.start("s", program(slow=0.3), env=marked.env)
            await lines.wait_for("up ")
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert lines.lines[-1] == "(s) bye"
    assert not supervisor.report.escalated
    assert marked.alive() == set()


async def test_a_cancelled_stop_goes_on(lines, program):
    """Cancelling a call of stop ends its waiting only."""
    async with open_supervisor(20, output=lines) as supervisor:
        await supervisor.start("s", program(slow=0.3))
        await lines.wait_for("up ")
        with trio.move_on_after(0) as scope:
            await supervisor.stop()
        assert scope.cancelled_caught
    assert not supervisor.report.escalated


async def test_nothing_starts_after_a_stop(lines, program):
    """A start after the stop is refused, and one under way ends with it."""
    async with open_supervisor(1, output=lines) as supervisor:
        async with trio.open_nursery() as nursery:

            async def begin() -> None:
                with pytest.raises(ServerStartError, match="ended before it was ready"):
                    await supervisor.start("slow", program(), ready_fd=True)

            nursery.start_soon(begin)
            await lines.wait_for("up ")
            await supervisor.stop()
        with pytest.raises(ServerStartError, match="is stopping"):
            await supervisor.start("late", program())
    assert [each.name for each in supervisor.report.exits] == ["slow"]


async def test_what_the_body_raises_leaves_as_it_is(lines, program, marked):
    """The body's exception is not wrapped, and the servers are gone before it arrives."""

    async def block() -> None:
        async with open_supervisor(output=lines) as supervisor:
            await supervisor.start("s", program(), env=marked.env)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await block()
    assert marked.alive() == set()


async def test_an_interrupt_while_stopping_escalates(lines, program, marked):
    """KeyboardInterrupt during the stop, as trio delivers it to the main task, kills and is raised at the end."""
    script = "\n".join(
        [
            "import os, signal, sys, trio",
            "from gym_trio.processes import open_supervisor",
            "async def main():",
            "    def heard(line):",
            "        print(line, flush=True)",
            "        if 'interrupt' in line: os.kill(os.getpid(), signal.SIGINT)",
            "    async with open_supervisor(1000, output=heard) as supervisor:",
            "        await supervisor.start('s', sys.argv[1:])",
            "        while not supervisor.processes['s'].last_lines(): await trio.sleep(0.01)",
            "        os.kill(os.getpid(), signal.SIGINT)",
            "        await trio.sleep_forever()",
            "try: trio.run(main)",
            "except KeyboardInterrupt: print('raised bare')",
        ]
    )
    stubborn = program(count=True, slow=10000)
    command = [sys.executable, "-c", script, *stubborn]
    with trio.fail_after(30):
        result = await trio.run_process(command, capture_stdout=True)
    assert result.stdout.splitlines()[-1] == b"raised bare"
    assert result.stdout.count(b"interrupt") == 1


async def test_without_a_reaping_bound_nobody_waits(lines, program, marked):
    """reap_timeout_seconds=0 reports what is known when the grace is over; the processes end all the same."""
    async with open_supervisor(0, 0, output=lines) as supervisor:
        await supervisor.start("s", program(ignore=True), env=marked.env)
        report = await supervisor.stop()
        assert report.exits[0].name == "s"
    await marked.wait_alive(0)
