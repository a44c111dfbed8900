"""For tests of what is built on gym_trio, and of users' own servers.

====================  ==========================================================
`open_fake_gym`       a gym whose one agent is a function of yours
`ScriptedModel`       a model server that answers from a script
====================  ==========================================================
"""

from __future__ import annotations

from ._fake_gym import open_fake_gym
from ._scripted_model import ScriptedModel

__all__ = ["ScriptedModel", "open_fake_gym"]
