"""Starting: what a server gets, when it counts as ready, and how a start fails."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import trio

from gym_trio import ServerStartError, UsageError
from gym_trio.processes import ServerState, _supervisor, bind_port, open_supervisor

PYTHON = [sys.executable, "-I", "-S", "-c"]
READY = "import os, time; os.write(int(os.environ['GYM_TRIO_READY_FD']), b'http://here\\n'); time.sleep(1000)"
NEVER = "import os, time; print('trying', flush=True); time.sleep(1000)"


@pytest.fixture
def http_url():
    """Return what starts an HTTP server that answers with the given statuses, one by one, the last for good."""
    servers = []

    def serve(*statuses: int) -> str:
        left = list(statuses)

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(left.pop(0) if len(left) > 1 else left[0])
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                return

        server = HTTPServer(("127.0.0.1", 0), Answer)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/health?deep=1"

    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_without_a_signal_a_server_is_ready_once_its_program_runs(lines):
    """start returns with the pid; a later exit is no failure of the start."""
    async with open_supervisor(output=lines) as supervisor:
        process = await supervisor.start("quick", [*PYTHON, "print('hello')"])
        assert process.pid > 0
        assert await process.wait() == 0
        await process.wait_gone()
        assert lines.lines == ["(quick) hello"]
        assert process.state is ServerState.GONE
        assert "quick" in repr(process)


async def test_ready_by_pipe(lines):
    """A server is ready when it has written a line to its pipe, and the line is kept."""
    async with open_supervisor(output=lines) as supervisor:
        process = await supervisor.start("s", [*PYTHON, READY], ready_fd=True)
        assert process.ready_line == "http://here"
        assert process.state is ServerState.READY
        assert supervisor.processes == {"s": process}


@pytest.mark.parametrize("status", [200, 302, 404])
async def test_ready_by_url(status, http_url, lines, program):
    """Server errors are asked again; any other answer is readiness."""
    async with open_supervisor(output=lines) as supervisor:
        await supervisor.start("s", program(), ready_url=http_url(503, 500, status), ready_timeout_seconds=20)


async def test_a_server_on_a_socket_that_was_bound_for_it(lines):
    """A listening socket is handed over under its own number, and the URL is asked until the server accepts."""
    listener = bind_port("web")
    port, fd = listener.getsockname()[1], listener.fileno()
    serve = (
        "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); c, _ = s.accept(); c.recv(1000);"
        "c.sendall(b'HTTP/1.1 204 No Content\\r\\n\\r\\n'); c.close(); s.accept()"
    )
    async with open_supervisor(output=lines) as supervisor:
        with listener:
            command = [*PYTHON, serve, str(fd)]
            await supervisor.start("web", command, pass_fds=[fd], ready_url=f"http://127.0.0.1:{port}")


async def test_an_early_death_fails_the_start_at_once(lines):
    """The error has the name, the exit code and the last lines, and does not wait for the timeout."""
    dying = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    async with open_supervisor(output=lines) as supervisor:
        with trio.fail_after(20), pytest.raises(ServerStartError) as info:
            await supervisor.start("s", [*PYTHON, dying], ready_url="http://127.0.0.1:9/")
        assert (info.value.server, info.value.returncode) == ("s", 3)
        assert sorted(info.value.last_lines) == ["one", "two"]
        assert "exit code 3" in str(info.value)
        assert "\n    two" in str(info.value)
        assert supervisor.processes == {}


async def test_the_error_of_a_start_names_the_log(lines, tmp_path):
    """The last lines are not all: where the others are stands with them, and nowhere when nothing was written."""
    log = tmp_path / "s.log"
    async with open_supervisor(output=lines) as supervisor:
        with pytest.raises(ServerStartError) as info:
            await supervisor.start("s", [*PYTHON, "print('x'); raise SystemExit(3)"], ready_fd=True, log_path=log)
        assert f"exit code 3; its last lines (all are in {log}):\n    x" in str(info.value)
        with pytest.raises(ServerStartError) as info:
            await supervisor.start("s", [*PYTHON, "raise SystemExit(3)"], ready_fd=True, log_path=log)
        assert str(info.value).endswith("exit code 3")


async def test_a_server_killed_before_it_is_ready(lines):
    """The signal is named."""
    dying = "import os; os.kill(os.getpid(), 11)"
    async with open_supervisor(output=lines) as supervisor:
        with pytest.raises(ServerStartError, match="killed by SIGSEGV"):
            await supervisor.start("s", [*PYTHON, dying], ready_fd=True)


async def test_a_ready_pipe_closed_without_a_word(lines, marked):
    """A server that closes its pipe cannot become ready any more, which is said at once."""
    closing = "import os, time; os.close(int(os.environ['GYM_TRIO_READY_FD'])); time.sleep(1000)"
    async with open_supervisor(output=lines) as supervisor:
        with trio.fail_after(20), pytest.raises(ServerStartError, match="closed its ready pipe"):
            await supervisor.start("s", [*PYTHON, closing], ready_fd=True, env=marked.env)
        assert marked.alive() == set()


@pytest.mark.parametrize(
    ("url", "problem"),
    [("http://127.0.0.1:9/x", "not reached"), (500, "answered 500"), ("https", "not reached|not answer")],
)
async def test_a_server_that_does_not_become_ready(url, problem, http_url, lines, marked):
    """After the timeout the start fails, saying what the URL last answered, and the server is gone."""
    if url in (500, "https"):
        url = http_url(500) if url == 500 else http_url(200).replace("http:", "https:")
    async with open_supervisor(output=lines) as supervisor:
        with pytest.raises(ServerStartError, match=problem) as info:
            await supervisor.start("s", [*PYTHON, NEVER], ready_url=url, ready_timeout_seconds=0.5, env=marked.env)
        assert "0.5 s" in str(info.value)
        assert info.value.last_lines[:1] == ("trying",)
        assert marked.alive() == set()


async def test_a_program_that_does_not_exist(lines, tmp_path):
    """What cannot be executed is named, with the system's reason, and its name is free again."""
    async with open_supervisor(output=lines) as supervisor:
        for _ in range(2):
            with pytest.raises(ServerStartError, match="no-such-program: No such file"):
                await supervisor.start("s", ["no-such-program"])
        with pytest.raises(ServerStartError, match="Permission denied"):
            await supervisor.start("s", [tmp_path])
        with pytest.raises(ServerStartError, match="nowhere: No such file"):
            await supervisor.start("s", [*PYTHON, ""], cwd=tmp_path / "nowhere")
        with pytest.raises(ServerStartError, match="Is a directory"):
            await supervisor.start("s", [*PYTHON, ""], log_path=tmp_path)
        await supervisor.start("s", [*PYTHON, NEVER])


@pytest.mark.parametrize("how", ["cancelled", "not ready"])
async def test_what_never_was_ready_has_no_long_grace(lines, marked, monkeypatch, how: str) -> None:
    """It has nothing to drain. An interpreter that has lost its SIGINT while it started would use all of it."""
    monkeypatch.setattr(_supervisor, "UNREADY_GRACE_SECONDS", 0.1)
    ignores = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True)"
    ready_seconds = 1.0 if how == "not ready" else 1000.0

    async def start() -> None:
        command = [*PYTHON, f"{ignores}; time.sleep(1000)"]
        await supervisor.start("s", command, ready_fd=True, ready_timeout_seconds=ready_seconds, env=marked.env)

    with trio.fail_after(60):
        async with open_supervisor(server_shutdown_timeout_seconds=1000, output=lines) as supervisor:
            if how == "not ready":
                with pytest.raises(ServerStartError):
                    await start()
            else:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(start)
                    await lines.wait_for("deaf")
                    nursery.cancel_scope.cancel()
            assert marked.alive() == set()


async def test_a_cancelled_start_leaves_nothing(lines, marked):
    """Wherever a start is cancelled, nothing of the server is left when it returns."""
    async with open_supervisor(output=lines) as supervisor:
        for number in range(12):
            with trio.move_on_after(0.004 * number) as scope:
                await supervisor.start("s", [*PYTHON, NEVER], ready_fd=True, env=marked.env)
            assert scope.cancelled_caught
            assert marked.alive() == set()
            assert supervisor.processes == {}


async def test_the_first_failure_stops_the_others(lines, marked):
    """Servers started side by side in a nursery: one failure, and no other is left."""
    async with open_supervisor(output=lines) as supervisor:
        with pytest.RaisesGroup(ServerStartError):
            async with trio.open_nursery() as nursery:
                for name in "abc":
                    nursery.start_soon(
                        lambda n: supervisor.start(n, [*PYTHON, NEVER], ready_fd=True, env=marked.env), name
                    )
                nursery.start_soon(lambda: supervisor.start("bad", [*PYTHON, "exit(1)"], ready_fd=True))
        assert marked.alive() == set()


async def test_what_a_server_is_born_with(lines, tmp_path):
    """Own session, no input, default signals, the given folder and variables over the caller's own."""
    show = (
        "import os, signal, sys\n"
        "print(os.getsid(0) == os.getpid() == os.getpgid(0), sys.stdin.read() == '')\n"
        "print(all(signal.getsignal(n) in (signal.SIG_DFL, signal.default_int_handler) for n in (2, 15, 1)))\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getcwd(), os.environ['X'], 'PATH' in os.environ)\n"
        "print(sorted(os.listdir('/proc/self/fd'))[:-1])"
    )
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with open_supervisor(output=lines) as supervisor:
            process = await supervisor.start("s", [*PYTHON, show], env={"X": "\udcffä"}, cwd=tmp_path)
            await process.wait_gone()
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert lines.lines == ["(s) True True", "(s) True", f"(s) set() {tmp_path} �ä True", "(s) ['0', '1', '2']"]


async def test_a_large_environment(lines):
    """A request larger than the socket's buffer arrives whole."""
    env = {f"V{number}": "x" * 100_000 for number in range(15)}
    show = "import os; print(sum(map(len, os.environ.values())) > 1_500_000)"
    async with open_supervisor(output=lines) as supervisor:
        process = await supervisor.start("s", [*PYTHON, show], env=env)
        await process.wait_gone()
    assert lines.lines == ["(s) True"]


async def test_blocked_and_ignored_signals_of_the_caller_are_not_inherited(lines, program):
    """A caller that ignores and blocks SIGINT and SIGCHLD has servers that can be interrupted."""
    script = (
        "import signal, sys, trio\n"
        "from gym_trio.processes import open_supervisor\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())\n"
        "async def main():\n"
        "    async with open_supervisor(20) as supervisor:\n"
        "        await supervisor.start('s', sys.argv[1:])\n"
        "        while not supervisor.processes['s'].last_lines(): await trio.sleep(0.01)\n"
        "    print(supervisor.report.exits[0].returncode)\n"
        "trio.run(main)\n"
    )
    with trio.fail_after(15):
        result = await trio.run_process([sys.executable, "-c", script, *program(returncode=3)], capture_stdout=True)
    assert result.stdout == b"3\n"


async def test_no_more_descriptors_is_an_error_of_the_start(lines, program, parent_of):
    """When the warden's descriptors have run out, the start says so, and the servers that run go on."""
    async with open_supervisor(output=lines) as supervisor:
        running = await supervisor.start("running", program())
        resource.prlimit(parent_of(parent_of(running.pid)), resource.RLIMIT_NOFILE, (3, 3))
        with pytest.raises(ServerStartError, match="could not be started"):
            await supervisor.start("s", program())
        assert running.returncode is None


async def test_a_command_as_a_string_is_split_without_a_shell(lines):
    """Quotes are honoured, and nothing else of a shell's language."""
    async with open_supervisor(output=lines) as supervisor:
        process = await supervisor.start("s", "echo 'a  b' $HOME > x")
        await process.wait_gone()
    assert lines.lines == ["(s) a  b $HOME > x"]


async def test_descriptors_keep_their_numbers(lines):
    """Passed descriptors arrive under their numbers even when they collide with the keeper's own."""
    pipes = [os.pipe() for _ in range(8)]
    show = "import os, sys\nfor fd in map(int, sys.argv[1:]): os.write(fd, str(fd).encode())"
    numbers = [write for _, write in pipes]
    async with open_supervisor(output=lines) as supervisor:
        process = await supervisor.start("s", [*PYTHON, show, *map(str, numbers)], pass_fds=numbers, ready_fd=False)
        assert await process.wait() == 0
    assert [os.read(read, 10) for read, _ in pipes] == [str(number).encode() for number in numbers]
    for pair in pipes:
        os.close(pair[0])
        os.close(pair[1])


WRONG = {
    "a name": ({"name": ""}, "needs a name"),
    "an empty command": ({"command": []}, "command is empty"),
    "a command of numbers": ({"command": [1]}, "server s"),
    "a NUL in the command": ({"command": ["a\0b"]}, "NUL"),
    "a NUL in env": ({"env": {"A": "\0"}}, "NUL"),
    "a variable's name": ({"env": {"A=B": "1"}}, "A=B"),
    "on_exit": ({"on_exit": "restart"}, "on_exit must be 'report' or 'raise'"),
    "interrupt": ({"interrupt": "all"}, "interrupt must be"),
    "a URL": ({"ready_url": "localhost:80"}, "ready_url"),
    "a timeout": ({"ready_timeout_seconds": float("inf")}, "ready_timeout_seconds"),
    "a negative timeout": ({"ready_timeout_seconds": -1}, "ready_timeout_seconds"),
    "a closed descriptor": ({"pass_fds": [9999]}, "9999"),
    "a standard stream": ({"pass_fds": [1]}, "standard stream"),
    "too many descriptors": ({"pass_fds": range(500)}, "500"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_arguments_that_cannot_work(what, lines):
    """Each is refused with the server and the argument, before anything starts."""
    wrong, message = WRONG[what]
    arguments = {"name": "s", "command": ["true"], **wrong}
    async with open_supervisor(output=lines) as supervisor:
        with pytest.raises(UsageError, match=message):
            await supervisor.start(arguments.pop("name"), arguments.pop("command"), **arguments)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", True])
async def test_bounds_must_be_finite(seconds):
    """A grace or a reaping bound that is no bound is refused."""
    with pytest.raises(UsageError, match="server_shutdown_timeout_seconds"):
        async with open_supervisor(seconds):
            pass
    with pytest.raises(UsageError, match="reap_timeout_seconds"):
        async with open_supervisor(1, seconds):
            pass


async def test_a_name_is_taken_while_its_server_is_known(lines, program):
    """Two servers of one name are refused."""
    async with open_supervisor(output=lines) as supervisor:
        await supervisor.start("s", program())
        with pytest.raises(UsageError, match="already started"):
            await supervisor.start("s", program())


async def test_an_empty_block_leaves_nothing():
    """Opening and leaving at once, or cancelled while opening, ends the warden."""
    children = trio.Path(f"/proc/self/task/{os.getpid()}/children")
    before = set((await children.read_text()).split())
    for number in range(8):
        with trio.move_on_after(0.002 * number):
            async with open_supervisor() as supervisor:
                assert "0 servers" in repr(supervisor)
    with trio.fail_after(10):
        async with open_supervisor():
            pass
    assert set((await children.read_text()).split()) <= before
