"""What is left of a run of which everything was done: ``--how`` gym_trio, or only parsing the same lines."""

from __future__ import annotations

import shutil
import tempfile

import orjson
from _run_files import finished_run
from _side import Clock, options, report

from gym_trio.collection import RunOptions, prepare_run

arguments = options(how="gym_trio", rows=1_000_000)
made = finished_run(arguments.rows)
if arguments.how == "gym_trio":
    with tempfile.TemporaryDirectory(dir=made.parent) as place:
        for name in ("run_materialized_inputs.jsonl", "run.jsonl"):
            shutil.copy(made / name, place)
        options_ = RunOptions(
            rows=made / "rows.jsonl", output=f"{place}/run.jsonl", agents=["agent"], num_repeats=4, resume=True
        )
        with Clock() as clock, prepare_run(options_) as run:
            work = {"rows": run.expected, "pending": run.pending}
else:
    count = 0
    with Clock() as clock:
        for name in ("rows.jsonl", "run_materialized_inputs.jsonl", "run.jsonl"):
            with (made / name).open("rb") as file:
                for line in file:
                    orjson.loads(line)
                    count += 1
    work = {"rows": count * 4 // 9, "pending": 0}
report(work, clock.figures, ["gym_trio", "orjson"])
