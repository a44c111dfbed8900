"""Random drills: ``python tests/processes/drill.py --count 1000 [--seed N] [--parallel N]``.

Each drill starts a runner whose servers misbehave at random, does something to it at a random moment, and counts what
is left of it by reading /proc. Prints the seed and ``orphans = N``; the exit code is 0 when N is 0.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import trio

RUNNER = str(pathlib.Path(__file__).with_name("runner.py"))
ACTIONS = (
    "kill the runner",
    "terminate the runner",
    "interrupt the runner",
    "interrupt the runner twice",
    "kill the warden",
    "kill a keeper",
    "kill the warden and its keepers",
    "kill the runner and the warden",
    "stop a keeper, kill the runner",
)
KILLED_SECONDS = 2.0  # the promise for what follows a SIGKILL
ENDED_SECONDS = 20.0  # far above the longest grace of a drill


def make_spec(draw: random.Random, token: str, depth: int = 0) -> dict[str, object]:
    """Make a program's faults. The token stands on the command line of one that clears its environment."""
    spec: dict[str, object] = {
        "token": token,
        "ignore": draw.random() < 0.4,
        "slow": draw.choice([0, 0, 0.05, 0.3]),
        "noise": draw.choice([0, 0, 0, 30_000, 3_000_000]),
        "clean": depth > 0 and draw.random() < 0.1,
        "comet": depth > 0 and draw.random() < 0.03,
        "how": draw.choice(["fork", "session", "daemon"]),
        "children": [make_spec(draw, token, depth + 1) for _ in range(draw.choice([0, 1, 1, 2]) if depth < 3 else 0)],
    }
    if draw.random() < 0.25:
        spec["exit_after"] = draw.random()
    return spec


class Drill:
    """One runner, what is done to it, and what is left."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.seed = seed
        self.token = f"drill-{os.getpid()}-{seed}-"
        self.action = draw.choice(ACTIONS)
        self.plan = {
            "servers": [make_spec(draw, self.token) for _ in range(draw.randint(1, 4))],
            "grace": draw.choice([0, 0.05, 0.3]),
            "relay": True,
        }
        self.after = draw.choice(["", "opened", "opened", "ready", "ready"])  # what the runner has said by then
        self.moment_seconds = draw.uniform(0, 0.6)
        self.draw = draw
        self._said = {"": trio.Event(), "opened": trio.Event(), "ready": trio.Event()}
        self._said[""].set()

    async def run(self) -> list[str]:
        """Carry it out and return a line for each process that is left."""
        command = [sys.executable, RUNNER, json.dumps(self.plan)]
        env = {**os.environ, "GYM_TRIO_DRILL": self.token}
        runner = await trio.lowlevel.open_process(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, start_new_session=True
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, runner)
            await self._said[self.after].wait()
            await trio.sleep(self.moment_seconds)
            bound_seconds = await self._act(runner)
            await self._wait(runner, bound_seconds)
            left = [describe(pid) for pid in self.alive()]
            for pid in self.alive():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        return left

    async def _read(self, runner: trio.Process) -> None:
        """Read what it writes, to the end, so that it never waits for a reader."""
        assert runner.stdout is not None
        rest = b""
        async with runner.stdout:
            async for data in runner.stdout:
                *lines, rest = (rest + data).split(b"\n")
                for word in ("opened", "ready"):
                    if word.encode() in lines:
                        self._said[word].set()
        for event in self._said.values():  # a start may fail, when a server ends by itself
            event.set()

    async def _act(self, runner: trio.Process) -> float:
        """Do what the drill is about; return how long its end may take."""
        warden, keepers = self._wardens(runner.pid)
        match self.action:
            case "terminate the runner":
                runner.terminate()
                return KILLED_SECONDS
            case "interrupt the runner":
                runner.send_signal(signal.SIGINT)
                return ENDED_SECONDS
            case "interrupt the runner twice":
                runner.send_signal(signal.SIGINT)
                await trio.sleep(self.draw.uniform(0, 0.4))
                runner.send_signal(signal.SIGINT)
                return ENDED_SECONDS
            case "kill the warden" | "kill a keeper" | "kill the warden and its keepers":
                victims = {"kill the warden": warden, "kill a keeper": keepers[:1]}.get(self.action, warden + keepers)
                kill(*victims)
                await trio.sleep(KILLED_SECONDS)
                runner.send_signal(signal.SIGINT)
                return ENDED_SECONDS
            case "kill the runner and the warden":
                kill(runner.pid, *warden)
                return KILLED_SECONDS
            case "stop a keeper, kill the runner":
                kill(*keepers[:1], number=signal.SIGSTOP)
        runner.kill()
        return KILLED_SECONDS

    async def _wait(self, runner: trio.Process, bound_seconds: float) -> None:
        """An interrupted runner has left nothing when it ends; what a killed one leaves ends within the bound."""
        with trio.move_on_after(bound_seconds):
            await runner.wait()
            if runner.returncode == 130:
                return
            while True:
                if not self.alive():
                    break
                await trio.sleep(0.02)
        if runner.returncode is None:
            runner.kill()

    def _wardens(self, runner: int) -> tuple[list[int], list[int]]:
        alive = self.alive()
        warden = [pid for pid in alive if parent_of(pid) == runner]
        return warden, [pid for pid in alive if parent_of(pid) in warden]

    def alive(self) -> list[int]:
        """List who carries the token, in the environment or on the command line, and is no zombie."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        place = pathlib.Path(f"/proc/{pid}")
        try:
            known = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
            return (
                self.token.encode() in known and (place / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            )
        except OSError:
            return False


def kill(*pids: int, number: int = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def parent_of(pid: int) -> int:
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def describe(pid: int) -> str:
    with contextlib.suppress(OSError):
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        return f"{pid} parent {parent_of(pid)}: {command[-300:].decode(errors='replace')}"
    return f"{pid}, which has ended since"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(count: int, seed: int, parallel: int) -> int:
    """Carry out the drills and return the number of processes that were left."""
    say(f"seed = {seed}")
    done: collections.Counter[str] = collections.Counter()
    orphans = 0
    limit = trio.CapacityLimiter(parallel)

    async def carry_out(number: int) -> None:
        nonlocal orphans
        drill = Drill(seed * 1_000_003 + number)
        async with limit:
            left = await drill.run()
        done[drill.action] += 1
        orphans += len(left)
        if left:
            moment = f"{drill.moment_seconds:.3f} s after {drill.after or 'its beginning'!r}"
            say(f"drill {number}: {drill.action} {moment}: {json.dumps(drill.plan)}")
            say("\n".join(f"  left: {line}" for line in left))

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(carry_out, number)
    for action, times in sorted(done.items()):
        say(f"{times:5} x {action}")
    say(f"drills = {done.total()}")
    say(f"orphans = {orphans}")
    return orphans


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--parallel", type=int, default=4)
    chosen = parser.parse_args()
    sys.exit(1 if trio.run(main, chosen.count, chosen.seed, chosen.parallel) else 0)
