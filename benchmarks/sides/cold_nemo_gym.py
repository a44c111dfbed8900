"""From the command to its first scored rollout: a program that starts NeMo Gym's servers and sends one row."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time

from _side import report
from _tool_call import Tally

PROGRAM = """
import asyncio, json, sys
from _nemo_gym import fleet
from _tool_call import rows

async def main():
    from nemo_gym.rollout_collection import RolloutCollectionHelper
    for future in RolloutCollectionHelper().run_examples(list(rows(1))):
        _, result = await future
        print("RESULT", json.dumps(result), flush=True)

with fleet():
    asyncio.run(main())
"""

tally = Tally()
began = time.monotonic()
command = [sys.executable, "-c", PROGRAM]
done = subprocess.run(command, cwd=pathlib.Path(__file__).parent, check=True, capture_output=True, text=True)
wall = time.monotonic() - began
for line in done.stdout.splitlines():
    if line.startswith("RESULT "):
        tally.add(json.loads(line.removeprefix("RESULT ")))
report(tally.finished(), {"wall_seconds": wall}, ["nemo-gym"])
