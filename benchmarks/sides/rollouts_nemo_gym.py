"""The same rollouts through NeMo Gym's own ``run_examples``."""

from __future__ import annotations

import asyncio
import time

from _nemo_gym import fleet
from _side import mark, options, raise_file_limit, report
from _tool_call import Tally, rows


async def run(count, concurrent, receive, first=0):
    from nemo_gym.rollout_collection import RolloutCollectionHelper

    for future in RolloutCollectionHelper().run_examples(
        list(rows(count, first)), semaphore=asyncio.Semaphore(concurrent)
    ):
        _, result = await future
        receive(result)


async def main(arguments):
    tally = Tally()
    await run(64, 16, tally.after_warming, first=10**6)
    mark("begin")
    began = time.process_time()
    await run(arguments.rollouts, arguments.concurrent, tally.add)
    own = time.process_time() - began
    mark("end")
    report(tally.finished(), {"own_cpu_seconds": own}, ["nemo-gym", "aiohttp", "fastapi", "uvicorn"])


arguments = options(rollouts=4000, concurrent=64)
raise_file_limit()
with fleet():
    asyncio.run(main(arguments))
