"""The metrics of a finished run of ``--rows`` rollouts: ``--how`` gym_trio, or only reading the same lines."""

from __future__ import annotations

import orjson
from _run_files import finished_run
from _side import Clock, options, report

from gym_trio.collection import aggregate_files

arguments = options(how="gym_trio", rows=1_000_000)
made = finished_run(arguments.rows)
rewards = 0.0
with Clock() as clock:
    if arguments.how == "gym_trio":
        entries = aggregate_files(str(made / "run.jsonl")).entries
        rewards = entries[0]["agent_metrics"]["mean/reward"]
    else:
        for name in ("run_materialized_inputs.jsonl", "run.jsonl"):
            with (made / name).open("rb") as file:
                for line in file:
                    rewards += orjson.loads(line).get("reward", 0.0)
        rewards /= arguments.rows
report({"rows": arguments.rows, "mean": round(rewards, 9)}, clock.figures, ["gym_trio", "orjson"])
