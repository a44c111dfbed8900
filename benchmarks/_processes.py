"""One side as a process of its own: started, measured from outside, and ended with all that it started.

The side's last line on standard output is a JSON object ``{"work": …, "figures": …, "versions": …}``. Before it, it may
print ``{"url": …}`` (a server that is ready) and ``{"mark": "begin"}`` / ``{"mark": "end"}`` around what is to be
measured over its whole tree of processes; it goes on when a line comes back. A process belongs to the tree when its
environment carries the run's token, so that a daemon that has left its parent is counted too.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from ._records import Absent, Outcome, Partner, Run, Side

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIDES = ROOT / "benchmarks" / "sides"
TOKEN = "GYM_TRIO_BENCHMARK_RUN"
TICK = 1 / os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.5
INTERPRETER_SETTINGS = ("PYTHONDEVMODE", "PYTHONOPTIMIZE", "PYTHONASYNCIODEBUG", "PYTHONMALLOC", "PYTHONTRACEMALLOC")
PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
LIMIT_SECONDS = 600  # a side that hangs is told as absent, and the suite goes on


class Tree:
    """The processes that carry a token: their CPU so far and the most memory that they held together."""

    def __init__(self, token: str) -> None:
        self._needle = f"{TOKEN}={token}".encode()
        self._known: dict[int, tuple[int, bool]] = {}  # pid → (start time, is it ours?)
        self.peak_bytes = 0
        self._over = threading.Event()

    def pids(self) -> Iterator[tuple[int, list[bytes]]]:
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                stat = pathlib.Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
                started = int(stat[19])
                known = self._known.get(int(entry))
                if known is None or known[0] != started:
                    ours = self._needle in pathlib.Path(f"/proc/{entry}/environ").read_bytes()
                    self._known[int(entry)] = known = (started, ours)
                if known[1]:
                    yield int(entry), stat

    def cpu_seconds(self) -> float:
        """Of all that live, and of all that they have waited for."""
        return sum(sum(map(int, stat[11:15])) * TICK for _, stat in self.pids())

    def sample(self) -> None:
        """A page that several share counts once: each process has its part of it (the kernel's Pss)."""
        held = 0
        for pid, _ in self.pids():
            with contextlib.suppress(OSError):
                told = PSS.search(pathlib.Path(f"/proc/{pid}/smaps_rollup").read_bytes())
                held += int(told[1]) * 1024 if told else 0
        self.peak_bytes = max(self.peak_bytes, held)

    def watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.sample()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self.watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def kill(self) -> None:
        """End what the side has left behind."""
        self._known.clear()  # a fork looks like its parent until it has its own environment
        for pid, _ in list(self.pids()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def run_side(side: Side, python: str, *, through: Sequence[str] = ()) -> Outcome:
    """Run one side once, ``through`` other words of the interpreter where given (a profiler's).

    What goes wrong is told, with the last lines that it wrote.
    """
    token = uuid.uuid4().hex
    environment = environment_of_a_side(token)
    tree = Tree(token)
    with tempfile.TemporaryFile() as errors, contextlib.ExitStack() as stack:
        arguments = [*side.arguments]
        if side.partner is not None and side.partner.when == "before":
            arguments += ["--url", stack.enter_context(_partner_before(side.partner, environment))]
        began = time.monotonic()
        limit = threading.Timer(LIMIT_SECONDS, tree.kill)
        limit.daemon = True
        stack.callback(limit.cancel)
        limit.start()
        try:
            return _measure(
                side, [python, *through, str(SIDES / f"{side.script}.py"), *arguments], environment, errors, tree
            )
        except (_Failed, OSError, json.JSONDecodeError, subprocess.SubprocessError) as error:
            if time.monotonic() - began >= LIMIT_SECONDS:
                return Absent(f"{side.name} took longer than {LIMIT_SECONDS} s and was ended")
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-8:]
            return Absent(f"{side.name} failed: {error}" + "".join(f"\n    {line}" for line in last))
        finally:
            tree.kill()


def environment_of_a_side(token: str) -> dict[str, str]:
    """The caller's, with the token, and without what changes how an interpreter runs."""
    kept = {name: value for name, value in os.environ.items() if name not in INTERPRETER_SETTINGS}
    return {**kept, TOKEN: token, "PYTHONPATH": str(ROOT)}


class _Failed(Exception):
    pass


def _measure(side: Side, command: list[str], environment: dict[str, str], errors: Any, tree: Tree) -> Run:
    began = time.monotonic()
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
    )
    reaped = False
    try:
        with tree.watched():
            said, marks = _converse(side, process, environment, tree)
            _, status, usage = os.wait4(process.pid, 0)
            reaped = True
        wall = time.monotonic() - began
    finally:
        if not reaped:
            process.kill()
            process.wait()
        process.returncode = 0  # reaped here, not by subprocess
        process.stdin.close()
        process.stdout.close()
    code = os.waitstatus_to_exitcode(status)
    if said is None or (code != 0 and side.partner is None):
        raise _Failed(f"ended with {code} and no result")
    figures = {
        "process_cpu_seconds": usage.ru_utime + usage.ru_stime,
        "process_wall_seconds": wall,
        "process_peak_bytes": usage.ru_maxrss * 1024.0,
        "tree_peak_bytes": float(tree.peak_bytes),
    }
    if len(marks) == 2:
        figures["tree_cpu_seconds"] = marks[1][0] - marks[0][0]
        figures["tree_wall_seconds"] = marks[1][1] - marks[0][1]
    figures |= said.get("figures", {})
    return Run(said["work"], figures, said.get("versions", {}))


def _converse(
    side: Side, process: subprocess.Popen[str], environment: dict[str, str], tree: Tree
) -> tuple[dict[str, Any] | None, list[tuple[float, float]]]:
    marks: list[tuple[float, float]] = []
    said = None
    for line in process.stdout or ():
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if "mark" in message:
            tree.sample()
            marks.append((tree.cpu_seconds(), time.monotonic()))
            print("go", file=process.stdin, flush=True)
        elif "work" in message:
            said = message
        elif "url" in message:
            assert side.partner is not None
            command = [sys.executable, str(SIDES / f"{side.partner.script}.py"), *side.partner.arguments]
            said = _load(command, message, environment, tree)
            said["versions"] = message.get("versions", {})
            process.send_signal(signal.SIGINT)
            break
    return said, marks


def _load(command: list[str], ready: dict[str, Any], environment: dict[str, str], tree: Tree) -> dict[str, Any]:
    """Send a load twice, the first one shorter, to warm the server up; the server's CPU during the second."""
    outside = {name: value for name, value in environment.items() if name != TOKEN}
    command = [*command, "--url", ready["url"]]
    subprocess.run([*command, "--warm"], env=outside, check=True, capture_output=True)
    before = tree.cpu_seconds()
    done = subprocess.run(command, env=outside, check=True, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    said.setdefault("figures", {})["cpu_seconds"] = tree.cpu_seconds() - before
    return said


@contextlib.contextmanager
def _partner_before(partner: Partner, environment: dict[str, str]) -> Iterator[str]:
    outside = {name: value for name, value in environment.items() if name != TOKEN}
    process = subprocess.Popen(
        [sys.executable, str(SIDES / f"{partner.script}.py"), *partner.arguments],
        env=outside,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.wait()
