"""Interrupts as a terminal sends them: to the foreground process group of a pseudo-terminal."""

from __future__ import annotations

import os
import pty

import pytest
import trio

CTRL_C = b"\x03"


class Terminal:
    """A program in the foreground of its own pseudo-terminal."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.said = ""
        self.pid, fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, {**os.environ, **env})
        os.set_blocking(fd, False)
        self.screen = trio.lowlevel.FdStream(fd)

    async def wait_for(self, text: str) -> None:
        with trio.fail_after(20):
            while text not in self.said:
                self.said += (await self.screen.receive_some()).decode()

    async def finish(self) -> int:
        """Read to the end and return the exit code."""
        with trio.fail_after(20):
            try:
                while data := await self.screen.receive_some():
                    self.said += data.decode()
            except trio.BrokenResourceError:
                pass  # what a terminal's master reads when the last program has closed it
            _pid, status = await trio.to_thread.run_sync(os.waitpid, self.pid, 0)
        await self.screen.aclose()
        return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_ctrl_c_reaches_each_server_once(runner, marked):
    """^C goes to gym_trio alone, which interrupts each server once, in the grace, and nothing is left."""
    terminal = Terminal(runner({"count": True, "slow": 0.3}, {"count": True}, grace=20, relay=True), marked.env)
    await terminal.wait_for("(s0) up")
    await terminal.wait_for("(s1) up")
    await terminal.wait_for("ready")
    await terminal.screen.send_all(CTRL_C)
    assert await terminal.finish() == 130
    assert terminal.said.count("interrupt ") == 2
    assert terminal.said.count(" bye") == 2
    assert "report [(0, False), (0, False)]" in terminal.said
    assert marked.alive() == set()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_second_ctrl_c_escalates(runner, marked):
    """While the stop is in its grace, ^C kills."""
    stubborn = {"count": True, "slow": 1000, "children": [{"how": "daemon", "ignore": True}]}
    terminal = Terminal(runner(stubborn, grace=1000, relay=True), marked.env)
    await terminal.wait_for("ready")
    await terminal.wait_for("up ")
    await terminal.screen.send_all(CTRL_C)
    await terminal.wait_for("interrupt 1")
    await terminal.screen.send_all(CTRL_C)
    assert await terminal.finish() == 130
    assert "report [(-9, True)]" in terminal.said
    assert marked.alive() == set()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("after", ["opened", "(s0) up"])
async def test_ctrl_c_during_the_start_leaves_nothing(after, runner, marked):
    """^C while servers start stops those that have started."""
    terminal = Terminal(runner({}, {"ignore": True}, {}, grace=0.3, relay=True), marked.env)
    await terminal.wait_for(after)
    await terminal.screen.send_all(CTRL_C)
    assert await terminal.finish() == 130
    assert marked.alive() == set()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_closed_terminal_leaves_nothing(runner, marked):
    """When the terminal goes away (SIGHUP), so does everything."""
    terminal = Terminal(runner({"ignore": True}, relay=True), marked.env)
    await terminal.wait_for("ready")
    await terminal.screen.aclose()
    await marked.wait_alive(0, 2)
    await trio.to_thread.run_sync(os.waitpid, terminal.pid, 0)
