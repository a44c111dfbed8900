"""A command line's first scored rollout: from its start until the first line stands in its output file."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time

from _side import mark
from _tool_call import Tally

POLL_SECONDS = 0.005


def first_rollout(command, folder):
    """Runs it in ``folder`` to its end. Its output is ``out/r.jsonl``. The work done, and the wall time."""
    output, tally = pathlib.Path(folder) / "out" / "r.jsonl", Tally()
    mark("begin")
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=sys.stderr)
    while process.poll() is None and not (output.exists() and output.read_bytes().endswith(b"\n")):
        time.sleep(POLL_SECONDS)
    wall = time.monotonic() - began
    mark("end")
    if process.wait() != 0:
        sys.exit(f"the command ended with {process.returncode}")
    for line in output.read_text().splitlines():
        tally.add(json.loads(line))
    return tally.finished(), {"wall_seconds": wall}
