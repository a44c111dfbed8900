"""What the import of ``--what`` costs in a fresh interpreter."""

from __future__ import annotations

from _side import Clock, options, report

CODE = {
    "gym_trio": "import gym_trio",
    "open_gym": "from gym_trio import open_gym",
    "trio_httpx": "import trio, httpx",
    "nemo_gym": "from nemo_gym.rollout_collection import RolloutCollectionHelper",
}
arguments = options(what="gym_trio")
compiled = compile(CODE[arguments.what], "import", "exec")
with Clock() as clock:
    exec(compiled, {})
report({"imports": 1}, clock.figures, ["gym_trio", "trio", "httpx", "nemo-gym"])
