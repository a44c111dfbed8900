"""From the command to its first scored rollout: ``gym-trio eval run`` with a scripted model, one row."""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile

from _cold import first_rollout
from _side import report
from _tool_call import CONFIG, rows

with tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder)
    (place / "config.yaml").write_text(json.dumps(CONFIG))  # JSON is YAML
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(1)))
    command = [sys.executable, "-m", "gym_trio", "eval", "run", "--config", "config.yaml", "--input", "rows.jsonl"]
    work, figures = first_rollout([*command, "--output", "out/r.jsonl"], folder)
report(work, figures, ["gym_trio", "trio"])
