"""The files of a finished run of ``rows`` rollouts, made once per size and kept in the temporary folder."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile


def finished_run(rows):
    """The folder; ``rows.jsonl`` was its input, ``run.jsonl`` its output. A rollout is about 1 kB."""
    place = pathlib.Path(tempfile.gettempdir()) / f"gym_trio_benchmark_{os.getuid()}_{rows}"
    if (place / "done").exists():
        return place
    place.mkdir(exist_ok=True)
    repeats = 4
    params = {"input": [{"role": "user", "content": "what's it like in sf? " + "x" * 200}]}
    with (place / "rows.jsonl").open("w") as file:
        for task in range(rows // repeats):
            file.write(json.dumps({"responses_create_params": params, "task": task, "agent_ref": AGENT}) + "\n")
    with (place / "run_materialized_inputs.jsonl").open("w") as inputs, (place / "run.jsonl").open("w") as output:
        for number in range(rows):
            task, repeat = divmod(number, repeats)
            row = {
                "responses_create_params": params,
                "task": task,
                "agent_ref": AGENT,
                "_ng_task_index": task,
                "_ng_rollout_index": repeat,
            }
            inputs.write(json.dumps(row) + "\n")
            output.write(json.dumps({**row, "response": RESPONSE, "reward": float(number % 3 == 0)}) + "\n")
    (place / "done").touch()
    return place


AGENT = {"type": "responses_api_agents", "name": "agent"}
RESPONSE = {
    "id": "resp",
    "object": "response",
    "model": "m",
    "created_at": 0,
    "output": [
        {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "cold " * 40, "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 40,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 90,
    },
}
