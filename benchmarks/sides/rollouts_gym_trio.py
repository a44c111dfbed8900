"""``--rollouts`` tool-call rollouts, ``--concurrent`` at a time; ``--serve`` memory, sockets or processes."""

from __future__ import annotations

import time

import trio
from _side import mark, options, raise_file_limit, report
from _tool_call import CONFIG, Tally, rows

import gym_trio


async def main(arguments):
    raise_file_limit()
    tally = Tally()
    async with gym_trio.open_gym(CONFIG, serve=arguments.serve) as gym:
        async with gym.run_examples(rows(64, first=10**6), max_concurrent=16) as warming:
            async for outcome in warming:
                tally.after_warming(outcome.unwrap()[1])
        mark("begin")
        began = time.process_time()
        async with gym.run_examples(rows(arguments.rollouts), max_concurrent=arguments.concurrent) as rollouts:
            async for outcome in rollouts:
                tally.add(outcome.unwrap()[1])
        own = time.process_time() - began
        mark("end")
    report(tally.finished(), {"own_cpu_seconds": own}, ["gym_trio", "trio"])


trio.run(main, options(serve="memory", rollouts=4000, concurrent=64))
