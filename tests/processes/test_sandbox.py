"""The sandbox: what a command may use, what it may reach, and that nothing of it stays."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any

import pytest
import trio

from gym_trio.errors import UsageError
from gym_trio.processes import Sandbox, SandboxLimits, open_sandbox, open_supervisor

PYTHON = [sys.executable, "-I", "-c"]


def processes_in(sandbox: Sandbox) -> list[str]:
    """The processes whose working directory is the sandbox's, or was."""
    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(place).startswith(sandbox.path):
                found.append(place.parent.name)
        except OSError:
            continue
    return found


def exists(path: str) -> bool:
    return os.path.lexists(path)


async def test_a_command_says_what_it_has_to_say() -> None:
    """Input, both outputs, exit code, a directory of its own and none of gym_trio's variables come through."""
    async with open_sandbox() as sandbox:
        script = "import os, sys; print(sys.stdin.read(), os.getcwd()); sys.stderr.write(' '.join(os.environ)); exit(3)"
        found = await sandbox.exec([*PYTHON, script], stdin="grüß dich", env={"EXTRA": "1"})
        assert found.stdout.decode() == f"grüß dich {sandbox.path}\n"
        assert found.returncode == 3
        names = set(found.stderr.decode().split())
        assert names - {"LC_CTYPE"} == {"EXTRA", "GYM_TRIO_WARDEN", "HOME", "LANG", "PATH", "TMPDIR"}
        assert (found.killed, found.timed_out, found.truncated) == (False, False, False)
        assert found.isolated_network is sandbox.isolated_network
    assert not exists(sandbox.path)


async def test_a_command_that_there_is_not() -> None:
    """Ends with code 127, like in a shell; it is the command's mistake and no error."""
    async with open_sandbox() as sandbox:
        found = await sandbox.exec(["there-is-no-such-program"])
        assert found.returncode == 127
        assert b"there-is-no-such-program" in found.stderr


async def test_no_network_where_the_kernel_allows_it() -> None:
    """A command with its own network cannot even reach this machine's own ports."""
    async with open_sandbox() as sandbox:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        found = await sandbox.exec([*PYTHON, script])
        assert (found.returncode != 0) is found.isolated_network
        open_to_all = await sandbox.exec([*PYTHON, script], limits=SandboxLimits(network=True))
        assert (open_to_all.returncode, open_to_all.isolated_network) == (0, False)
        for listener in listeners:
            await listener.aclose()


async def test_a_hang_ends_at_its_time() -> None:
    """What hangs is killed and said to have timed out; its output until then is there."""
    async with open_sandbox(SandboxLimits(time_seconds=2)) as sandbox:
        found = await sandbox.exec(["sh", "-c", "echo begun; sleep 1000"])
        assert (found.timed_out, found.killed, found.stdout) == (True, True, b"begun\n")
        assert processes_in(sandbox) == []


async def test_too_much_memory() -> None:
    """A process cannot take more than it may, and nobody else is the poorer."""
    async with open_sandbox(SandboxLimits(memory_bytes=256 << 20)) as sandbox:
        found = await sandbox.exec([*PYTHON, "x = bytearray(300 << 20)"])
        assert found.returncode == 1
        assert b"MemoryError" in found.stderr


async def test_too_much_output() -> None:
    """A flood is cut at its limit, and ends the command."""
    async with open_sandbox(SandboxLimits(output_bytes=1000)) as sandbox:
        found = await sandbox.exec(["sh", "-c", "yes & yes >&2"])
        assert (found.truncated, found.killed) == (True, True)
        assert len(found.stdout) + len(found.stderr) == 1000


async def test_input_that_nobody_reads() -> None:
    """Does not hold the command up."""
    async with open_sandbox() as sandbox:
        assert (await sandbox.exec(["true"], stdin=b"x" * 500_000)).returncode == 0


async def test_files_have_a_size_and_a_number() -> None:
    """A file cannot grow, nor open files become more, than they may."""
    async with open_sandbox(SandboxLimits(file_bytes=1000, open_files=16)) as sandbox:
        found = await sandbox.exec(["sh", "-c", "yes | head -c 5000 > big; wc -c < big"])
        assert found.stdout.strip() == b"1000"
        found = await sandbox.exec([*PYTHON, "import os; x = [os.dup(0) for _ in range(20)]"])
        assert b"Too many open files" in found.stderr


BOMB = """
import os, time
made = 0
while made < 1000:
    try:
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
    except OSError:
        break
print(made, flush=True)
time.sleep(1000)
"""


async def test_a_bomb_of_forks_is_bounded() -> None:
    """There are never more processes than allowed, and all of them end."""
    async with open_sandbox(SandboxLimits(time_seconds=3, processes=20)) as sandbox:
        found = await sandbox.exec([*PYTHON, BOMB])
        assert found.killed
        if os.geteuid() == 0:
            assert found.stdout.strip() == b"19"
        assert processes_in(sandbox) == []


async def test_processes_are_counted_where_the_kernel_does_not() -> None:
    """Too many processes end the command, also of a user whom the kernel does not bound."""
    async with open_sandbox(SandboxLimits(time_seconds=30, processes=20, network=True)) as sandbox:
        sandbox._uid = None  # as root, and in no namespace: nothing is counted
        found = await sandbox.exec([*PYTHON, BOMB.replace("made < 1000", "made < 50")])
        assert (found.too_many_processes, found.killed, found.timed_out) == (True, True, False)
        assert processes_in(sandbox) == []


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3) if {closes} else None
        time.sleep(1000)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("closes", [True, False])
async def test_a_daemon_ends_with_its_command(closes: bool) -> None:
    """A descendant in another session, whether it holds the pipes or not, is gone when the result is there."""
    async with open_sandbox() as sandbox:
        found = await sandbox.exec([*PYTHON, DAEMON.format(closes=closes)])
        assert (found.returncode, found.killed) == (0, False)
        assert processes_in(sandbox) == []


async def test_cancelled_in_the_middle_nothing_is_left(until: Any) -> None:
    """A cancelled `exec` returns when its processes have ended; the sandbox can be used again, or closed."""
    async with open_supervisor(0) as supervisor:
        async with open_sandbox(supervisor=supervisor) as sandbox, trio.open_nursery() as nursery:
            nursery.start_soon(
                sandbox.exec, [*PYTHON, DAEMON.format(closes=False) + "\nopen('up', 'w'); time.sleep(999)"]
            )
            await until(lambda: exists(f"{sandbox.path}/up"))
            assert len(processes_in(sandbox)) == 2
            nursery.cancel_scope.cancel()
        assert processes_in(sandbox) == []
        assert not exists(sandbox.path)
        assert supervisor.processes == {}


async def test_cancelled_at_any_moment_nothing_is_left() -> None:
    """Wherever in an `exec` a cancellation falls, no process, directory or descriptor stays."""
    async with open_supervisor(0) as supervisor:
        before = len(os.listdir("/proc/self/fd"))
        for moment in range(12):
            with trio.move_on_after(moment * 0.03):
                async with open_sandbox(supervisor=supervisor) as sandbox:
                    await sandbox.exec(["sleep", "1000"])
            assert not exists(sandbox.path)
            assert processes_in(sandbox) == []
        assert supervisor.processes == {}
        assert len(os.listdir("/proc/self/fd")) == before


async def test_closing_ends_what_runs(until: Any) -> None:
    """A command that runs while the sandbox is closed ends and says so; a later one, and a file, is refused."""
    async with open_sandbox() as sandbox:
        results: list[Any] = []

        async def run() -> None:
            results.append(await sandbox.exec(["sh", "-c", "touch up; sleep 1000"]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await until(lambda: exists(f"{sandbox.path}/up"))
            await sandbox.aclose()
        assert results[0].killed
        assert not results[0].timed_out
        await sandbox.aclose()
        for use in (sandbox.exec(["true"]), sandbox.put("a", b""), sandbox.get("a")):
            with pytest.raises(UsageError, match="closed"):
                await use


async def test_files_go_in_and_out() -> None:
    """What is put is there for the command, which may change it, and comes back with `get`."""
    async with open_sandbox() as sandbox:
        await sandbox.put("deep/er/in.txt", "ä")
        await sandbox.put("run.sh", "#!/bin/sh\ncat deep/er/in.txt > out; echo more >> deep/er/in.txt\n", mode=0o755)
        found = await sandbox.exec(["./run.sh"])
        assert found.returncode == 0, found.stderr
        assert await sandbox.get("out") == "ä".encode()
        assert await sandbox.get("deep/er/in.txt") == "ämore\n".encode()


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", ".", "a\0b", "link", "folder/passwd", "pipe"])
async def test_paths_do_not_leave_the_sandbox(path: str, tmp_path: pathlib.Path) -> None:
    """Neither by their words nor through what a command has put there; what is no plain file is refused."""
    async with open_sandbox() as sandbox:
        await sandbox.exec(
            ["sh", "-c", f"ln -s /etc/passwd link; ln -s /etc folder; ln -s {tmp_path} out; mkfifo pipe"]
        )
        with pytest.raises(UsageError):
            await sandbox.get(path)
        with pytest.raises(UsageError):
            await sandbox.put(path if path != "pipe" else "out/x", b"data")
    assert os.listdir(tmp_path) == []


async def test_a_file_above_the_limit_is_not_read() -> None:
    """`get` takes no more into memory than a file may have."""
    async with open_sandbox(SandboxLimits(file_bytes=10)) as sandbox:
        await sandbox.put("big", b"x" * 11)
        with pytest.raises(UsageError, match="more than 10"):
            await sandbox.get("big")


async def test_the_directory_goes_whatever_is_in_it() -> None:
    """Folders a thousand deep, without rights, and links to elsewhere do not keep it."""
    async with open_sandbox() as sandbox:
        script = (
            "import os; os.symlink('/etc', 'link'); os.mkdir('shut'); os.mkdir('shut/in'); os.chmod('shut', 0)\n"
            "for _ in range(1500): os.mkdir('deep'); os.chdir('deep')"
        )
        assert (await sandbox.exec([*PYTHON, script])).returncode == 0
    assert not exists(sandbox.path)
    assert exists("/etc/passwd")


@pytest.mark.parametrize("name", ["time_seconds", "memory_bytes", "processes"])
def test_limits_that_are_none(name: str) -> None:
    """A limit is a finite number above 0."""
    for value in (0, -1):
        with pytest.raises(UsageError, match=name):
            SandboxLimits(**{name: value})


async def test_commands_that_cannot_be() -> None:
    """A command is a list of words."""
    async with open_sandbox() as sandbox:
        for command in ("ls", []):
            with pytest.raises(UsageError, match="list of words"):
                await sandbox.exec(command)
        assert "0 running" in repr(sandbox)
