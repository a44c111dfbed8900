"""A program that owns managed servers, to be killed or interrupted: ``runner.py JSON``.

The JSON object may have ``servers`` (a list of specs for program.py), ``grace``, ``relay`` (write what they write),
``forks`` (fork a child without exec), ``ends`` (leave the block when all are up). Writes ``ready`` when all are up,
``interrupted`` and each server's exit when it is interrupted.
"""

import json
import os
import pathlib
import sys
import time

import trio

from gym_trio.processes import open_supervisor

PROGRAM = str(pathlib.Path(__file__).with_name("program.py"))


def say(text):
    os.write(1, (text + "\n").encode())


def fork_a_sleeper():
    """Fork a child without exec, which holds copies of every socket."""
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)


async def main(plan):
    relayed = say if plan.get("relay") else lambda _line: None
    supervisor = None
    try:
        async with open_supervisor(plan.get("grace", 1), output=relayed) as supervisor:
            say("opened")
            async with trio.open_nursery() as nursery:
                for number, spec in enumerate(plan["servers"]):
                    command = [sys.executable, "-I", "-S", PROGRAM, json.dumps(spec)]
                    nursery.start_soon(supervisor.start, f"s{number}", command)
            if plan.get("forks"):
                fork_a_sleeper()
            say("ready")
            if plan.get("ends"):
                return
            await trio.sleep_forever()
    finally:
        if supervisor is not None and supervisor.report is not None:
            say(f"report {[(each.returncode, each.escalated) for each in supervisor.report.exits]}")


try:
    trio.run(main, json.loads(sys.argv[1]))
except* KeyboardInterrupt:
    say("interrupted")
    sys.exit(130)
