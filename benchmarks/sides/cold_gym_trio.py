"""From the command to its first scored rollout: ``gym-trio eval run`` with a scripted model, one row."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from _side import report
from _tool_call import CONFIG, Tally, rows

tally = Tally()
with tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder)
    (place / "config.yaml").write_text(json.dumps(CONFIG))  # JSON is YAML
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(1)))
    command = [sys.executable, "-m", "gym_trio", "eval", "run", "--config", "config.yaml", "--input", "rows.jsonl"]
    began = time.monotonic()
    subprocess.run([*command, "--output", "out/r.jsonl"], cwd=folder, check=True, stdout=sys.stderr)
    wall = time.monotonic() - began
    for line in (place / "out" / "r.jsonl").read_text().splitlines():
        tally.add(json.loads(line))
report(tally.finished(), {"wall_seconds": wall}, ["gym_trio", "trio"])
