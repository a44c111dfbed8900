"""``--servers`` servers that take ``--slow`` seconds to end, under one supervisor, or ``--each`` under its own, one
after the other."""

from __future__ import annotations

import sys
import time

import trio
from _side import options, report

import gym_trio

SLOW = """
import os, signal, sys, time
def end(*_):
    time.sleep(float(sys.argv[1]))
    os._exit(0)
signal.signal(signal.SIGINT, end)
os.write(int(os.environ["GYM_TRIO_READY_FD"]), b"ready\\n")
while True:
    signal.pause()
"""


async def stop_after_start(count, slow):
    async with gym_trio.open_supervisor() as supervisor:
        async with trio.open_nursery() as nursery:
            for number in range(count):
                command = [sys.executable, "-I", "-S", "-c", SLOW, str(slow)]
                nursery.start_soon(lambda name, what: supervisor.start(name, what, ready_fd=True), f"{number}", command)
        began = time.monotonic()
        ended = await supervisor.stop()
        return time.monotonic() - began, ended


async def main(arguments):
    wall, exits = 0.0, []
    for _ in range(arguments.servers if arguments.each else 1):
        took, ended = await stop_after_start(1 if arguments.each else arguments.servers, arguments.slow)
        wall += took
        exits += ended.exits
    work = {"stopped": len(exits), "reaped": sum(one.returncode is not None for one in exits)}
    report(work, {"wall_seconds": wall, "escalated": float(sum(one.escalated for one in exits))}, ["gym_trio", "trio"])


trio.run(main, options(servers=8, slow=0.9, each=False))
