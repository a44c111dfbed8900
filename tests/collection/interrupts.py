"""Interrupt or kill a run at random moments, resume it until it is complete, and compare it with an undisturbed one.

As a command::

    python tests/collection/interrupts.py --rounds 200 --seed 1

Each round runs 300 rollouts. The run is a child process that gets SIGINT, SIGTERM, both, or SIGKILL at a random
moment, again and again, until it ends by itself. Then every (task, repeat) must be there exactly once, and all rows,
whatever their order, must be those of the undisturbed run.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from typing import Any

import attrs
import trio

from gym_trio.collection import Ending, RunOptions, RunReport, StopRequest, collect, prepare_run
from gym_trio.rollouts import RolloutAttempt, open_rollout_stream

TASKS, REPEATS = 75, 4
LONGEST_SECONDS = 0.2  # about what an undisturbed run takes
DIFFERENT = frozenset({"ng_perf", "_ng_attempt_index", "_ng_rollout_id"})  # what no two runs have in common
NAMES = {signal.SIGINT: "interrupts", signal.SIGTERM: "terminations", signal.SIGKILL: "kills"}


def rows() -> list[dict[str, Any]]:
    """Tasks of several sizes, so that torn lines are of several lengths."""
    return [{"responses_create_params": {"input": "question " * (1 + n % 40)}, "n": n} for n in range(TASKS)]


async def rollout(attempt: RolloutAttempt) -> dict[str, Any]:
    """What a scripted model would give: it depends on the row alone, and sometimes fails at first."""
    row = attempt.row
    chance = hashlib.blake2b(f"{row['n']}-{row['_ng_rollout_index']}".encode(), digest_size=1).digest()[0]
    await trio.sleep(chance / 256 / 100)
    if chance < 16 and "_ng_attempt_index" not in row:
        raise ValueError("not at first")
    return {**row, "response": {"output": [], "text": "answer " * chance}, "reward": float(chance % 2)}


def _run(output: pathlib.Path) -> int:
    """One process's life: a run that hears the signals. Its exit code."""
    options = RunOptions(output=output, rows=rows(), num_repeats=REPEATS, resume=True, max_attempts=1000)
    heard: list[int] = []

    async def main() -> RunReport:
        stop = StopRequest()
        with prepare_run(options) as prepared, trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:

                async def listen() -> None:
                    async for number in signals:
                        (stop.cut if heard else stop.drain)()
                        heard.append(number)

                nursery.start_soon(listen)
                opened = functools.partial(open_rollout_stream, run=rollout, max_concurrent=8)
                report = await collect(prepared, opened, stop=stop, grace_seconds=0.02)
                nursery.cancel_scope.cancel()
        return report

    report = trio.run(main)
    if report.ending is Ending.STOPPED:
        return 128 + heard[0]
    return 0 if report.complete else 3


def _launch(output: pathlib.Path) -> int:
    """Fork a process that does nothing but run; its id. (This process has one thread, so it may.)"""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        code = _run(output)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT  # before the handlers are there, or after they are gone
    finally:
        os._exit(code)


@attrs.define
class Round:
    """One run, disturbed until it was complete."""

    output: pathlib.Path
    dice: random.Random
    counts: Counter[str] = attrs.field(factory=Counter)

    def go(self) -> None:
        for _ in range(1000):
            if self._launch_and_disturb():
                return
        raise AssertionError(f"{self.output} was not complete after 1000 launches")

    def _launch_and_disturb(self) -> bool:
        """One launch; whether the run ended by itself and was complete."""
        self.counts["launches"] += 1
        child = _launch(self.output)
        sent = []
        for number in self.dice.choice([[signal.SIGKILL], [signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2]):
            time.sleep(self.dice.random() * LONGEST_SECONDS)
            sent.append(number)
            os.kill(child, number)
        status = os.waitpid(child, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        first = sent[0]
        self.counts[NAMES[first]] += 1
        # Before the handlers are there, and after they are gone, SIGTERM does what it does to any process.
        allowed = {0, 3, 128 + first, -first}
        assert code in allowed, f"{self.output}: exit code {code} after {sent}"
        return code == 0


def told(output: pathlib.Path) -> list[str]:
    """What a run's results say, without their order and what no two runs have in common."""
    kept = []
    for line in output.read_text().splitlines():
        row = json.loads(line)
        kept.append({name: value for name, value in row.items() if name not in DIFFERENT})
    return sorted(json.dumps(row, sort_keys=True) for row in kept)


def undisturbed(folder: pathlib.Path) -> list[str]:
    """The results of a run that nobody disturbs."""
    output = folder / "whole" / "r.jsonl"
    while os.waitstatus_to_exitcode(os.waitpid(_launch(output), 0)[1]) != 0:
        pass  # the rollouts that fail at first are tried again
    return told(output)


def check(rounds: int, seed: int, folder: pathlib.Path) -> Counter[str]:
    """Run the rounds; what was done. **Errors**: `AssertionError` with the round and the seed."""
    whole = undisturbed(folder)
    assert len(whole) == TASKS * REPEATS
    counts: Counter[str] = Counter()
    for number in range(rounds):
        output = folder / f"round-{number}" / "r.jsonl"
        disturbed = Round(output, random.Random(f"{seed}-{number}"))
        disturbed.go()
        counts += disturbed.counts
        keys = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in map(json.loads, output.open()))
        assert set(keys.values()) == {1}, f"seed {seed}, round {number}: a rollout is there twice"
        assert told(output) == whole, f"seed {seed}, round {number}: the results differ"
        left = {path.name for path in output.parent.iterdir()} - {
            "r.jsonl",
            "r_failures.jsonl",
            "r_materialized_inputs.jsonl",
            "r_run.json",
            "r_timing.json",
        }
        assert not left, f"seed {seed}, round {number}: {left} are left over"
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = check(arguments.rounds, arguments.seed, pathlib.Path(folder))
    done = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    sys.stdout.write(f"{arguments.rounds} rounds of {TASKS * REPEATS} rollouts, seed {arguments.seed}: {done}\n")


if __name__ == "__main__":
    main()
