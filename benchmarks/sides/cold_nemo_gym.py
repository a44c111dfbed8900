"""From the command to its first scored rollout: ``gym eval run`` with the same scripted model and row.

Its servers' environments are there already, as on a second run: each is this one, which spares it their installation.
"""

from __future__ import annotations

import copy
import json
import pathlib
import shutil
import sys
import tempfile

from _cold import first_rollout
from _side import report
from _tool_call import AGENT, CONFIG, rows

MODEL = "responses_api_models/scripted_model"
SERVERS = (
    MODEL,
    "resources_servers/example_single_tool_call",
    "responses_api_agents/simple_agent",
    "environment_servers/legacy_agent",
)


def lay_out(place):
    """What a user has in the folder where the command is run. With its own servers, rows come as a data set."""
    (place / MODEL).mkdir(parents=True)
    shutil.copy(pathlib.Path(__file__).with_name("nemo_gym_model.py"), place / MODEL / "app.py")
    (place / MODEL / "requirements.txt").touch()
    for server in SERVERS:
        (place / "venvs" / server).mkdir(parents=True)
        (place / "venvs" / server / ".venv").symlink_to(sys.prefix)
    config = copy.deepcopy(CONFIG)
    config[AGENT]["responses_api_agents"]["simple_agent"]["datasets"] = [
        {"name": "rows", "type": "validation", "jsonl_fpath": str(place / "rows.jsonl"), "license": "Apache 2.0"}
    ]
    (place / "config.yaml").write_text(json.dumps(config))
    (row,) = rows(1)
    (place / "rows.jsonl").write_text(json.dumps({"responses_create_params": row["responses_create_params"]}) + "\n")


with tempfile.TemporaryDirectory() as folder:
    lay_out(pathlib.Path(folder))
    command = [str(pathlib.Path(sys.prefix) / "bin" / "gym"), "eval", "run", "--config", "config.yaml"]
    command += ["--split", "validation", "--output", "out/r.jsonl"]
    command += [f"+uv_venv_dir={folder}/venvs", "+skip_venv_if_present=true"]
    work, figures = first_rollout(command, folder)
report(work, figures, ["nemo-gym"])
