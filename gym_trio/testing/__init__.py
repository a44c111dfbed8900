"""For tests of what is built on gym_trio, and of users' own servers.

========================  ==========================================================
`open_fake_gym`           a gym whose one agent is a function of yours
`ScriptedModel`           a model server that answers from a script
`check_session_contract`  does your agent or environment keep its sessions' promises?
========================  ==========================================================
"""

from __future__ import annotations

from ._fake_gym import open_fake_gym
from ._scripted_model import ScriptedModel
from ._session_contract import check_session_contract

__all__ = ["ScriptedModel", "check_session_contract", "open_fake_gym"]
