"""Interrupt or kill a run at random moments, resume it until it is complete, and compare it with an undisturbed one.

As a command::

    python tests/collection/interrupts.py --moments 200 --seed 1          # the library, in forked processes
    python tests/collection/interrupts.py --moments 200 --seed 1 --cli    # gym-trio eval run, with a scripted model

A run has 300 rollouts. Its process gets SIGINT, SIGTERM, two of them, or SIGKILL at a random moment, and is launched
again; after a few such moments it is left alone until it is complete. Then every (task, repeat) must be there exactly
once, all rows, whatever their order, must be those of the undisturbed run, and no file may be left over. Runs follow
one another until there have been as many moments as were asked for.
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
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import trio

from gym_trio.collection import Ending, RunOptions, RunReport, StopRequest, collect, prepare_run
from gym_trio.rollouts import RolloutAttempt, open_rollout_stream

TASKS, REPEATS = 75, 4
DIFFERENT = ("ng_perf", "_ng_attempt_index", "_ng_rollout_id")  # what no two runs have in common
NAMES = {signal.SIGINT: "interrupts", signal.SIGTERM: "terminations", signal.SIGKILL: "kills"}
DISTURBANCES = ([signal.SIGKILL], [signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT])
INCOMPLETE = 3
MOST_MOMENTS = 8

Launch = Callable[[pathlib.Path], Callable[[int | None], int]]


def rows() -> list[dict[str, Any]]:
    """Tasks of several sizes, so that torn lines are of several lengths."""
    return [
        {
            "responses_create_params": {"input": f"Question {n} " * (1 + n % 40)},
            "options": [{"A": "this"}, {"B": "that"}],
            "expected_answer": "AB"[n % 2],
            "n": n,
        }
        for n in range(TASKS)
    ]


# The library in a forked process


async def rollout(attempt: RolloutAttempt) -> dict[str, Any]:
    """What a scripted model would give: it depends on the row alone, and sometimes fails at first."""
    row = attempt.row
    chance = hashlib.blake2b(f"{row['n']}-{row['_ng_rollout_index']}".encode(), digest_size=1).digest()[0]
    await trio.sleep(chance / 256 / 100)
    if chance < 16 and "_ng_attempt_index" not in row:
        raise ValueError("not at first")
    return {**row, "response": {"output": [], "text": "answer " * chance}, "reward": float(chance % 2)}


def run(output: pathlib.Path) -> int:
    """One process's life: a run that hears the signals. Its exit code."""
    options = RunOptions(output=output, rows=rows(), num_repeats=REPEATS, resume=True, max_attempts=200)
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
    return 0 if report.complete else INCOMPLETE


def fork(output: pathlib.Path) -> Callable[[int | None], int]:
    """Launch the library in a process of its own. (This one has a single thread, so it may fork.)"""
    child = os.fork()
    if not child:
        code = 70
        try:
            code = run(output)
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT  # before the handlers are there, or after they are gone
        finally:
            os._exit(code)

    def act(number: int | None) -> int:
        if number is not None:
            os.kill(child, number)
            return 0
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return act


# The command line in a process


def command(folder: pathlib.Path) -> Launch:
    """Launches of ``gym-trio eval run`` with a scripted model, whose answer is right every second time."""
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "\\boxed{A}"}]}
    environment = {"type": "resources_servers", "name": "mcqa"}
    model = {"type": "responses_api_models", "name": "policy_model"}
    agent = {"resources_server": environment, "model_server": model}
    config = {
        "mcqa": {"resources_servers": {"mcqa": {}}},
        "agent": {"responses_api_agents": {"simple_agent": agent}},
        "policy_model": {"responses_api_models": {"scripted_model": {"replies": [[message]], "delay_seconds": 0.02}}},
    }
    (folder / "scripted.json").write_text(json.dumps(config))
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    words = [sys.executable, "-m", "gym_trio", "eval", "run", "--config", str(folder / "scripted.json")]
    words += ["--input", str(folder / "in.jsonl"), "--num-repeats", str(REPEATS), "--concurrency", "8", "--resume"]
    words += ["--no-health-check", "++require_complete=true"]

    def launch(output: pathlib.Path) -> Callable[[int | None], int]:
        log = (folder / "log.txt").open("w")
        process = subprocess.Popen([*words, "--output", str(output)], stdout=log, stderr=log)
        log.close()

        def act(number: int | None) -> int:
            if number is not None:
                process.send_signal(number)
                return 0
            code = process.wait()
            said = (folder / "log.txt").read_text()
            if code == 1 and "KeyboardInterrupt" in said and "gym_trio" not in said:
                return -signal.SIGINT  # it came while Python itself was starting, which then ends with a 1
            if code == 1:
                sys.stderr.write(said[-2000:])
            return code

        return act

    return launch


# Rounds


def disturb(output: pathlib.Path, launch: Launch, dice: random.Random, longest: float, counts: Counter[str]) -> bool:
    """One launch, disturbed; whether the run ended by itself and was complete."""
    counts["launches"] += 1
    act = launch(output)
    numbers = dice.choice(DISTURBANCES)
    for number in numbers:
        time.sleep(dice.random() * longest)
        act(number)
    code = act(None)
    counts[NAMES[numbers[0]]] += 1
    # Before the handlers are there, and after they are gone, a signal does what it does to any process.
    allowed = {0, INCOMPLETE, 128 + numbers[0], -numbers[0]}
    assert code in allowed, f"{output}: exit code {code} after {numbers}"
    return code == 0


def told(output: pathlib.Path) -> list[str]:
    """What a run's results say, without their order."""
    kept = []
    for line in output.read_text().splitlines():
        row = {name: value for name, value in json.loads(line).items() if name not in DIFFERENT}
        for name in ("id", "created_at"):
            row["response"].pop(name, None)
        kept.append(json.dumps(row, sort_keys=True))
    return sorted(kept)


def finish(output: pathlib.Path, launch: Launch) -> float:
    """Launch without disturbance until the run is complete; how long the first launch took."""
    start = time.monotonic()
    code = launch(output)(None)
    seconds = time.monotonic() - start
    while code == INCOMPLETE:  # the rollouts that fail at first are tried again
        code = launch(output)(None)
    assert code == 0, f"{output}: exit code {code} of a launch that nobody disturbed"
    return seconds


def check(moments: int, seed: int, folder: pathlib.Path, launch: Launch) -> Counter[str]:
    """Run the rounds; what was done. **Errors**: `AssertionError` with the round and the seed."""
    longest = finish(folder / "whole" / "r.jsonl", launch)
    whole = told(folder / "whole" / "r.jsonl")
    assert len(whole) == TASKS * REPEATS
    files = {path.name for path in (folder / "whole").iterdir()}
    counts: Counter[str] = Counter()
    while sum(counts[name] for name in NAMES.values()) < moments:
        counts["runs"] += 1
        where = f"seed {seed}, run {counts['runs']}"
        output = folder / f"run-{counts['runs']}" / "r.jsonl"
        dice = random.Random(where)
        for _ in range(dice.randint(1, MOST_MOMENTS)):
            if disturb(output, launch, dice, longest, counts):
                break
        finish(output, launch)
        keys = Counter((row["_ng_task_index"], row["_ng_rollout_index"]) for row in map(json.loads, output.open()))
        assert set(keys.values()) == {1}, f"{where}: a rollout is there twice"
        assert told(output) == whole, f"{where}: the results differ"
        left = {path.name for path in output.parent.iterdir()} - files
        assert not left, f"{where}: {left} are left over"
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cli", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        counts = check(arguments.moments, arguments.seed, folder, command(folder) if arguments.cli else fork)
    done = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    sys.stdout.write(f"{TASKS * REPEATS} rollouts a run, seed {arguments.seed}: {done}\n")


if __name__ == "__main__":
    main()
