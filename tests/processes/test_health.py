"""A server that dies while it is needed: reported at once, and the block goes on or ends, as configured."""

from __future__ import annotations

import os
import signal

import pytest
import trio
import trio.testing

from gym_trio import ServerDied
from gym_trio.processes import open_supervisor


async def test_a_death_is_reported_at_once_and_the_block_goes_on(lines, program, caplog):
    """With on_exit="report" the log has the signal and the last lines, and the others run on."""
    async with open_supervisor(output=lines) as supervisor:
        dying = await supervisor.start("dying", program(says="the reason"))
        other = await supervisor.start("other", program())
        await lines.wait_for("up ", 2)
        os.kill(dying.pid, signal.SIGKILL)
        assert await dying.wait() == -signal.SIGKILL
        await dying.wait_gone()
        await trio.testing.wait_all_tasks_blocked()
        assert "dying ended while it was needed: killed by SIGKILL" in caplog.text
        assert "    the reason\n" in caplog.text
        assert other.returncode is None
    assert "other ended" not in caplog.text


async def test_a_death_ends_the_block_when_configured(lines, program, marked):
    """With on_exit="raise" the body is cancelled, the others are stopped, and ServerDied arrives bare."""
    body_was_cancelled = False

    async def block() -> None:
        nonlocal body_was_cancelled
        async with open_supervisor(output=lines) as supervisor:
            await supervisor.start("other", program(), env=marked.env)
            await supervisor.start("dying", program(exit_after=0.1, returncode=4), env=marked.env, on_exit="raise")
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                body_was_cancelled = True
                raise

    with trio.fail_after(20), pytest.raises(ServerDied, match="exit code 4") as info:
        await block()
    assert (info.value.server, info.value.returncode) == ("dying", 4)
    assert info.value.last_lines[0].startswith("up ")
    assert body_was_cancelled
    assert marked.alive() == set()


async def test_a_death_explains_what_the_body_raised(lines, program):
    """When the body failed with the server, the death is raised from the body's own exception."""

    async def block() -> None:
        async with open_supervisor(output=lines) as supervisor:
            process = await supervisor.start("s", program(exit_after=0.1, returncode=4), on_exit="raise")
            with trio.CancelScope(shield=True):
                await process.wait()
                raise ConnectionError("it hung up")

    with pytest.raises(ServerDied) as info:
        await block()
    assert isinstance(info.value.__cause__, ConnectionError)


async def test_a_cancelled_block_stays_cancelled(lines, program):
    """A death does not turn a cancellation from outside into an error."""
    with trio.CancelScope() as scope:
        async with open_supervisor(output=lines) as supervisor:
            process = await supervisor.start("s", program(exit_after=0.1), on_exit="raise")
            with trio.CancelScope(shield=True):
                await process.wait()
                scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_an_end_that_was_asked_for_is_no_death(lines, program, caplog):
    """Stopping reports nothing and raises nothing."""
    async with open_supervisor(output=lines) as supervisor:
        await supervisor.start("s", program(), on_exit="raise")
        await supervisor.stop()
    assert caplog.text == ""
