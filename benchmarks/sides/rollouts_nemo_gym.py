"""The same rollouts through NeMo Gym's own ``run_examples``."""

from __future__ import annotations

import asyncio
import time

from _nemo_gym import fleet
from _side import mark, options, raise_file_limit, report
from _tool_call import Tally, rows


async def run(count, concurrent, tally=None):
    from nemo_gym.rollout_collection import RolloutCollectionHelper

    given = list(rows(count))
    for number, row in enumerate(given):
        row |= {"_ng_task_index": number, "_ng_rollout_index": 0}
    for future in RolloutCollectionHelper().run_examples(given, semaphore=asyncio.Semaphore(concurrent)):
        _, result = await future
        if tally is not None:
            tally.add(result)


async def main(arguments):
    tally = Tally()
    await run(64, 16)
    mark("begin")
    began = time.process_time()
    await run(arguments.rollouts, arguments.concurrent, tally)
    own = time.process_time() - began
    mark("end")
    report(tally.work, {"own_cpu_seconds": own}, ["nemo-gym", "aiohttp", "fastapi", "uvicorn"])


arguments = options(rollouts=4000, concurrent=64)
raise_file_limit()
with fleet():
    asyncio.run(main(arguments))
